package election

import (
	"time"

	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a candidate of an [Election] campaigns and leads.
type Option = waitqueue.Option

// WithLease sets for how long a leadership lasts unless it is renewed, which the library does at a third of it: how
// long there is no leader if the present one dies. The default is [lease.DefaultLease].
func WithLease(d time.Duration) Option { return waitqueue.WithLease(d) }

// WithMaxHold ends a leadership after d at the latest, renewed or not: its context ends with the cause
// [lease.ErrMaxHold], and the next candidate leads. The default is no such end.
func WithMaxHold(d time.Duration) Option { return waitqueue.WithMaxHold(d) }

// WithPriority gives a candidate a head start of so many steps of [waitqueue.PriorityStep]; see there. The default is 0.
func WithPriority(p int) Option { return waitqueue.WithPriority(p) }

// WithReplicas lets Campaign return only when n replicas have acknowledged the leadership within timeout; otherwise it
// is given back, and the error wraps [lease.ErrReplicas]. See [waitqueue.WithReplicas].
func WithReplicas(n int, timeout time.Duration) Option { return waitqueue.WithReplicas(n, timeout) }

// WithSafeRestart lets Campaign return only with a server that cannot have forgotten another leader. See
// [waitqueue.WithSafeRestart].
func WithSafeRestart() Option { return waitqueue.WithSafeRestart() }
