package certmagic

import (
	"context"
	"time"

	"github.com/caddyserver/certmagic"
)

// A Storage is a storage of certmagic with the locks of a [Locker].
type Storage struct {
	certmagic.Storage // all but the locks
	locker            *Locker
}

var (
	_ certmagic.Storage          = Storage{}
	_ certmagic.TryLocker        = Storage{}
	_ certmagic.LockLeaseRenewer = Storage{}
)

// WithLocks returns s with the locks of l in place of its own, which are not used any more.
func WithLocks(s certmagic.Storage, l *Locker) Storage { return Storage{Storage: s, locker: l} }

// Lock is [Locker.Lock].
func (s Storage) Lock(ctx context.Context, name string) error { return s.locker.Lock(ctx, name) }

// TryLock is [Locker.TryLock].
func (s Storage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.locker.TryLock(ctx, name)
}

// Unlock is [Locker.Unlock].
func (s Storage) Unlock(ctx context.Context, name string) error { return s.locker.Unlock(ctx, name) }

// RenewLockLease is [Locker.RenewLockLease].
func (s Storage) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	return s.locker.RenewLockLease(ctx, name, d)
}
