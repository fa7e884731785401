package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A Driver is one library under measurement, with the settings it is measured with.
type Driver interface {
	// Name is how tables and JSON lines call it.
	Name() string
	// NewClient makes one instance of the library with connections and an identity of its own, as a
	// separate process would have.
	NewClient(ctx context.Context) (Client, error)
}

// A Sharer is a Driver whose clients can have a connection for commands in common; each still listens on its own. An idle
// connection is asked whether it lives as often as keepAlive says.
type Sharer interface {
	Shared(keepAlive time.Duration) (shared Driver, stop func(), err error)
}

// A Leased is a Client whose locks can have a lease of their own.
type Leased interface {
	Lasting(name string, lease time.Duration) Mutex
}

// A Trier is a Mutex that can be asked without waiting: whether that was refused, as somebody holds it.
type Trier interface {
	Try(ctx context.Context) (refused bool, err error)
}

// A Contender is a driver that takes part in a run, and what has to be known about it.
type Contender struct {
	Name string
	// About is the library with its version and the settings, in a line.
	About string
	// Driver is nil where clients can only live in processes of their own.
	Driver Driver
	// Command makes a process that serves [ServeAgent]'s protocol with clients of this library; nil where there is
	// none.
	Command func() *exec.Cmd
	// Missing is why it cannot take part.
	Missing error
	// OnRedis: what it costs the server is in the counters of the Redis of the run.
	OnRedis bool
	// Pid is the process of the server, where that is not the Redis of the run; 0 where it is not known.
	Pid int
	// Lease is how long the lock of a dead holder lasts; 0 where the server sees the death of a connection.
	Lease time.Duration
	// Warm is how long clients run before they are measured first: a virtual machine compiles what it runs often.
	Warm time.Duration
	// Patient: a call of it cannot be given up.
	Patient bool
	// Fair: it promises to serve calls in their order.
	Fair bool
	// Queue asks Redis how many wait for a name: a command whose reply is the number. Nil where nothing tells.
	Queue func(name string) []string
	// Keys are those in which Redis keeps the queue of a name; where Queue is set.
	Keys func(name string) []string
	// Ours: it is of this library, on Redis. Others are compared in W1 and W4 alone.
	Ours bool
	// Background: nobody waits for the answer to its release.
	Background bool
	// Replaces is the name of the lock in whose place it stands: this project's on another engine, compared with what that offers.
	Replaces string
	// Only are the works that it takes part in, as W4 or as W4 C=2; all if empty.
	Only []string
	// Link is between its clients and their server, as in Work.
	Link string
	// Polls: its waiters ask again and again, so what they wait is no number of round trips.
	Polls bool
}

// takesPart tells whether a work is measured of it.
func (c Contender) takesPart(w Work) bool {
	return c.Missing == nil && c.Link == w.Link && (len(c.Only) == 0 || slices.Contains(c.Only, w.ID) || slices.Contains(c.Only, w.String()))
}

// NewContender is a driver whose clients live in this process.
func NewContender(d Driver) Contender { return Contender{Name: d.Name(), Driver: d, OnRedis: true} }

// A Client is one instance of the library.
type Client interface {
	// Mutex names a lock. It is called once for each worker, outside what is measured.
	Mutex(name string) Mutex
	// Close ends the client. No lock is held or waited for any more.
	Shutdown(ctx context.Context) error
}

// A Burier is a Client that ends what a dead one with an identity has left.
type Burier interface {
	Bury(ctx context.Context, identity string) error
}

// The kinds of work other than with a mutex.
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
	// Sent is how many times calls of Wait of this client have asked the server so far, and how many scripts they have
	// sent it for that and to look again.
	Sent() (asks, scripts uint64)
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

// A Lasting hold tells until when it is certain, and its loss.
type Lasting interface {
	Hold
	Deadline() time.Time
	Context() context.Context
}

// Choose returns those of the given names, in the order of all; all of them if no name is given.
func Choose(all []Contender, names []string) ([]Contender, error) {
	if len(names) == 0 {
		return all, nil
	}
	var found []Contender
	var known []string
	for _, c := range all {
		known = append(known, c.Name)
		if slices.Contains(names, c.Name) {
			found = append(found, c)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("bench: %q: there is %s", name, strings.Join(known, ", "))
		}
	}
	return found, nil
}
