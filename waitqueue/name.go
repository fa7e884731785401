package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// DefaultTerms are the terms of a primitive without options.
func DefaultTerms() Terms { return Terms{Lease: lease.DefaultLease} }

// With returns the terms with the options applied, from the defaults on.
func With[O option.Any](opts []O) Terms {
	return option.Apply(DefaultTerms(), opts)
}

// A Queue is one name as one client sees it: what a primitive is made of. It is immutable, and cheap to pass on.
type Queue struct{ *binding }

// A binding is what is known of a name before a call. All waiting calls share it.
type binding struct {
	client   *client
	proto    *lua.Protocol
	name     string
	keys     lua.Keys
	terms    Terms
	asks     core.Options // what the calls ask for
	nesting  Nesting
	joint    bool     // its calls have more to do than to hold the name
	extras   []string // what its asks say in addition to what all asks say
	verdicts Verdicts
	held     any   // what a lease's context is asked for, to see that it holds this
	err      error // why it cannot be used

	termsErr error // why it cannot be asked for
}

// heldKey finds the lease on a lock in a context.
type heldKey struct {
	client *client
	lock   string
}

// Queue binds a protocol to a name. What is wrong with the name or the terms is reported by the first call
// that uses it. Without a client it panics.
func (c *Client) Queue(p *lua.Protocol, name string, t Terms) Queue {
	if c == nil || c.client == nil {
		panic("headwaiter: nil client")
	}
	q := &binding{client: c.client, proto: p, name: name, asks: core.Options{Kind: wire.Exclusive, Permits: 1}}
	q.on(t)
	if q.err = names.CheckTag(name); q.err == nil {
		q.keys = p.Keys(c.opts.Prefix, name)
		q.held = heldKey{c.client, q.keys.Lock}
	}
	return Queue{q}
}

// with returns the binding with a change.
func (q *binding) with(change func(b *binding)) *binding {
	b := *q
	change(&b)
	return &b
}

// For returns the queue for calls of another kind, and for a number of permits.
func (q Queue) For(kind byte, permits int64) Queue {
	return Queue{q.with(func(b *binding) { b.asks.Kind, b.asks.Permits = kind, permits })}
}

// Nested returns the queue with another meaning of calls from within a hold.
func (q Queue) Nested(n Nesting) Queue {
	return Queue{q.with(func(b *binding) { b.nesting = n })}
}

// Unreturned returns the queue for calls that have more to do once they hold: the time without progress ([Terms].MaxStall) begins
// with [Returned].
func (q Queue) Unreturned() Queue { return Queue{q.with(func(b *binding) { b.joint = true })} }

// Says returns the queue with more to say in its asks, as its scripts want it, and with what their answers
// mean. In a dated protocol they also say when the client was made, unless what they say is fixed.
func (q Queue) Says(v Verdicts, extras ...string) Queue {
	if q.proto.Dated && !q.terms.Fixed {
		extras = append(extras, q.client.made)
	}
	return Queue{q.with(func(b *binding) { b.verdicts, b.extras = v, extras })}
}

// usable is why no call can use the queue, if there is a reason.
func (q Queue) usable(ctx context.Context) error {
	calls.Given(ctx)
	switch {
	case q.err != nil:
		return q.err
	case q.termsErr != nil:
		return q.termsErr
	}
	begun := time.Now()
	err := q.settle(ctx)
	if ctx.Err() != nil {
		e := &lease.WaitError{Place: -1, Err: calls.WhyEnded(ctx), Unanswered: errors.Is(err, lease.ErrUnavailable)}
		if err != nil { // Else there was nothing to wait for.
			e.Waited = time.Since(begun)
		}
		return e
	}
	return err
}

// On returns the queue with other terms.
func (q Queue) On(t Terms) Queue { return Queue{q.with(func(b *binding) { b.on(t) })} }

func (q *binding) on(t Terms) {
	if t.WithoutRenewal {
		t.MaxHold = t.Lease
	}
	q.terms, q.termsErr = t, t.check()
	q.asks.Vote, q.asks.Renewal, q.asks.MaxHold, q.asks.MinHold = t.Vote, t.Lease.Truncate(time.Millisecond), t.MaxHold, t.MinHold
	q.asks.WithoutRenewal, q.asks.Remember = t.WithoutRenewal, t.Remember
}

// Refusing returns the queue with a reason why its calls fail, if there is one: a primitive's own option.
func (q Queue) Refusing(err error) Queue {
	return Queue{q.with(func(b *binding) { b.termsErr = cmp.Or(b.termsErr, err) })}
}

// tellsNothing reports whether holds are not told how the one before ended, because several may hold: a semaphore, or readers.
func (q *binding) tellsNothing() bool {
	return q.proto.Dated || q.asks.Kind == wire.Read
}

// Terms returns the terms of the queue.
func (q Queue) Terms() Terms { return q.terms }

// slot is the slot of the name in a cluster; elsewhere all names are in one.
func (q *binding) slot() uint16 { return q.client.servers.SlotOf(q.keys.Lock) }

// Silent reports whether the server does not answer the requests of this client's calls for the name.
func (q Queue) Silent() bool {
	s := q.client.entryOf(q.keys.Entry)
	return s != nil && s.at().silent()
}

// Name returns the name.
func (q Queue) Name() string { return q.name }

// Label returns the name, cut to what an error should show.
func (q Queue) Label() string { return names.Label(q.name) }

// Unwoken is [lease.ErrUnwoken] with the right that is missing.
func (q Queue) Unwoken() error { return q.unwoken() }

func (q *binding) unwoken() error {
	return fmt.Errorf("%w: the user needs PUBLISH and the wake channels (+publish &%s:*)", lease.ErrUnwoken, q.client.opts.Prefix)
}

// excess is the error of a ticket that asks for more than there is.
func excess(permits int64, limit string) error {
	return fmt.Errorf("%w: %d permits of %s", lease.ErrTooLarge, permits, limit)
}

// explained is an error of the core as its caller is told.
func (q *binding) explained(err error) error {
	if err == lease.ErrUnwoken {
		return q.unwoken()
	}
	return err
}

// Verdict converts a reply that is no success into the error of the primitive.
func (q Queue) Verdict(r *wire.Head) error { return q.verdicts.of(r.Status, r.States) }

// verdict converts a reply that ends the wait of a call into an error.
func (q *binding) verdict(status wire.Status, states []string) error {
	if status == wire.Excess && len(states) > 0 {
		return excess(q.asks.Permits, states[0])
	}
	return q.verdicts.of(status, states)
}

// Seen is the name of the queue as [Wiring.InspectAll] wants it.
func (q Queue) Seen() outside.Name {
	return outside.Name{Proto: q.proto, Keys: q.keys, History: q.terms.History, Err: q.err}
}

// Inspect tells who holds and who waits. It changes nothing, and takes no place in any order. The arguments are
// what the script wants in addition to the number of tickets to tell.
func (q Queue) Inspect(ctx context.Context, args ...string) (lease.Info, error) {
	calls.Given(ctx)
	if q.err != nil {
		return lease.Info{}, q.err
	}
	if err := q.settle(ctx); err != nil {
		return lease.Info{}, err
	}
	return outside.Of(q.client.servers, false).Inspect(ctx, q.Seen(), args)
}

// ForceRelease frees the name whoever holds it, and lets the next in the queue hold. The holder is told:
// its context ends with the cause [lease.ErrForced]: at once if the hold is older than a quarter of a second, since from then
// on its client listens, else with the next renewal. Until then it may still act as the holder, so what it protects should
// look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: what was seen is what is freed. Where several may hold it
// is needed, and 0 is [lease.ErrInvalid]; the hold is looked for among the 10,000 whose leases end first. It returns
// the client and the ticket of what it freed; [lease.ErrNotHeld] if there was nothing to free, [lease.ErrOtherToken] if it is held with another token.
//
// Readers that hold together share a token: then it is [lease.ErrInvalid]; [Queue.ForceReleaseHolder] takes the ticket.
func (q Queue) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	return q.free(ctx, lease.Holder{Token: token})
}

// ForceReleaseHolder is [Queue.ForceRelease] of the very hold that Inspect has shown: by its ticket where several may
// hold, else by its token. If Inspect showed no holder it is [lease.ErrInvalid]: the present holder was not seen.
func (q Queue) ForceReleaseHolder(ctx context.Context, h lease.Holder) (lease.Holder, error) {
	if q.err == nil && h.Token == 0 {
		q.err = fmt.Errorf("%w: no hold was seen", lease.ErrInvalid)
	}
	return q.free(ctx, h)
}

func (q Queue) free(ctx context.Context, h lease.Holder) (lease.Holder, error) {
	calls.Given(ctx)
	if q.err != nil {
		return lease.Holder{}, q.err
	}
	if err := q.settle(ctx); err != nil {
		return lease.Holder{}, err
	}
	c := q.client
	freed, unwoken, err := outside.Of(c.servers, false).Free(ctx, q.Seen(), h, c.highest, func(n *conn.Node, a conn.Attempt, r wire.Head, token uint64) {
		c.observeHeader(n, a, q.proto, q.name, r, token)
	})
	if unwoken {
		err = q.Unwoken()
	}
	return freed, err
}
