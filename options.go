package headwaiter

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// An Option is an option of all locks: packages fairlock, striped, reentrant, rwlock, semaphore, multilock, election and
// redlock. Options of one slice are shared by way of [WithAll]:
//
//	ours := []headwaiter.Option{headwaiter.WithLease(time.Minute), headwaiter.WithMaxWait(5 * time.Second)}
//	orders := fairlock.New(client, "orders:42", headwaiter.WithAll(ours), fairlock.WithCohort(8))
//	pool := semaphore.New(client, "pool", 10, headwaiter.WithAll(ours))
//
// Where a primitive cannot honour an option, the call does not compile. Options of one primitive are in its package.
type Option interface{ option.Lock }

// A QueueOption is an option of the locks that have their queue on one server: those of an [Option], except redlock.
type QueueOption interface{ option.OneServer }

// WithAll makes one option of a slice. It is for the primitives that can honour what the type of the slice says:
// a []Option, a []QueueOption, or a slice of one primitive's options. The last one counts where two set the same.
func WithAll[O option.Any](opts []O) O { return option.Join(opts) }

// WithLease sets for how long a hold lasts unless it is renewed, which the library does at a third of it: how long the
// others wait if the holder dies. It is for all locks and for package barrier: there it is how long a silent party keeps its
// place. All who use a name should state the same. d is from [lease.MinLease] to 365 days; the default is
// [lease.DefaultLease]. It does not limit waiting; the context does.
func WithLease(d time.Duration) option.Lease {
	return option.Set(func(t *waitqueue.Terms) { t.Lease = d })
}

// WithMaxHold ends a hold after d at the latest, renewed or not: its context ends with the cause
// [lease.ErrMaxHold], and the next in the queue holds. d is from [lease.MinLease] to 365 days. The default, and 0, is no such end.
func WithMaxHold(d time.Duration) Option {
	return option.Set(func(t *waitqueue.Terms) { t.MaxHold = d })
}

// WithMinHold keeps the name taken for at least d from the grant, by the server's time, once a call has returned the hold:
// whatever its owner does then. Release, Unlock, Close and a loss before that end the lease and its context as always, but
// nobody gets the name: it rests until d is over, also if the process dies. Then the next in the queue holds. So a job that
// several processes start at about the same time runs once: take its lock by TryLock with a d of most of the time between two
// runs. A try meanwhile fails with a [lease.BusyError] that says until when, and Inspect tells it; of permits Inspect alone.
//
// What no work was done with frees at once: where the caller gave up, too few replicas acknowledged ([lease.ErrReplicas]), or
// a multilock did not get all its names. A release by force frees the name too, also while it rests. A hold that is handed
// over takes its time along. After entering again the release of the last lease counts, and the d of the call that got the hold.
// A maximum hold that is shorter ends the hold, and the name rests. A multilock and LockEach tell the server when they have all
// that they are going to have: until then a process that dies leaves its names for their leases alone.
//
// It is for packages fairlock, striped, reentrant, multilock and semaphore, whose permits stay taken, and costs a round trip a
// hold. Processes need not state the same d: each hold has its own. d is from [lease.MinLease] to 365 days; with
// fairlock.WithCohort and WithKeep calls fail with [lease.ErrInvalid]. The default, and 0, is not to rest.
func WithMinHold(d time.Duration) option.MinHold {
	return option.Set(func(t *waitqueue.Terms) { t.MinHold = d })
}

// WithPrevious keeps for d how a hold ended that was not released, so that the next one within d after its lease still learns it
// from [lease.Lease.Previous]. Without it Redis knows for about a minute, and then the next is told [lease.EndingUnknown]. A hold that
// is released leaves nothing.
//
// It is for packages fairlock, striped, reentrant, multilock and election, and counts for the holds of the processes that state
// it: state it wherever a hold can die. It costs a round trip a hold, because the server is told before the call returns
// (Campaign of package election: at once after it), and each renewal is a request of its own. The key lives for d longer than the
// lease. d is from [lease.MinLease] to 365 days; with fairlock.WithCohort and WithKeep calls fail with [lease.ErrInvalid]. The
// default, and 0, is the minute.
func WithPrevious(d time.Duration) option.Previous {
	return option.Set(func(t *waitqueue.Terms) { t.Remember = d })
}

// WithMaxStall ends a hold when nobody calls [lease.Lease.Progress] on it for d, though the client lives and renews it: a
// worker that hangs keeps nobody else out. The time begins when the call returns, also one for several names. The hold's
// context ends with the cause [lease.ErrStalled], and the next in the queue holds. d is at least [lease.MinLease]. The
// default, and 0, is no such end.
func WithMaxStall(d time.Duration) Option {
	return option.Set(func(t *waitqueue.Terms) { t.MaxStall = d })
}

// WithMaxWait bounds how long a call waits until it holds, also for a server that does not answer. A call that waits
// longer fails with a [lease.WaitError] that wraps [lease.ErrWaitTimeout] and [context.DeadlineExceeded]. It bounds
// neither the hold, nor the work of a Do, nor a call that enters a hold again. It bounds all names of a multilock
// together, the quorum of a redlock, each campaign of an election, and the Wait of package countdown: it is for that and for
// all locks. For a single call the deadline of its context does the same; but the deadline of a Do bounds the work too.
//
// d is at least 1 ms. The default, and 0, is to wait until the context ends.
func WithMaxWait(d time.Duration) option.MaxWait {
	return option.Set(func(t *waitqueue.Terms) { t.MaxWait = d })
}

// WithQueueLimit refuses calls that would have to wait behind n waiters: they fail at once with a [lease.QueueFullError],
// a [lease.ErrQueueFull], and do not stay in the queue. So a name that is asked for too often costs its callers little,
// and its waiters get their turn. A call that gets the hold at once is never refused, nor is a waiter once it is in the queue.
// It is for packages fairlock, striped, reentrant, rwlock and semaphore.
//
// Waiters of all clients count, as Redis has them: readers and writers alike, but not the calls of one client that wait for
// each other by fairlock.WithCohort. The dead do not: before a call is refused they leave the queue. A waiter counts for
// another 50 ms, or n × 500 µs if that is more, after it was seen to live; one that was stopped counts until the server finds
// out. If the client is not subscribed to the name yet, the call looks at the queue twice, and may be refused the second
// time: then the error is a [lease.WaitError] too. n is from 1 to [lease.MaxQueueLimit]. The default is no limit.
func WithQueueLimit(n int) option.QueueLimit {
	if n <= 0 {
		n-- // 0 is none, and is reported too.
	}
	return option.Set(func(t *waitqueue.Terms) { t.QueueLimit = n })
}

// WithPriority gives calls a head start of p seconds: such a call overtakes calls of priority 0 that came at most p seconds
// before it, so nobody starves. p is from -1,000,000 to 1,000,000; a negative p lets others pass. The default is 0.
func WithPriority(p int) Option {
	return option.Set(func(t *waitqueue.Terms) { t.Priority = p })
}

// WithReplicas lets a call return a hold only when n replicas have acknowledged it, which WAIT tells: a hold that n
// replicas know of is not forgotten when one of them takes over. It costs a round trip more a hold, and what the
// replication takes. If fewer have within timeout, the hold is given back, and the error wraps [lease.ErrReplicas] and
// says how many; timeout is from 1 ms to half the lease. The default, and n = 0, is not to ask.
//
// Renewals need the same: a hold ends if fewer than n replicas confirm a renewal before its deadline. With n less than all replicas a second holder after a failover is unlikely, not
// impossible: Sentinel and clusters do not always promote the replica that knows most. See docs/guarantees.md.
func WithReplicas(n int, timeout time.Duration) QueueOption {
	return option.Set(func(t *waitqueue.Terms) { t.Replicas, t.ReplicasTimeout, t.OnDisk = n, timeout, false })
}

// WithFsync is WithReplicas for disks: a call returns a hold only when the master has it in its append-only file on
// disk, and n replicas in theirs, which WAITAOF tells; renewals need the same. So a master that crashes and reads its
// file has forgotten no hold. n may be 0: the master alone.
//
// It wants appendonly yes, Redis 7.2 or newer or Valkey, and +waitaof. With appendfsync everysec, the default, it costs
// up to a second a hold; with always what the disk takes. Of WithReplicas and WithFsync the last one counts.
func WithFsync(n int, timeout time.Duration) QueueOption {
	return option.Set(func(t *waitqueue.Terms) { t.Replicas, t.ReplicasTimeout, t.OnDisk = n, timeout, true })
}

// WithSafeRestart lets a call return a hold only from a server that cannot have forgotten another client's hold: one that
// has run for longer than the lease, or has read its append-only file at its start. With appendfsync everysec that file
// may lack the last second: for that there is [WithFsync]. After a restart without data waiting calls keep their places
// until a lease is over; a try fails with [lease.ErrRestarted]. This is the delayed restart that
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ asks for.
//
// It costs a round trip for the first hold on each connection that the client makes (in a cluster, for each slot), and once
// a day, and wants +info. A client on a caller's connections ([New]) cannot know whether they are still those that they
// were, so there each hold costs that round trip; holds that come at one time share it.
//
// All who use the name should use it, with the same lease. The default is not to ask: then the client that comes first
// after such a restart holds at once.
func WithSafeRestart() QueueOption {
	return option.Set(func(t *waitqueue.Terms) { t.SafeRestart = true })
}
