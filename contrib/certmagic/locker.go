package certmagic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
)

// ErrNotLocked: that name is not locked by this Locker.
var ErrNotLocked = errors.New("not locked")

const (
	// prefix keeps these locks apart from others.
	prefix = "certmagic:"
	// maxName is far above the longest domain name, and leaves room for the prefix.
	maxName = 400
)

// A Locker is a certmagic.Locker, and has its two optional interfaces. It is for any number of goroutines.
type Locker struct {
	client *headwaiter.Client
	terms  []fairlock.Option

	mu   sync.Mutex // guards the fields below
	held map[string][]*lease.Lease
	// renewing counts the callers that wait to hold again what they have lost.
	renewing map[*lease.Lease]int
}

var (
	_ certmagic.Locker           = (*Locker)(nil)
	_ certmagic.TryLocker        = (*Locker)(nil)
	_ certmagic.LockLeaseRenewer = (*Locker)(nil)
)

// New returns a Locker whose locks have the given options, such as headwaiter.WithLease: how long what a dead process held
// stays locked. Nothing is sent.
func New(c *headwaiter.Client, opts ...fairlock.Option) *Locker {
	return &Locker{client: c, terms: opts, held: make(map[string][]*lease.Lease), renewing: make(map[*lease.Lease]int)}
}

// Lock waits its turn for name and holds it until Unlock or its loss. If ctx ends first it gives up its place and returns
// an error that wraps the context's. ctx does not end the hold.
func (l *Locker) Lock(ctx context.Context, name string) error {
	held, err := l.mutex(name).Lock(ctx)
	if err != nil {
		return fmt.Errorf("certmagic: %w", err)
	}
	l.keep(name, held)
	return nil
}

// TryLock holds name if nobody does and nobody waits, and reports whether it does. That others do is no error.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	held, err := l.mutex(name).TryLock(ctx)
	if errors.Is(err, lease.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("certmagic: %w", err)
	}
	l.keep(name, held)
	return true, nil
}

// Unlock gives name back, also if ctx has ended. It returns a lease.ErrLost if it was lost before, an error that wraps
// lease.ErrUnconfirmed if no answer came, upon which it ends with its lease, and [ErrNotLocked] for a name that is not
// locked. It is not locked afterwards in any case.
//
// A name does not say who unlocks. So where one caller has lost a lock that another in this process then got, the first
// Unlock is taken for the loser's, unless RenewLockLease waits for the lock again, and a lock is never given back too
// early.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	held := l.take(name)
	if held == nil {
		return fmt.Errorf("certmagic: unlock %q: %w", name, ErrNotLocked)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := held.Release(ctx); err != nil {
		return fmt.Errorf("certmagic: unlock %q: %w", name, err)
	}
	return nil
}

// releaseTime is how long Unlock waits for a server that does not answer.
const releaseTime = 5 * time.Second

// RenewLockLease makes sure that name is locked: certmagic calls it before each attempt to obtain a certificate that has
// failed before. Leases are renewed all the time, whatever duration is asked for, so usually there is nothing to do. A lock
// that was lost is waited for again, as Lock does. For a name that is not locked the error is [ErrNotLocked].
//
// A name does not say who renews either. So where one caller has lost a lock that another in this process then got, the
// hold of the other is taken for its own: it returns nil, and both callers go on.
func (l *Locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	old := l.Lease(name)
	if old == nil {
		return fmt.Errorf("certmagic: renew %q: %w", name, ErrNotLocked)
	}
	if old.Context().Err() == nil {
		return nil
	}
	defer l.renews(old)()
	held, err := l.mutex(name).Lock(ctx)
	if err != nil {
		return fmt.Errorf("certmagic: renew %q: %w: %w", name, context.Cause(old.Context()), err)
	}
	if !l.replace(name, old, held) { // Unlocked meanwhile.
		_ = held.Release(context.WithoutCancel(ctx))
		return fmt.Errorf("certmagic: renew %q: %w", name, ErrNotLocked)
	}
	return nil
}

// Lease is the hold of name in this process, the newest if one that was lost is not unlocked yet, or nil. Its context ends
// at a loss, its token belongs into what a storage can fence.
func (l *Locker) Lease(name string) *lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.held[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (l *Locker) keep(name string, held *lease.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[name] = append(l.held[name], held)
}

// replace puts one hold in the place of another, and reports whether that was there.
func (l *Locker) replace(name string, old, held *lease.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.held[name], old)
	if i >= 0 {
		l.held[name][i] = held
	}
	return i >= 0
}

// renews notes that the caller of a hold that was lost waits for another, until the function that it returns is called.
// Who unlocks meanwhile is somebody else, if there is one.
func (l *Locker) renews(old *lease.Lease) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing[old]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.renewing[old]--; l.renewing[old] == 0 {
			delete(l.renewing, old)
		}
	}
}

// take returns the oldest hold of name whose caller does not wait for another, else the oldest, and forgets it.
func (l *Locker) take(name string) *lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.held[name]
	if len(all) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(all, func(held *lease.Lease) bool { return l.renewing[held] == 0 }))
	held := all[i]
	if l.held[name] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(l.held, name)
	}
	return held
}

func (l *Locker) mutex(name string) *fairlock.Mutex {
	return fairlock.New(l.client, prefix+nameable(name), l.terms...)
}

// nameable is the name as a lock can have it.
func nameable(name string) string {
	if len(name) <= maxName && names.Printable(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256-" + hex.EncodeToString(sum[:])
}
