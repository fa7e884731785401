package waitqueue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

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
	info := []lease.Info{infoOf(v)}
	q.client.name(ctx, info)
	return info[0], nil
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
			InTransit: lua.InTransit(h.Ticket),
			Wants:     strings.HasSuffix(h.Phase, lua.PhaseWants),
			Idle:      h.Phase == lua.PhaseIdle,
		})
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
		if ended := q.client.servers.Rest(ctx, retry.Backoff(tries)); ended != nil {
			return v, fmt.Errorf("%w (last error: %w)", ended, conn.Advise(err))
		}
	}
}

// ForceRelease frees the name whoever holds it, and lets the next in the queue hold. The holder is told:
// its context ends with the cause [lease.ErrForced], at once from a quarter of a second of holding on, since from then on
// its client listens, else with the next renewal. Until then it may still act as the holder, so what it protects should
// look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: what was seen is what is freed. Where several may hold it
// is needed, and 0 is [lease.ErrInvalid]; the hold is looked for among the 10,000 whose leases end first. It returns
// what it freed; [lease.ErrNotHeld] if there was nothing to free, [lease.ErrOtherToken] if it is held with another token.
func (q Queue) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	retry.Given(ctx)
	if q.err != nil {
		return lease.Holder{}, q.err
	}
	which := strconv.FormatUint(token, 10)
	if q.proto.Several() {
		var err error
		if which, err = q.holderOf(ctx, token); err != nil {
			return lease.Holder{}, err
		}
	}
	r, err := conn.InBackground(ctx, q.client.servers, func() (lua.Reply, error) { return q.forced(ctx, which) })
	switch {
	case conn.Answered(err) || conn.Unsent(err):
		return lease.Holder{}, fmt.Errorf("not freed: %w", conn.Advise(err))
	case err != nil:
		return lease.Holder{}, fmt.Errorf("it may have been freed or not: %w", conn.Advise(err))
	case r.Status != lua.Done && len(r.States) > 0:
		return lease.Holder{}, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, r.Token)
	case r.Status != lua.Done || len(r.States) == 0:
		return lease.Holder{}, lease.ErrNotHeld
	case r.Has(lua.Unwoken):
		err = q.Unwoken()
	}
	return lease.Holder{Client: lua.TicketClient(r.States[0]), Ticket: r.States[0], Token: token}, err
}

// mostFreed is among how many holds the one with a token is looked for.
const mostFreed = 10000

// holderOf returns the ticket that holds by a token, where several may hold. No ticket holds twice, so what is freed by
// its ticket is that hold.
func (q Queue) holderOf(ctx context.Context, token uint64) (ticket string, err error) {
	if token == 0 {
		return "", fmt.Errorf("%w: a token of 0, where several may hold: Inspect tells the token of each", lease.ErrInvalid)
	}
	v, err := q.view(ctx, []string{strconv.Itoa(mostFreed), "0"})
	if err != nil {
		return "", fmt.Errorf("not freed: %w", conn.Advise(err))
	}
	for _, h := range v.Holders {
		if h.Token == token {
			return h.Ticket, nil
		}
	}
	return "", lease.ErrNotHeld
}

// forced asks until there is an answer that does not pass by itself, for as long as a try does. What got no answer is not
// repeated: it may have freed one hold, and would free the next.
func (q Queue) forced(ctx context.Context, which string) (lua.Reply, error) {
	c, begun := q.client, time.Now()
	for tries := 0; ; tries++ {
		a := conn.Sending()
		j := historic(q.terms.History, q.keys.History, conn.Job{
			Script: q.proto.Force, Keys: q.keys.All(), Args: []string{which, c.highest(), c.servers.Counted()},
		})
		r, err := q.proto.Force.Decode(c.servers.Run(j.Script, j.Keys, j.Args...))
		if err == nil {
			c.saw(c.servers.NodeOf(q.keys.Lock), a, q.proto, q.name, r.Head(), r.Token)
		}
		if !conn.Unsent(err) && !conn.Answered(err) || !conn.Transient(err) || time.Since(begun) > tryTime || c.servers.Rest(ctx, retry.Backoff(tries)) != nil {
			return r, err
		}
	}
}

// Wiring is how a client reaches its servers beside the protocol. It is for packages doctor and
// inspect, which look at them.
type Wiring struct {
	Redis   rueidis.Client       // for commands that are no requests of the protocol
	Made    rueidis.ClientOption // what its connections were made with; nothing where they are not its own
	Own     bool                 // the connections are its own
	Prefix  string               // of all keys
	Sharded bool                 // the wake channels are sharded
	Plain   bool                 // they are not, although it is a cluster
	Skips   bool                 // dead waiters are skipped, as subscribers are counted
	Polls   bool                 // the client subscribes to nothing, so its waiters look for their grants

	client *client
}

// WiringOf returns how a client reaches its servers, or [lease.ErrClosed].
func WiringOf(c *Client) (Wiring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return Wiring{}, lease.ErrClosed
	}
	return wiringOf(c.client, c.servers.Owned()), nil
}

func wiringOf(c *client, own bool) Wiring {
	w := Wiring{Redis: c.servers.Side, Own: own, Prefix: c.opts.Prefix, Sharded: c.servers.Sharded, Plain: c.servers.Plain, Skips: c.servers.Counted() == "1", Polls: c.opts.WithoutSubscribe, client: c}
	if own {
		w.Made = c.opts.Redis
	}
	return w
}

// Name adds to inspections who the clients are that hold and wait, where that is known.
func (w Wiring) Name(ctx context.Context, infos ...lease.Info) { w.client.name(ctx, infos) }

// Wire is the wiring of a client that [Dial] would make, also where Dial refuses the server. The caller ends it.
func Wire(o Options) (w Wiring, end func(), err error) {
	if o, err = o.withDefaults(); err != nil {
		return Wiring{}, nil, err
	}
	c := newClient(o)
	var hangUp func()
	if c.servers, hangUp, err = conn.Peek(c.wants()); err != nil {
		c.notifier.Stop()
		return Wiring{}, nil, err
	}
	_ = c.servers.Probe() // It says again what Dial did, and finds out whether channels are sharded.
	return wiringOf(c, true), func() {
		hangUp()
		c.notifier.Stop()
	}, nil
}

// Dial connects to one server, with what the client's own connections were made with. The caller ends it. It ends by
// itself when ctx does.
func (w Wiring) Dial(ctx context.Context, address string) (rc rueidis.Client, end func(), err error) {
	return conn.DialOne(ctx, w.Made, address)
}

// Probed is what a server says of what the protocol needs.
type Probed = conn.Probed

// Probed asks the server of the locks what it lacks: that may have changed since the client was made.
func (w Wiring) Probed(ctx context.Context) (Probed, error) { return w.client.servers.Probed(ctx) }
