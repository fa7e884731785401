package fairlock

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// An Outcome is what became of one of several calls: a lease, or the reason why there is none.
//
// It is experimental, as LockEach is.
type Outcome struct {
	Lease *lease.Lease
	Err   error
}

// LockEach asks for all of the locks, in one round trip to each server for up to 512 of them, and waits until each is held or
// has failed. The outcomes are in the order of the locks. LockEach keeps the locks that it has while it waits for the rest. So
// two callers that want the same names can wait for each other until ctx ends. Package multilock gets all of the names or none.
//
// WithCohort and WithKeep have no effect here. A name that comes twice fails the second time, with [lease.ErrDeadlock].
//
// It is experimental, as are TryLockEach, ReleaseEach and Outcome: they may change in any version.
func LockEach(ctx context.Context, locks ...*Mutex) []Outcome {
	return named("lock", locks, waitqueue.AcquireEach(ctx, queues(locks)...))
}

// TryLockEach takes those of the locks that are free and that nobody waits for, in as many round trips as LockEach. The
// outcomes are in the order of the locks; the errors of the others wrap [lease.ErrBusy]. It is experimental, as LockEach is.
func TryLockEach(ctx context.Context, locks ...*Mutex) []Outcome {
	return named("try lock", locks, waitqueue.TryEach(ctx, queues(locks)...))
}

// ReleaseEach releases leases, of locks and of what else this library has on Redis, in as many round trips as LockEach. Nil
// leases are passed over. The errors are in their order, and those of [lease.Lease.Release]. It is experimental, as LockEach is.
func ReleaseEach(ctx context.Context, leases ...*lease.Lease) []error {
	return waitqueue.ReleaseEach(ctx, leases...)
}

func queues(locks []*Mutex) []waitqueue.Queue {
	all := make([]waitqueue.Queue, len(locks))
	for i, m := range locks {
		all[i] = m.queue
	}
	return all
}

func named(what string, locks []*Mutex, came []waitqueue.Outcome) []Outcome {
	all := make([]Outcome, len(came))
	for i, o := range came {
		if all[i] = Outcome(o); o.Err != nil {
			all[i].Err = fmt.Errorf("fairlock: %s %q: %w", what, locks[i].queue.Label(), o.Err)
		}
	}
	return all
}
