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
