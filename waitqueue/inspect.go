package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// Info is what the server knows of one name at one moment.
type Info struct {
	Held    bool
	Holder  Holder   // who holds, if Held; where several do, the one whose lease ends first
	Holders []Holder // the first of those who hold, by the ends of their leases
	Token   uint64   // the last that was given; of a latch or a barrier, its generation
	Limit   int64    // permits, parties, or the count that was set; 1 for a lock
	Used    int64    // permits held, parties that have come, or the count that is left
	Waiting int      // how many wait
	Queue   []Waiter // the first of them, in their order
	// Suspects are clients that let a lease run out and have not been heard of since.
	Suspects []string
	// State is that of a latch (unset, closed, open) or a barrier (unset, open, broken).
	State string
}

// A Waiter is a ticket as the server knows it.
type Waiter struct {
	Client string
	Ticket string
	Wait   time.Duration // since its arrival, less the head start of its priority
}

// A Holder is a hold as the server knows it.
type Holder struct {
	Client string
	Ticket string
	// Who is name@host#pid. Of those that were granted by message it is known only once they have renewed.
	Who     string
	Permits int64
	Entries int64 // how many times it was entered, as the last renewal told it
	Token   uint64
	Since   time.Duration // how long it has been held
	Left    time.Duration // until the lease ends, unless it is renewed; negative if it has run out
}

// inspectQueue is how many waiters an inspection names.
const inspectQueue = 100

// Inspect tells who holds and who waits. It changes nothing, and takes no place in any order. The arguments are
// what the script wants beside the number of tickets to tell.
func (q Queue) Inspect(ctx context.Context, args ...string) (Info, error) {
	given(ctx)
	if q.err != nil {
		return Info{}, q.err
	}
	args = append([]string{strconv.Itoa(inspectQueue)}, args...)
	v, err := q.view(ctx, args)
	if err != nil {
		return Info{}, advise(err)
	}
	return infoOf(v), nil
}

// infoOf turns the server's times into spans.
func infoOf(v lua.View) Info {
	micros := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	info := Info{
		Held: len(v.Holders) > 0, Token: v.Token, Limit: v.Limit, Used: v.Used, Waiting: v.Waiting,
		Suspects: v.Suspects, State: v.State,
	}
	for _, h := range v.Holders {
		info.Holders = append(info.Holders, Holder{
			Client: lua.TicketClient(h.Ticket), Ticket: h.Ticket, Who: h.Who, Permits: h.Permits, Entries: h.Count,
			Token: h.Token, Since: micros(v.Now - h.Since), Left: micros(h.Until - v.Now),
		})
	}
	if info.Held {
		info.Holder = info.Holders[0]
	}
	for _, w := range v.Queue {
		info.Queue = append(info.Queue, Waiter{Client: lua.TicketClient(w.Ticket), Ticket: w.Ticket, Wait: micros(v.Now - w.Arrival)})
	}
	return info
}

// view asks until there is an answer, for as long as a try does.
func (q Queue) view(ctx context.Context, args []string) (lua.View, error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		v, err := q.proto.Inspect.DecodeInspect(q.client.runFor(ctx, q.proto.Inspect, q.keys.All(), args...))
		if err == nil || ctx.Err() != nil || !transient(err) || time.Since(begun) > tryTime {
			return v, err
		}
		if ended := q.client.rest(ctx, pause(tries)); ended != nil {
			return v, fmt.Errorf("%w (last error: %w)", ended, advise(err))
		}
	}
}

// ForceRelease frees the name whoever holds it, and lets the next in the queue hold. The holder is told:
// its context ends with the cause [lease.ErrForced], at once from a quarter of a second of holding on, since from then on
// its client listens, else with the next renewal. Until then it may still act as the holder, so what it protects should
// look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: what was seen is what is freed. It returns
// what it freed; [ErrNotHeld] if there was nothing to free, [ErrOtherToken] if it is held with another token.
func (q Queue) ForceRelease(ctx context.Context, token uint64) (Waiter, error) {
	return q.force(ctx, strconv.FormatUint(token, 10))
}

// ForceTicket is [Queue.ForceRelease] where several may hold: it frees the hold of the ticket that Inspect
// names.
func (q Queue) ForceTicket(ctx context.Context, ticket string) (Waiter, error) {
	return q.force(ctx, ticket)
}

func (q Queue) force(ctx context.Context, which string) (Waiter, error) {
	given(ctx)
	if q.err != nil {
		return Waiter{}, q.err
	}
	r, err := inBackground(ctx, q.client, func() (lua.Reply, error) { return q.forced(ctx, which) })
	switch {
	case answered(err) || unsent(err):
		return Waiter{}, fmt.Errorf("not freed: %w", advise(err))
	case err != nil:
		return Waiter{}, fmt.Errorf("it may have been freed or not: %w", advise(err))
	case r.Status != lua.Done && len(r.States) > 0:
		return Waiter{}, fmt.Errorf("%w: it has %d", ErrOtherToken, r.Token)
	case r.Status != lua.Done || len(r.States) == 0:
		return Waiter{}, ErrNotHeld
	case r.Has(lua.Unwoken):
		err = q.Unwoken()
	}
	return Waiter{Client: lua.TicketClient(r.States[0]), Ticket: r.States[0]}, err
}

// forced asks until there is an answer that does not pass by itself, for as long as a try does. What got no answer is not
// repeated: it may have freed one hold, and would free the next.
func (q Queue) forced(ctx context.Context, which string) (lua.Reply, error) {
	c, begun := q.client, time.Now()
	for tries := 0; ; tries++ {
		a := sending()
		r, err := c.run(q.proto.Force, q.keys.All(), which, c.highest(), c.counted())
		if err == nil {
			c.routes.of(q.keys.Lock).clock.observe(a, r.Now, false)
			c.count(q.proto.Kind, q.name, &r)
		}
		if !unsent(err) && !answered(err) || !transient(err) || time.Since(begun) > tryTime || c.rest(ctx, pause(tries)) != nil {
			return r, err
		}
	}
}

// Why there was nothing to release by force.
var (
	// ErrNotHeld: nobody held, or a ticket did not.
	ErrNotHeld = errors.New("not held")
	// ErrOtherToken: it is held, but not with the token that was asked for. It is an ErrNotHeld too.
	ErrOtherToken error = otherToken{}
)

type otherToken struct{}

func (otherToken) Error() string { return "held with another token" }

func (otherToken) Is(target error) bool { return target == ErrNotHeld }
