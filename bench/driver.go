package bench

import "context"

// A Driver is one library under measurement, with the settings it is measured with.
type Driver interface {
	// Name is how tables and JSON lines call it.
	Name() string
	// NewClient makes one instance of the library with connections and an identity of its own, as a
	// separate process would have.
	NewClient(ctx context.Context) (Client, error)
}

// A Client is one instance of the library.
type Client interface {
	// Mutex names a lock. It is called once for each worker, outside what is measured.
	Mutex(name string) Mutex
	// Close ends the client. No lock is held or waited for any more.
	Close(ctx context.Context) error
}

// The kinds of work beside that with a mutex.
const (
	KindReentrant = "reentrant"
	KindSemaphore = "semaphore"
	KindRead      = "read"
	KindLatch     = "latch"
)

// A Family is a Client that has more than a mutex.
type Family interface {
	// Of names what is of another kind, and takes one of its permits as a mutex is taken. permits is how many
	// there are. It returns nil for a kind that it does not have.
	Of(kind string, permits int, name string) Mutex
	// Latch names a latch.
	Latch(name string) Latch
}

// A Latch is one latch as seen by one client.
type Latch interface {
	Set(ctx context.Context, count int64) error
	CountDown(ctx context.Context) error
	Wait(ctx context.Context) error
	// Waiting is how many clients wait.
	Waiting(ctx context.Context) (int, error)
}

// A Mutex is one lock as seen by one client.
type Mutex interface {
	Lock(ctx context.Context) (Hold, error)
}

// A Hold is what a successful Lock returns. A lease of this library is one as it stands.
type Hold interface {
	Release(ctx context.Context) error
	// Token is the fencing token, or 0 where the library has none: then holds are put in order by the time
	// at which Lock returned.
	Token() uint64
}
