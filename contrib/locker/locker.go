package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// A Mutex is a lock that a [Locker] can be made of: of package fairlock, or of another that has the same handle.
type Mutex interface {
	Name() string
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
}

// ErrNotLocked: Unlock was called while the lock was not held.
var ErrNotLocked = errors.New("not locked")

// An Error is what Lock and Unlock panic with.
type Error struct {
	Op   string // lock, try lock or unlock
	Name string // of the lock
	Err  error  // why: the error of the lock, lease.ErrLost with its cause, or ErrNotLocked
}

func (e *Error) Error() string { return fmt.Sprintf("locker: %s %q: %v", e.Op, e.Name, e.Err) }

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// releaseTime is how long Unlock waits for a server that does not answer. The lease ends by itself.
const releaseTime = 5 * time.Second

// A Locker is a [sync.Locker]. It is for any number of goroutines, and must not be copied.
type Locker struct {
	ctx    context.Context
	mutex  Mutex
	lost   func(error)
	inside chan struct{} // has a token while one goroutine holds, or waits in Redis

	mu   sync.Mutex // guards held
	held *lease.Lease
}

var _ sync.Locker = (*Locker)(nil)

// An Option changes how a [Locker] behaves.
type Option func(*Locker)

// WithLoss has Unlock tell a loss to f, and return, where it would panic otherwise. f gets an [*Error] for which
// errors.Is(err, lease.ErrLost) holds.
func WithLoss(f func(error)) Option { return func(l *Locker) { l.lost = f } }

// New makes a Locker of m. ctx bounds every wait: where it ends, Lock panics. It does not end a hold.
func New(ctx context.Context, m Mutex, opts ...Option) *Locker {
	l := &Locker{ctx: ctx, mutex: m, inside: make(chan struct{}, 1)}
	for _, o := range opts {
		o(l)
	}
	return l
}

// Lock waits its turn and holds.
//
// It panics with an [*Error] if the lock cannot be had: the context of New has ended, the client was closed, or Redis has
// an error that no retry mends. The lock is not held then.
func (l *Locker) Lock() {
	select {
	case l.inside <- struct{}{}:
	case <-l.ctx.Done():
		l.fail("lock", l.whyEnded())
	}
	if l.ctx.Err() != nil { // A select that could do both chooses by chance.
		<-l.inside
		l.fail("lock", l.whyEnded())
	}
	held, err := l.mutex.Lock(l.ctx)
	if err != nil {
		<-l.inside
		l.fail("lock", err)
	}
	l.keep(held)
}

// TryLock holds if nobody does and nobody waits, and reports whether it does, as sync.Mutex's TryLock. It panics as Lock
// does, but not because others hold.
func (l *Locker) TryLock() bool {
	select {
	case l.inside <- struct{}{}:
	default:
		return false
	}
	held, err := l.mutex.TryLock(l.ctx)
	if err != nil {
		<-l.inside
		if errors.Is(err, lease.ErrBusy) {
			return false
		}
		l.fail("try lock", err)
	}
	l.keep(held)
	return true
}

// Unlock gives the lock back. Any goroutine may call it.
//
// It panics with an [*Error] if the Locker is not locked (ErrNotLocked), and if the lock was lost in the meantime
// (lease.ErrLost), unless [WithLoss] has taken that over; in the latter case it is unlocked all the same. A server that
// does not confirm is no reason to panic: the work was done in time, and the lease ends by itself.
func (l *Locker) Unlock() {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	if held == nil {
		l.fail("unlock", ErrNotLocked)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), releaseTime)
	defer cancel()
	err := held.Release(ctx)
	<-l.inside
	switch {
	case !errors.Is(err, lease.ErrLost):
	case l.lost != nil:
		l.lost(&Error{Op: "unlock", Name: l.mutex.Name(), Err: err})
	default:
		l.fail("unlock", err)
	}
}

// Context is the context of the present hold, for its holder: it ends when the lock is lost, with a cause that says why, and at
// Unlock. While nobody holds by this Locker it is a context that has ended with [ErrNotLocked] as its cause.
func (l *Locker) Context() context.Context {
	if held := l.Lease(); held != nil {
		return held.Context()
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	cancel(ErrNotLocked)
	return ctx
}

// Lease is the present hold, for its fencing token, or nil while nobody holds by this Locker.
func (l *Locker) Lease() *lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *Locker) keep(held *lease.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
}

// whyEnded is why the context of New has ended.
func (l *Locker) whyEnded() error {
	if cause := context.Cause(l.ctx); !errors.Is(cause, l.ctx.Err()) {
		return fmt.Errorf("%w: %w", l.ctx.Err(), cause)
	}
	return l.ctx.Err()
}

func (l *Locker) fail(op string, err error) {
	panic(&Error{Op: op, Name: l.mutex.Name(), Err: err})
}
