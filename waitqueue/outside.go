package waitqueue

import (
	"context"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Seen is the name of the queue as [Wiring.InspectAll] wants it.
func (q Queue) Seen() outside.Name {
	return outside.Name{Proto: q.proto, Keys: q.keys, History: q.terms.History, Err: q.err}
}

// Inspect tells who holds and who waits. It changes nothing, and takes no place in any order. The arguments are
// what the script wants beside the number of tickets to tell.
func (q Queue) Inspect(ctx context.Context, args ...string) (lease.Info, error) {
	retry.Given(ctx)
	if q.err != nil {
		return lease.Info{}, q.err
	}
	return outside.Of(q.client.servers, false).Inspect(ctx, q.Seen(), args)
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
	c := q.client
	freed, unwoken, err := outside.Of(c.servers, false).Free(ctx, q.Seen(), token, c.highest, func(a conn.Attempt, r *lua.Reply) {
		c.saw(c.servers.NodeOf(q.keys.Lock), a, q.proto, q.name, r.Head(), r.Token)
	})
	if unwoken {
		err = q.Unwoken()
	}
	return freed, err
}

// Wiring is how a client reaches its servers beside the protocol. It is for packages doctor and
// inspect, which look at them.
type Wiring = outside.Wiring

// WiringOf returns how a client reaches its servers, or [lease.ErrClosed].
func WiringOf(c *Client) (Wiring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return Wiring{}, lease.ErrClosed
	}
	return outside.Of(c.servers, c.servers.Owned()), nil
}

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
	return outside.Of(c.servers, true), func() {
		hangUp()
		c.notifier.Stop()
	}, nil
}

// What operators are told of a client is in a key of the client, and not in all that it holds and waits for. Nothing
// else depends on it: where the key is missing, they are told the client's id.

const (
	// whoEvery is how often a client says who it is while it uses a name.
	whoEvery = 20 * time.Second
	// whoLasts is how long that is known.
	whoLasts = time.Minute
)

// introduce says who the client is. An answer makes no difference.
func (c *client) introduce() {
	c.mu.Lock()
	c.said = time.Now()
	c.mu.Unlock()
	key := lua.ClientKey(c.opts.Prefix, c.id)
	_ = c.servers.Run(lua.Introduce, []string{key}, c.who, strconv.FormatInt(whoLasts.Milliseconds(), 10)).Error()
}

// sayAgain says it again while the client uses a name.
func (c *client) sayAgain(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sites) > 0 {
		c.servers.Spawn(c.introduce)
		c.servers.Timers.Before(&c.again, now.Add(whoEvery))
	}
}
