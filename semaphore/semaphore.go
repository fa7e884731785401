// Package semaphore is a fair counting semaphore between processes: a number of permits, each with a lease, so that a
// dead holder's permits come back.
//
// Calls are served strictly in the order in which Redis saw them: a large request at the head waits until
// there is enough for it, and nobody overtakes it meanwhile. A release lets as many heads hold as fit, in
// one script. The queue, the hand-off and the renewal are explained in package waitqueue.
package semaphore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// MaxPermits is the largest number of permits: what Lua can count.
const MaxPermits = 1<<53 - 1

// A Semaphore is the name of a semaphore, as one client sees it. It holds no state, and may be used by
// several goroutines at once.
type Semaphore struct {
	queue   waitqueue.Queue
	permits int64
	key     any   // finds its holds in a context
	err     error // why it cannot be used
}

// New names a semaphore and states how many permits it has. Nothing is sent; a name, an option or a number
// that cannot be used is reported by the first call.
//
// The first client that uses the semaphore makes it. Where clients state different numbers, the newest client's counts, by
// the server's time at its Dial, from its first request on: so a rollout changes the number, up or down, while the old
// processes go on. Older clients go by the new number without an error. Each client that sees two numbers logs so once a
// name, and counts it ([observe.Differs], Stats.Differs). If the server's clock has stepped back between the Dial of an
// old client and the Dial of a new one, the old one counts as the newer once the clock has come to its Dial again. A
// number that
// a client states does not undo a [Semaphore.Resize], unless the newest client before has stated another one. A program that
// changes its number while it runs calls Resize: the number that a client states first is what it is known for.
//
// With fewer permits than are held nobody loses any; nothing is granted until enough has come back. A waiter for more than
// there are gets an error that wraps [lease.ErrTooLarge].
//
// A semaphore that nobody holds or waits for is forgotten after a minute, and made anew by its next use; while its number is
// another than the newest client states, after 30 days, a day more or less.
func New(c *headwaiter.Client, name string, permits int64, opts ...Option) *Semaphore {
	terms := waitqueue.With(opts)
	terms.Shared = permits > 1
	q := (*waitqueue.Client)(c).Queue(lua.Semaphore, name, terms).Nested(waitqueue.Independent).
		Says(nil, strconv.FormatInt(permits, 10))
	return &Semaphore{queue: q, permits: permits, key: calls.Key(c, name), err: countable("a semaphore", permits)}
}

func countable(what string, permits int64) error {
	switch {
	case permits < 1:
		return fmt.Errorf("%w: %s of %d permits: at least 1 is needed", lease.ErrInvalid, what, permits)
	case permits > MaxPermits:
		return fmt.Errorf("%w: %s of %d permits: at most %d can be counted", lease.ErrTooLarge, what, permits, int64(MaxPermits))
	}
	return nil
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.queue.Name() }

// Acquire waits its turn and returns a lease on n permits. Its Release gives all of them back.
//
// If ctx ends first, Acquire gives up its place and returns an error that wraps the context's and its cause,
// and tells the place in the queue and the time waited ([lease.WaitError]). More than there are is
// refused at once with an error that wraps [lease.ErrTooLarge]; so are waiters for more than a
// Resize leaves. The lease is renewed until it is released or lost, unless [WithoutRenewal] is set.
//
// With a context that comes from holds of the same semaphore, a request may be too large to be served before these end.
// It would wait for itself, so it fails at once with [lease.ErrDeadlock]. That goes by the number in [New], or by a larger one
// that counts. Any other request waits as if it came from elsewhere.
//
// Each hold has its own fencing token. A guard that works by the highest token it has seen is no use for
// more than one permit: there an earlier token does not mean an older hold that has ended. Package fence refuses
// such a token, and goes by the number in [New] for that: state more than 1 where a [Semaphore.Resize] or a newer client may make it so.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (*lease.Lease, error) {
	q, err := s.ask(n)
	if err != nil {
		return nil, s.wrap("acquire", err)
	}
	if err = s.fits(ctx, n); err != nil {
		return nil, s.wrap("acquire", err)
	}
	l, err := s.note(ctx, n, q.Acquire)
	return l, s.wrap("acquire", err)
}

// fits is why a request can never be served, because of what its context holds already.
func (s *Semaphore) fits(ctx context.Context, n int64) error {
	calls.Given(ctx)
	own := calls.Permits(ctx, s.key)
	if own == 0 || n <= s.permits-own {
		return nil
	}
	info, err := s.Inspect(ctx) // There may be more by now. If there is no answer, the request finds out why.
	if err != nil || n <= info.Limit-own || n > info.Limit {
		return nil
	}
	return fmt.Errorf("%w: %d permits of %d are asked for in addition to %d", lease.ErrDeadlock, n, info.Limit, own)
}

// note makes a call for n permits, so that calls from within the hold are known for such.
func (s *Semaphore) note(ctx context.Context, n int64, call func(context.Context) (*lease.Lease, error)) (*lease.Lease, error) {
	calls.Given(ctx)
	l, _, err := calls.Note(ctx, s.key, func(ctx context.Context) (*lease.Lease, int64, error) {
		l, err := call(ctx)
		return l, n, err
	})
	return l, err
}

// TryAcquire returns a lease on n permits if that many are free and nobody waits, and an error that wraps
// [lease.ErrBusy] otherwise: unlike the tryAcquire of Java's Semaphore it never overtakes a
// waiter.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (*lease.Lease, error) {
	q, err := s.ask(n)
	if err != nil {
		return nil, s.wrap("try acquire", err)
	}
	l, err := s.note(ctx, n, q.Try)
	return l, s.wrap("try acquire", err)
}

// Do waits for n permits, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns
// what f returned, joined with the loss if the permits were lost before f came back.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (s *Semaphore) Do(ctx context.Context, n int64, f func(context.Context) error) error {
	return lease.Do(ctx, func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, n) }, f)
}

// Drain returns a lease on all permits that are free, and their number, and an error that wraps
// [lease.ErrBusy] if there are none or somebody waits.
func (s *Semaphore) Drain(ctx context.Context) (*lease.Lease, int64, error) {
	if s.err != nil {
		return nil, 0, s.wrap("drain", s.err)
	}
	calls.Given(ctx)
	l, n, err := calls.Note(ctx, s.key, s.queue.For(wire.Permit, 1).Drain)
	return l, n, s.wrap("drain", err)
}

func (s *Semaphore) ask(n int64) (waitqueue.Queue, error) {
	if s.err != nil {
		return s.queue, s.err
	}
	return s.queue.For(wire.Permit, n), countable("a request", n)
}

// Available returns how many permits are free. It is less than 0 where more are held than a Resize left. Those
// who wait come first, so a try for that many may fail.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	info, err := s.Inspect(ctx)
	if err != nil {
		return 0, err
	}
	return info.Limit - info.Used, nil
}

// Resize changes the number of permits for all clients, whatever number they state in [New]. More permits go to the waiters,
// at once. Fewer take nothing from the holders: permits that come back are dropped until the new number is reached. A waiter
// for more than the new number is refused, at once or when its client polls next.
//
// The number counts until a client that is newer than all before states another number than the newest of them did. With an
// error that wraps [lease.ErrOutcomeUnknown] it may have been done or not; to call it again does no harm. With
// [lease.ErrUnwoken] it is done, and the waiters find that out by themselves. [lease.ErrMismatch]: the number cannot change,
// as it stands for the stripes of package striped.
func (s *Semaphore) Resize(ctx context.Context, permits int64) error {
	err := s.err
	if err == nil {
		err = countable("a semaphore", permits)
	}
	if err == nil {
		err = s.resize(ctx, permits)
	}
	return s.wrap("resize", err)
}

func (s *Semaphore) resize(ctx context.Context, permits int64) error {
	r, err := waitqueue.Call(ctx, s.queue, lua.Resize, 0, func(a waitqueue.Attempt) []string {
		return []string{strconv.FormatInt(permits, 10), a.Floor, a.Counted}
	})
	switch {
	case err != nil:
		return err
	case r.Has(wire.Unwoken):
		return s.queue.Unwoken()
	case r.Status == wire.Mismatch:
		return fmt.Errorf("%w: it stands for something whose number cannot change, as the stripes of package striped", lease.ErrMismatch)
	case r.Status != wire.Done:
		return s.queue.Verdict(&r)
	}
	return nil
}

// Inspect tells who holds permits and who waits. It takes no place in any order.
func (s *Semaphore) Inspect(ctx context.Context) (lease.Info, error) {
	if s.err != nil {
		return lease.Info{}, s.wrap("inspect", s.err)
	}
	info, err := s.queue.Inspect(ctx, strconv.FormatInt(s.permits, 10))
	return info, s.wrap("inspect", err)
}

// ForceRelease frees the hold with a token, which Inspect tells; its context ends with the cause [lease.ErrForced]. A
// token of 0 is [lease.ErrInvalid]: several may hold at once. The holder is told at once if it has held for 250 ms, else by its next renewal, and may
// act until then. [lease.ErrNotHeld]: nobody held with that token. [lease.ErrUnwoken]: it is free, and the waiters find that
// out by themselves.
func (s *Semaphore) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := s.queue.ForceRelease(ctx, token)
	return w, s.wrap("force release", err)
}

func (s *Semaphore) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("semaphore: %s %q: %w", verb, s.queue.Label(), err)
}
