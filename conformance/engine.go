package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// An Engine is what a run is about: how to get a client, what is promised, and how long things take.
type Engine struct {
	// Dial returns a new client, with an identity and connections of its own, as another process would have.
	// What it starts ends with the client's Close. Where it fails it ends the test.
	Dial func(t testing.TB) Client

	// Fair: calls are served in the order in which they came, over all clients, and a try overtakes nobody who
	// waits. The objects must be [Waits], or that cannot be shown.
	Fair bool
	// Fenced: the token of a hold is above those of all earlier holds of the same name.
	Fenced bool
	// Told: the context of a hold that is lost ends, before its lease would, with a cause that is
	// [lease.ErrLost]; and where the client was cut off, before anybody else holds. The objects must be [Breaks]
	// or the client have a Cut.
	Told bool
	// Wanted: a holder that asks for it is told when somebody waits ([lease.Lease.Wanted]). Without it the channel is nil.
	Wanted bool
	// Remembers: an exclusive hold is told how the one before it ended ([lease.Lease.Previous]). Without it that is unknown.
	Remembers bool

	// Lease is the shortest that the engine keeps alive on a machine that is busy with tests; the default is
	// 3 s. Cases that wait for the end of one ask for it, all others for a lease of several times Patience. A run
	// lasts a little longer than this.
	Lease time.Duration
	// Patience is how long a case waits for what must come, in addition to the leases that have to end before. It should
	// be more than enough: only what fails takes as long. The default is 20 s.
	Patience time.Duration

	Errors Errors
}

// Errors are what the engine's errors wrap, as errors.Is tells.
type Errors struct {
	Busy   error // a try found the lock held, or others waiting for it; needed
	Closed error // the client was closed; needed

	// Deadlock: the context comes from a hold of the same mutex. Upgrade: it comes from a hold for reading, and
	// asks for writing. Where they are nil that is not told, and the cases are not run.
	Deadlock, Upgrade error

	// Name: the name cannot be used. TooLarge: the name is too long, or a count above what there is. Unset: the
	// latch is not set. Broken: the barrier is broken. Where they are nil any error will do.
	Name, TooLarge, Unset, Broken error
}

// A Client makes objects, which are names: nothing is sent. What is nil is not offered. An engine whose leases
// belong to the client may take no notice of those it is asked for; then Engine.Lease is how long they are.
type Client struct {
	Mutex     func(name string, lease time.Duration) Mutex
	Reentrant func(name string, lease time.Duration) Reentrant
	RWLock    func(name string, lease time.Duration) RWLock
	Semaphore func(name string, permits int64, lease time.Duration) Semaphore
	Latch     func(name string) Latch
	Barrier   func(name string, parties int, lease time.Duration) Barrier

	// Limited is a Mutex whose queue has room for that many waiters: other calls fail with [lease.ErrQueueFull]. Nil where no
	// queue has a limit.
	Limited func(name string, waiters int, lease time.Duration) Mutex
	// Kept is a Mutex that its client keeps between two calls, until others want it. Nil where none is.
	Kept func(name string, lease time.Duration) Mutex
	// Adopt takes over the hold of a Mutex that was handed over, by its text. Nil where no hold can be handed over.
	Adopt func(ctx context.Context, text string, lasts time.Duration) (*lease.Lease, error)

	// Close ends waits with Errors.Closed and holds as lost, gives back what is held and ends what runs in the
	// background. A second call does nothing and returns nil.
	Close func(ctx context.Context) error
	// Cut ends the client's connections for good and lets it make no others, as if its machine had lost the
	// network: the engine learns nothing more from it, nor it from the engine. Nil where that cannot be done.
	Cut func()
	// Silence loses all that is sent between the client and the engine from then on. No connection ends of it, and new
	// ones can be made, as with a server that hangs. Nil where that cannot be done.
	Silence func()
}

// A Mutex is the name of a lock that one at a time holds.
type Mutex interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
	// Do calls f with a context that ends with the hold and with ctx, and releases, also if f panics. It returns
	// what f did, joined with the loss if there was one.
	Do(ctx context.Context, f func(context.Context) error) error
}

// A Reentrant is the name of a lock that is entered again by a call whose context comes from a hold of it.
type Reentrant interface {
	Mutex
	// HoldCount is how many leases there are on the hold that ctx comes from.
	HoldCount(ctx context.Context) int
}

// An RWLock is the name of a lock that one holds for writing, or several for reading.
type RWLock interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
	RLock(ctx context.Context) (*lease.Lease, error)
	TryRLock(ctx context.Context) (*lease.Lease, error)
}

// A Semaphore is the name of a number of permits.
type Semaphore interface {
	Acquire(ctx context.Context, n int64) (*lease.Lease, error)
	TryAcquire(ctx context.Context, n int64) (*lease.Lease, error)
	// Do is Do of a [Mutex], with n permits.
	Do(ctx context.Context, n int64, f func(context.Context) error) error
	Available(ctx context.Context) (int64, error)
}

// A Latch is the name of a count; all who wait go on when nothing is left of it.
type Latch interface {
	TrySetCount(ctx context.Context, n int64) (bool, error)
	CountDown(ctx context.Context) (remaining int64, err error)
	Count(ctx context.Context) (int64, error)
	Wait(ctx context.Context) error
}

// A Barrier is the name of a place where a number of parties meet.
type Barrier interface {
	// Await returns in which place the call came: the first is the number of parties less 1, the last 0.
	Await(ctx context.Context) (index int, err error)
	Reset(ctx context.Context) error
}

// What an object may be in addition: a run asks for it, and sees more where it is there.
type (
	// Waits tells how many calls of all clients wait for the name, as far as the engine knows of them. A latch
	// may count clients instead.
	Waits interface {
		Waiting(ctx context.Context) (int, error)
	}
	// Breaks takes all holds of the name away from their owners, by force.
	Breaks interface {
		Break(ctx context.Context) error
	}
	// Downgrades turns a lease for writing into one for reading.
	Downgrades interface {
		Downgrade(ctx context.Context, l *lease.Lease) error
	}
	// Resizes changes the number of permits.
	Resizes interface {
		Resize(ctx context.Context, permits int64) error
	}
)
