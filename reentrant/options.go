package reentrant

import (
	"time"

	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Mutex] is asked for and held.
type Option = waitqueue.Option

// WithLease sets for how long a hold lasts unless it is renewed, which the library does at a third of
// it: how long the others wait if the holder dies. The default is [lease.DefaultLease]. It has
// nothing to do with how long a call may wait: that is its context's.
func WithLease(d time.Duration) Option { return waitqueue.WithLease(d) }

// WithMaxHold ends a hold after d at the latest, renewed or not: its context ends with the cause
// [lease.ErrMaxHold], and the next in the queue holds. The default is no such end.
func WithMaxHold(d time.Duration) Option { return waitqueue.WithMaxHold(d) }

// WithPriority gives calls a head start of so many steps of [waitqueue.PriorityStep]: a call with
// priority p overtakes those of priority 0 that came at most p steps before it, so nobody starves. The
// default is 0; a negative p lets others pass.
func WithPriority(p int) Option { return waitqueue.WithPriority(p) }

// WithReplicas lets a call return a hold only when n replicas have acknowledged it within timeout; otherwise it is
// given back, and the error wraps [lease.ErrReplicas]. See [waitqueue.WithReplicas].
func WithReplicas(n int, timeout time.Duration) Option { return waitqueue.WithReplicas(n, timeout) }

// WithSafeRestart lets a call return a hold only from a server that cannot have forgotten another's, because it has
// run for longer than a lease or came up with its data. See [waitqueue.WithSafeRestart].
func WithSafeRestart() Option { return waitqueue.WithSafeRestart() }
