// Package headwaiter is what a program imports first: it connects to Redis, and has the options that the primitives
// share. A primitive takes the client and a name:
//
//	client, err := headwaiter.DialURL("redis://127.0.0.1:6379")
//	…
//	held, err := fairlock.New(client, "orders:42").Lock(ctx)
//
// Locks are in packages fairlock, reentrant, rwlock, semaphore, multilock, striped and redlock; latches, barriers and
// leaders in countdown, barrier and election. What a lock returns is a [lease.Lease]; the errors are in package lease.
// Packages inspect and doctor look at locks and servers from outside. Modules of their own: contrib/locker makes a
// sync.Locker of a lock, headwaitertest has an embedded server for tests.
package headwaiter

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Client is one instance of the library: an identity, its connections, and what it holds and waits for. It is safe
// for use by several goroutines. A process usually has one for each Redis.
//
// An author of a primitive converts it to a *[waitqueue.Client], which is the same client with other methods.
type Client waitqueue.Client

// ID returns the identity of the client, which its tickets begin with. [Client.Restored] draws another one.
func (c *Client) ID() string { return (*waitqueue.Client)(c).ID() }

// Stats returns what the client has done since it was made.
func (c *Client) Stats() observe.Stats { return (*waitqueue.Client)(c).Stats() }

// Close ends waits and holds and gives back what was held, as [Client.Shutdown] does, for at most 5 s. So it can be deferred. An
// error says what the server did not confirm in that time, which ends with its lease.
func (c *Client) Close() error { return (*waitqueue.Client)(c).Close() }

// Shutdown ends waits with [lease.ErrClosed] and holds with [lease.ErrClientClosed], gives back what was held, and
// closes the connections if they are the client's own. It waits for the server to confirm that, until ctx ends, and
// with the server away for as long as there is something to give back: until the leases are over that the server may
// know of, and a few seconds longer after requests that were not answered. What was not confirmed is an error, and ends
// with its lease. A second call waits for the first, until its own ctx ends, and returns nil when that is over.
//
// On connections of the caller's that are being made at that moment, Shutdown waits for rueidis to give that up, whatever ctx
// says: as long as the time-out of its Dialer or its ConnWriteTimeout. On the client's own it ends that; a DialCtxFn of the
// caller's is to return when its context ends.
func (c *Client) Shutdown(ctx context.Context) error { return (*waitqueue.Client)(c).Shutdown(ctx) }

// Restored tells the client that the image of its process was restored, as from a snapshot of a virtual machine, and that
// another copy of it may run. Call it as the first thing after the restore, in each copy, before anything is locked.
//
// The client draws a new identity ([Client.ID]) and makes new connections. What it held ends with the cause
// [lease.ErrCopied], and calls that wait fail with it. Nothing of that is given back at the server, as it may be the other
// copy's: if there is none, it lasts until its lease is over. Calls that begin later are those of the new identity.
//
// A copy that does not call it is found out when it makes its next connections, which ends the same way.
func (c *Client) Restored() { (*waitqueue.Client)(c).Restored() }

// A Burial is what [Client.Bury] has ended at one name.
type Burial struct {
	Kind  string // of the primitive, as in its keys: lock, semaphore, …
	Name  string
	Holds int // or parties at a barrier
}

// Bury releases what a dead process with this [Options].Identity still holds or waits for, so that others need not wait for its
// leases. Call it from the supervisor that saw the process end. The command "headwaiter bury" does the same.
//
// An invocation, if not empty, limits it to a client that has stated the same [Options].Invocation, so that a late witness
// does not end what the next run holds. It returns what it has ended; found is false if the identity is not known, or another run
// has it. After an error some of it may be ended: call it again. A client that is buried though it lives loses its holds
// with the cause [lease.ErrReplaced].
func (c *Client) Bury(ctx context.Context, identity, invocation string) (ended []Burial, found bool, err error) {
	all, found, err := (*waitqueue.Client)(c).Bury(ctx, identity, invocation)
	for _, b := range all {
		ended = append(ended, Burial(b))
	}
	return ended, found, err
}

// Options is what a client needs to know. Only Redis.InitAddress must be set.
type Options struct {
	// Redis says where the server is and how to log on. The fields that the protocol depends on are set by
	// Dial: one connection for commands, no client-side cache, no retries below the library's own.
	Redis rueidis.ClientOption
	// Prefix begins every key and channel: Prefix:<kind>:{name}. The default is "headwaiter". Clients with
	// different prefixes do not meet. It is printable, without braces, at most 128 bytes.
	Prefix string
	// Name is what operators see of this client, next to its host and process id. The default is the name
	// of the program.
	Name string
	// GrantLease is how long a grant that was sent as a message lasts before its client confirms it by a
	// renewal: the time that a stopped process can hold up the queue. It is from 1 ms to 365 days. The default is 2 s.
	GrantLease time.Duration
	// Linger is how long a subscription is kept after its last use, so that a hot lock does not subscribe
	// for every wait. The default is 5 s, the least 100 ms.
	Linger time.Duration
	// WithoutSkip turns off the counting of subscribers. It is for servers behind a proxy, where PUBSUB
	// NUMSUB says nothing: there a dead waiter costs one grant lease instead of nothing. Where a server refuses PUBSUB to
	// scripts, it is as if set.
	WithoutSkip bool
	// WithoutSubscribe is for proxies and gateways without subscriptions, and includes WithoutSkip. Order and exclusion are
	// as ever; waiters look for their grants, every 2 ms at first, and the more rarely the longer nothing changes and the
	// more are ahead: a hand-off takes some milliseconds, after a long hold up to 0.7 s. A holder learns of a release by
	// force, of waiters (Wanted) and of the recall of a kept lock (fairlock.WithKeep) only with its next renewal or look, up to
	// a second late. A dead waiter costs a grant lease. All clients of a Prefix set it or none: others take these for dead.
	// docs/deploy.md has the cost.
	WithoutSubscribe bool
	// WithoutHello is for proxies that close a connection at a command which they do not know, such as twemproxy. The client
	// speaks RESP2, sends neither HELLO nor CLIENT nor CLUSTER, and does not ask whether the server is a cluster. Dial finds
	// out by itself where HELLO is refused, or answered by the end of the connection; with the option it does not try. Such
	// proxies have no SUBSCRIBE either: set WithoutSubscribe too.
	WithoutHello bool
	// Observer is told what happens to the calls and holds of this client. The default is nobody, which costs nothing.
	Observer observe.Observer
	// Log gets the same as records: what is usual at level debug, what others may have to wait for at info, what
	// operators should look into at warn. Messages are constant; names, times and errors are attributes. A goroutine of the client writes it, so a slow handler holds up no lock; what
	// does not fit into its queue of 1,024 records is counted, and told. What is told after Close has returned is not written. The default is no log.
	Log *slog.Logger
	// HeldTooLong and WaitedTooLong are how long a hold, and the wait of a call, may last before the Observer and the Log
	// are told: then, and again each time that it has doubled. The default is not to look.
	HeldTooLong, WaitedTooLong time.Duration
	// Identity is a name of which the platform promises that at most one process has it at a time: a pod's UID and the name of
	// its container, the pod of a StatefulSet, a unit of systemd on a host. A process that has died then costs the others its
	// restart, not its leases: Dial ends what earlier clients with the identity hold and wait for, at all names, before it
	// returns, or, if a server is silent, later in the background. docs/when-a-holder-dies.md says who can promise that.
	//
	// An earlier client that lives after all loses its holds with the cause [lease.ErrReplaced], by its next renewal or call, and
	// can lock nothing any more; until its local deadline both can act, and fencing tokens alone protect. A second client of
	// one process with the identity is [lease.ErrInvalid], until the first is closed. Without an identity, the default,
	// nothing is sent or stored for it, and a hold lasts for its lease. With one, the first call for a name costs a round
	// trip more, and so does one every 50 s.
	Identity string
	// Invocation tells this run of the program from others with the Identity, for [Client.Bury]. The default is the variable
	// INVOCATION_ID of the environment, which systemd sets.
	Invocation string
}

// What most programs ask for with errors.Is. The others are in package lease.
var (
	ErrBusy        = lease.ErrBusy        // a try that would have to wait
	ErrClosed      = lease.ErrClosed      // the client was closed
	ErrExpired     = lease.ErrExpired     // a hold was lost: its lease ran out before a renewal was confirmed; also an ErrLost
	ErrInvalid     = lease.ErrInvalid     // an argument or an option, which the error names
	ErrLost        = lease.ErrLost        // a hold ended before its release, for whatever reason
	ErrQueueFull   = lease.ErrQueueFull   // as many wait as WithQueueLimit says
	ErrUnavailable = lease.ErrUnavailable // the server did not answer before the call's time was over
	ErrWaitTimeout = lease.ErrWaitTimeout // WithMaxWait is over
)

// Dial connects to Redis and returns a client that owns its connections: one for commands, one for
// renewals, and one that subscribes once it is needed. It checks that the server allows what the protocol
// does, and says what is missing and which setting gives it: [lease.ErrUnusable]. An option that cannot be used is
// [ErrInvalid]. A server that cannot be reached, or is not ready, is [ErrUnavailable]: call Dial again.
func Dial(o Options) (*Client, error) {
	c, err := waitqueue.Dial(waitqueue.Options(o))
	return (*Client)(c), err
}

// DialURL is [Dial] with a URL: redis://user:password@host:port/db, rediss:// for TLS (valkey:// and valkeys:// are the same),
// or unix:///path. In user and password an @ is written %40, / %2F, ? %3F, # %23 and % %25. After a question mark it may have:
//
//	addr=host:port           a further address; it may come again
//	db, client_name          the database, and the name of the connections
//	master_set               what sentinels call the master: then the addresses are theirs
//	sentinel_user, sentinel_password  of the sentinels, which user and password before the host are not for
//	sentinel_tls             true or false; the default is true for rediss://
//	skip_verify              true: certificates of TLS are not checked
//	protocol=2               RESP2, without HELLO
//	without_hello, without_skip, without_subscribe  true: the options of that name
//	dial_timeout, write_timeout       as 2s
//
// client_cache and max_retries change nothing. An error does not repeat what may be a password. Functions may change the
// other options, and those that the URL has set:
//
//	client, err := headwaiter.DialURL(url, func(o *headwaiter.Options) { o.Name, o.Log = "importer", slog.Default() })
func DialURL(url string, change ...func(*Options)) (*Client, error) {
	u, err := conn.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o := Options{Redis: u.Redis, WithoutSkip: u.WithoutSkip, WithoutSubscribe: u.WithoutSubscribe, WithoutHello: u.WithoutHello}
	for _, c := range change {
		c(&o)
	}
	return Dial(o)
}

// New makes a client on the caller's connections, which Close leaves open. Make rc with
// DisableCache, and with PipelineMultiplex -1, so that requests stay in order and need no retries. o.Redis is not used.
func New(rc rueidis.Client, o Options) (*Client, error) {
	c, err := waitqueue.New(rc, waitqueue.Options(o))
	return (*Client)(c), err
}
