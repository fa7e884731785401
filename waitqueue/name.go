package waitqueue

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Terms are how a primitive asks for a name and holds it.
type Terms struct {
	Lease    time.Duration // how long a hold lasts unless renewed
	MaxHold  time.Duration // after which a hold ends, renewed or not; 0: never
	MaxStall time.Duration // after which a hold ends without progress; 0: never
	MaxWait  time.Duration // after which a call ends that has no hold yet; 0: never
	// QueueLimit is how many may wait for the name when a call comes that has to wait too; 0: any number. Admission refuses
	// calls that would wait for longer than their contexts let them.
	QueueLimit int
	Admission  bool
	Priority   int // head start in steps of PriorityStep
	// Arrival, if not 0, is the place of calls in the order of the queue, in µs of a time that all who use the name
	// agree on, instead of the server's time of their first ask. Priority then has no effect.
	Arrival int64
	// Replicas must acknowledge a hold within ReplicasTimeout before a call returns it; OnDisk: when it is on their disks,
	// and on the master's.
	Replicas        int
	ReplicasTimeout time.Duration
	OnDisk          bool
	// Shared: several may hold at once, by tokens of their own.
	Shared bool
	// SafeRestart: no hold from a server that may have forgotten another's.
	SafeRestart bool
	// History is how many hand-offs of the name Redis keeps; 0: none. It is for protocols with scripts that can.
	History int
	// WithoutRenewal: a hold ends with its lease. It is a MaxHold of Lease.
	WithoutRenewal bool
}

// PriorityStep is what one level of priority is worth: a call overtakes those of the level below that came
// at most so long before it.
const PriorityStep = time.Second

// MaxHistory is how many hand-offs of a name can be kept: some 100 kB.
const MaxHistory = 1000

// maxPriority keeps the head start far below what an arrival can count: 11 days.
const maxPriority = 1_000_000

// A Queue is one name as one client sees it: what a primitive is made of. It is immutable, and cheap to pass on.
type Queue struct{ *binding }

// A binding is what is known of a name before a call. All calls that wait share it.
type binding struct {
	client   *client
	proto    *lua.Protocol
	name     string
	keys     lua.Keys
	terms    Terms
	kind     byte
	permits  int64
	nesting  Nesting
	extras   []string // what its asks say beside what all asks do
	verdicts Verdicts
	held     any   // what a lease's context is asked for, to see that it holds this
	err      error // why it cannot be used

	termsErr error // why it cannot be asked for
}

// Verdicts are a primitive's own errors for what the server may answer.
type Verdicts map[lua.Status]error

// heldKey finds the lease on a lock in a context.
type heldKey struct {
	client *client
	lock   string
}

// Queue binds a protocol to a name. What is wrong with the name or the terms is reported by the first call
// that uses it.
func (c *Client) Queue(p *lua.Protocol, name string, t Terms) Queue {
	q := &binding{client: c.client, proto: p, name: name, kind: lua.Exclusive, permits: 1}
	q.on(t)
	if q.err = checkName(name); q.err == nil {
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
	return Queue{q.with(func(b *binding) { b.kind, b.permits = kind, permits })}
}

// Nested returns the queue with another meaning of calls from within a hold.
func (q Queue) Nested(n Nesting) Queue {
	return Queue{q.with(func(b *binding) { b.nesting = n })}
}

// Says returns the queue with more to say in its asks, as its scripts want it, and with what their answers
// mean.
func (q Queue) Says(v Verdicts, extras ...string) Queue {
	return Queue{q.with(func(b *binding) { b.verdicts, b.extras = v, extras })}
}

// usable is why the queue cannot be asked, if it cannot.
func (q Queue) usable(ctx context.Context) error {
	retry.Given(ctx)
	switch {
	case q.err != nil:
		return q.err
	case q.termsErr != nil:
		return q.termsErr
	case ctx.Err() != nil:
		return &lease.WaitError{Place: -1, Err: retry.WhyEnded(ctx)}
	}
	return nil
}

// On returns the queue with other terms.
func (q Queue) On(t Terms) Queue { return Queue{q.with(func(b *binding) { b.on(t) })} }

func (q *binding) on(t Terms) {
	if t.WithoutRenewal {
		t.MaxHold = t.Lease
	}
	q.terms, q.termsErr = t, t.check()
}

// Refusing returns the queue with a reason why no call can ask for it, where there is one: a primitive's own option.
func (q Queue) Refusing(err error) Queue {
	return Queue{q.with(func(b *binding) { b.termsErr = cmp.Or(b.termsErr, err) })}
}

// Terms returns the terms of the queue.
func (q Queue) Terms() Terms { return q.terms }

// Slot is that of the name in a cluster; elsewhere all names are in one.
func (q Queue) Slot() uint16 {
	if !q.client.servers.Clustered() {
		return 0
	}
	return lua.Slot(q.keys.Lock)
}

// Name returns the name.
func (q Queue) Name() string { return q.name }

// Label returns the name, cut to what an error should show.
func (q Queue) Label() string { return names.Label(q.name) }

func checkName(name string) error {
	if strings.HasPrefix(name, "}") && len(name) <= lease.MaxName {
		return fmt.Errorf("%w: the name begins with a closing brace, so its keys would not share a slot: put something before it", lease.ErrInvalid)
	}
	return names.Check(name, nil)
}

func (t Terms) check() error {
	if t.Lease < lease.MinLease || t.Lease > lease.MaxLease {
		return fmt.Errorf("%w: WithLease: a lease of %v must be from %v to %v", lease.ErrInvalid, t.Lease, lease.MinLease, lease.MaxLease)
	}
	if t.MaxHold != 0 && (t.MaxHold < lease.MinLease || t.MaxHold > lease.MaxLease) {
		return fmt.Errorf("%w: WithMaxHold: a maximum hold of %v must be from %v to %v", lease.ErrInvalid, t.MaxHold, lease.MinLease, lease.MaxLease)
	}
	if t.MaxStall != 0 && (t.MaxStall < lease.MinLease || t.MaxStall > lease.MaxLease) {
		return fmt.Errorf("%w: WithMaxStall: a time without progress of %v must be from %v to %v", lease.ErrInvalid, t.MaxStall, lease.MinLease, lease.MaxLease)
	}
	if n := t.QueueLimit; n < 0 || n > lease.MaxQueueLimit {
		if n < 0 {
			n++ // As it was given: 0 is none here.
		}
		return fmt.Errorf("%w: WithQueueLimit: a limit of %d must be from 1 to %d", lease.ErrInvalid, n, lease.MaxQueueLimit)
	}
	if t.Priority > maxPriority || t.Priority < -maxPriority {
		return fmt.Errorf("%w: WithPriority: a priority of %d must be from %d to %d", lease.ErrTooLarge, t.Priority, -maxPriority, maxPriority)
	}
	if t.History < 0 || t.History > MaxHistory {
		return fmt.Errorf("%w: WithHistory: %d hand-offs must be from 0 to %d", lease.ErrTooLarge, t.History, MaxHistory)
	}
	if t.Arrival < 0 {
		return fmt.Errorf("%w: an arrival before 1970", lease.ErrInvalid)
	}
	option := "WithReplicas"
	if t.OnDisk {
		option = "WithFsync"
	}
	if t.Replicas < 0 {
		return fmt.Errorf("%w: %s: %d replicas must not be negative", lease.ErrInvalid, option, t.Replicas)
	}
	if t.acks() != (conn.Acks{}) && (t.ReplicasTimeout < time.Millisecond || t.ReplicasTimeout > t.Lease/2) {
		return fmt.Errorf("%w: %s: a time-out of %v must be from 1ms to half the lease of %v", lease.ErrInvalid, option, t.ReplicasTimeout, t.Lease)
	}
	return nil
}

// first returns the lease of a first grant, and whether it ends at the maximum hold.
func (t Terms) first() (lasts time.Duration, phase string) {
	if t.MaxHold > 0 && t.MaxHold <= t.Lease {
		return t.MaxHold.Truncate(time.Millisecond), lua.PhaseFinal
	}
	return t.Lease.Truncate(time.Millisecond), lua.PhaseHeld
}

// DefaultTerms are those of a primitive without options.
func DefaultTerms() Terms { return Terms{Lease: lease.DefaultLease} }

// With returns the terms with the options applied, from the defaults on.
func With[O interface{ Apply(*Terms) }](opts []O) Terms {
	t := DefaultTerms()
	for _, o := range opts {
		o.Apply(&t)
	}
	return t
}

// Unwoken is [lease.ErrUnwoken] with the right that is missing.
func (q Queue) Unwoken() error { return q.unwoken() }

func (q *binding) unwoken() error {
	return fmt.Errorf("%w: the user needs PUBLISH and the wake channels (+publish &%s:*)", lease.ErrUnwoken, q.client.opts.Prefix)
}

// excess says that a ticket asks for more than there is.
func excess(t *ticket, limit string) error {
	return fmt.Errorf("%w: %d permits of %s", lease.ErrTooLarge, t.queue.permits, limit)
}

// Verdict converts a reply that is no success into the error of the primitive.
func (q Queue) Verdict(r *lua.Head) error { return q.verdicts.of(r.Status, r.States) }

// verdict converts a reply that ends the wait of a ticket into an error.
func (t *ticket) verdict(status lua.Status, states []string) error {
	if status == lua.Excess && len(states) > 0 {
		return excess(t, states[0])
	}
	return t.queue.verdicts.of(status, states)
}

func (v Verdicts) of(status lua.Status, states []string) error {
	if err := v[status]; err != nil {
		return err
	}
	state := ""
	if len(states) > 0 {
		state = states[0]
	}
	if status == lua.Mismatch {
		return fmt.Errorf("%w: it was made with %s: state the same here, or wait until nobody has used it for a while", lease.ErrMismatch, state)
	}
	return fmt.Errorf("the server answered %d %q, which is no answer to this request: is a client of another version using the same names?", status, state)
}
