//go:build unix

package crowd

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// Kinds of call.
const (
	Lock      = "lock" // the default
	Reentrant = "reentrant"
	Semaphore = "semaphore"
	Read      = "read"
	Write     = "write"
	Election  = "election" // a campaign; the value is Candidate
)

// Candidate is the value with which the process campaigns.
const Candidate = "child"

// acquire is one call of some primitive.
type acquire func(context.Context) (*lease.Lease, error)

// acquire returns the call of the plan for a name.
func (p Plan) acquire(c *headwaiter.Client, name string) (acquire, error) {
	lasts := headwaiter.WithLease(p.Lease)
	switch p.Kind {
	case Lock, "":
		return fairlock.New(c, name, lasts).Lock, nil
	case Reentrant:
		return entering(reentrant.New(c, name, lasts).Lock, p.Entries), nil
	case Semaphore:
		s := semaphore.New(c, name, p.Permits, lasts)
		return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, max(p.N, 1)) }, nil
	case Read:
		return entering(rwlock.New(c, name, lasts).RLock, p.Entries), nil
	case Write:
		return entering(rwlock.New(c, name, lasts).Lock, p.Entries), nil
	case Election:
		e := election.New(c, name, lasts)
		return func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, Candidate) }, nil
	}
	return nil, fmt.Errorf("no kind %q", p.Kind)
}

// entering turns a call into one that enters its hold that many times more. It returns the first lease.
func entering(lock acquire, more int) acquire {
	return func(ctx context.Context) (*lease.Lease, error) {
		first, err := lock(ctx)
		for range more {
			if err == nil {
				_, err = lock(first.Context())
			}
		}
		return first, err
	}
}
