package waitqueue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// inspectQueue is how many waiters an inspection names.
const inspectQueue = 100

// Inspect tells who holds and who waits. It changes nothing, and takes no place in any order. The arguments are
// what the script wants beside the number of tickets to tell.
func (q Queue) Inspect(ctx context.Context, args ...string) (lease.Info, error) {
	retry.Given(ctx)
	if q.err != nil {
		return lease.Info{}, q.err
	}
	args = append([]string{strconv.Itoa(inspectQueue)}, args...)
	v, err := q.view(ctx, args)
	if err != nil {
		return lease.Info{}, conn.Advise(err)
	}
	return infoOf(v), nil
}

// infoOf turns the server's times into spans.
func infoOf(v lua.View) lease.Info {
	micros := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	info := lease.Info{
		Held: len(v.Holders) > 0, Token: v.Token, Limit: v.Limit, Used: v.Used, Waiting: v.Waiting,
		Suspects: v.Suspects, State: v.State,
	}
	for _, h := range v.Holders {
		info.Holders = append(info.Holders, lease.Holder{
			Client: lua.TicketClient(h.Ticket), Ticket: h.Ticket, Who: h.Who, Permits: h.Permits, Entries: h.Count,
			Token: h.Token, Since: time.Now().Add(-micros(v.Now - h.Since)), Left: micros(h.Until - v.Now),
		})
	}
	if info.Held {
		info.Holder = info.Holders[0]
	}
	for _, w := range v.Queue {
		info.Queue = append(info.Queue, lease.Waiter{Client: lua.TicketClient(w.Ticket), Ticket: w.Ticket, Wait: micros(v.Now - w.Arrival)})
	}
	return info
}

// view asks until there is an answer, for as long as a try does.
func (q Queue) view(ctx context.Context, args []string) (lua.View, error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		v, err := q.proto.Inspect.DecodeInspect(q.client.servers.RunFor(ctx, q.proto.Inspect, q.keys.All(), args...))
		if err == nil || ctx.Err() != nil || !conn.Transient(err) || time.Since(begun) > tryTime {
			return v, err
		}
		if ended := q.client.servers.Rest(ctx, retry.Pause(tries)); ended != nil {
			return v, fmt.Errorf("%w (last error: %w)", ended, conn.Advise(err))
		}
	}
}

// ForceRelease frees the name whoever holds it, and lets the next in the queue hold. The holder is told:
// its context ends with the cause [lease.ErrForced], at once from a quarter of a second of holding on, since from then on
// its client listens, else with the next renewal. Until then it may still act as the holder, so what it protects should
// look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: what was seen is what is freed. It returns
// what it freed; [lease.ErrNotHeld] if there was nothing to free, [lease.ErrOtherToken] if it is held with another token.
func (q Queue) ForceRelease(ctx context.Context, token uint64) (lease.Waiter, error) {
	return q.force(ctx, strconv.FormatUint(token, 10))
}

// ForceTicket is [Queue.ForceRelease] where several may hold: it frees the hold of the ticket that Inspect
// names.
func (q Queue) ForceTicket(ctx context.Context, ticket string) (lease.Waiter, error) {
	return q.force(ctx, ticket)
}

func (q Queue) force(ctx context.Context, which string) (lease.Waiter, error) {
	retry.Given(ctx)
	if q.err != nil {
		return lease.Waiter{}, q.err
	}
	r, err := conn.InBackground(ctx, q.client.servers, func() (lua.Reply, error) { return q.forced(ctx, which) })
	switch {
	case conn.Answered(err) || conn.Unsent(err):
		return lease.Waiter{}, fmt.Errorf("not freed: %w", conn.Advise(err))
	case err != nil:
		return lease.Waiter{}, fmt.Errorf("it may have been freed or not: %w", conn.Advise(err))
	case r.Status != lua.Done && len(r.States) > 0:
		return lease.Waiter{}, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, r.Token)
	case r.Status != lua.Done || len(r.States) == 0:
		return lease.Waiter{}, lease.ErrNotHeld
	case r.Has(lua.Unwoken):
		err = q.Unwoken()
	}
	return lease.Waiter{Client: lua.TicketClient(r.States[0]), Ticket: r.States[0]}, err
}

// forced asks until there is an answer that does not pass by itself, for as long as a try does. What got no answer is not
// repeated: it may have freed one hold, and would free the next.
func (q Queue) forced(ctx context.Context, which string) (lua.Reply, error) {
	c, begun := q.client, time.Now()
	for tries := 0; ; tries++ {
		a := conn.Sending()
		r, err := q.proto.Force.Decode(c.servers.Run(q.proto.Force, q.keys.All(), which, c.highest(), c.servers.Counted()))
		if err == nil {
			c.sawReply(c.servers.NodeOf(q.keys.Lock), a, q.binding, &r)
		}
		if !conn.Unsent(err) && !conn.Answered(err) || !conn.Transient(err) || time.Since(begun) > tryTime || c.servers.Rest(ctx, retry.Pause(tries)) != nil {
			return r, err
		}
	}
}
