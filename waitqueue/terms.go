package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// An Option sets how a primitive asks for its name and holds it.
type Option func(*Terms)

// With returns the terms with the options applied, from the defaults on.
func With(opts []Option) Terms {
	t := Terms{Lease: lease.DefaultLease}
	for _, o := range opts {
		o(&t)
	}
	return t
}

// WithLease sets for how long a hold lasts unless it is renewed, which the library does at a third of
// it: how long the others wait if the holder dies. The default is [lease.DefaultLease]. It has nothing to do with
// how long a call may wait: that is its context's.
func WithLease(d time.Duration) Option {
	return func(t *Terms) { t.Lease = d }
}

// WithMaxHold ends a hold after d at the latest, renewed or not: its context ends with the cause
// [lease.ErrMaxHold], and the next in the queue holds. The default is no such end.
func WithMaxHold(d time.Duration) Option {
	return func(t *Terms) { t.MaxHold = d }
}

// WithPriority gives calls a head start of so many steps of [PriorityStep]: a call with priority p overtakes
// those of priority 0 that came at most p steps before it, so nobody starves. The default is 0; a negative p
// lets others pass.
func WithPriority(p int) Option {
	return func(t *Terms) { t.Priority = p }
}

// WithCohort lets calls of one client that wait for the same lock pass it on among themselves, at most n times in a row
// before the queue is served: without asking Redis, so at the speed of the process. Each hold has a token, a context and
// a release of its own. Among clients the order is kept, but that a call may be overtaken by at most n calls of the client
// that holds. The calls must have the same options. The default is 0: every release serves the queue. With
// [WithMaxHold] it has no effect, nor where several may hold or a hold can be entered again. Inspect tells the first
// token of a hold, and each pass takes the next: a call that would come before the microsecond of its token goes by the
// queue. A client that knows of no step back of the server's clock may overtake by more after one. n is at most
// [MaxCohort].
func WithCohort(n int) Option {
	return func(t *Terms) { t.Cohort = n }
}

// WithReplicas lets a call return a hold only when n replicas have acknowledged it, which WAIT tells: a hold that n
// replicas know of is not forgotten when one of them takes over. It costs a round trip more a hold, and what the
// replication takes. If fewer have within timeout, the hold is given back, and the error wraps [lease.ErrReplicas] and
// says how many; timeout is half the lease at the most. The default is not to ask.
//
// It makes a second holder after a failover unlikely, not impossible: Sentinel and clusters do not always promote
// the replica that knows most. Renewals are not waited for. See docs/guarantees.md.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(t *Terms) { t.Replicas, t.ReplicasTimeout = n, timeout }
}

// WithSafeRestart lets a call return a hold only from a server that cannot have forgotten another's: one that has
// run for longer than the lease, or has read its append-only file at its start. Behind a restart without data a call
// keeps its turn, and others theirs behind it, until a lease is over; a try fails with [lease.ErrRestarted]. This is the
// delayed restart that https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ asks for.
//
// It costs a round trip for the first hold on each connection that the client makes (in a cluster, for each slot), and once
// a day, and wants +info. All who use the name should use it, with the same lease. The default is not to ask: then
// whoever comes first after such a restart holds at once.
func WithSafeRestart() Option {
	return func(t *Terms) { t.SafeRestart = true }
}
