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
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

type (
	// A Client is one instance of the library: an identity, its connections, and what it holds and waits for. It is safe
	// for use by several goroutines; a process usually has one for each Redis. Its methods are ID, Stats,
	// Close() and Shutdown(ctx), which end waits, give back what is held, and return an error where the server did not
	// confirm that.
	Client = waitqueue.Client
	// Options is what a client needs to know. Only Redis.InitAddress must be set; each line ends with its default.
	//
	//	Redis          rueidis.ClientOption  where the server is, and how to log on
	//	Prefix         string                of all keys and channels: "headwaiter"
	//	Name           string                what operators see: the name of the program
	//	GrantLease     time.Duration         of a grant by message, until its first renewal: 2 s
	//	Linger         time.Duration         how long an unused subscription is kept: 5 s
	//	WithoutSkip, WithoutSubscribe, WithoutHello bool  for proxies, see docs/deploy.md: false
	//	Observer       observe.Observer      is told what happens: nobody
	//	Log            *slog.Logger          gets the same as records: none
	//	HeldTooLong, WaitedTooLong time.Duration  when Observer and Log are told of a long hold, or wait: never
	Options = waitqueue.Options
	// Stats counts what a client has done, since it was made.
	Stats = waitqueue.Stats
)

// What most programs ask for with errors.Is. The others are in package lease.
var (
	ErrBusy        = lease.ErrBusy        // a try that would have to wait
	ErrClosed      = lease.ErrClosed      // the client was closed
	ErrExpired     = lease.ErrExpired     // the same, because the lease ran out
	ErrInvalid     = lease.ErrInvalid     // an argument or an option, which the error names
	ErrLost        = lease.ErrLost        // a hold ended before its release, for whatever reason
	ErrQueueFull   = lease.ErrQueueFull   // as many wait as WithQueueLimit says
	ErrUnavailable = lease.ErrUnavailable // the server did not answer before the call's time was over
	ErrWaitTimeout = lease.ErrWaitTimeout // WithMaxWait is over
)

// Dial connects to Redis and returns a client that owns its connections: one for commands, one for
// renewals, and one that subscribes once it is needed. It checks that the server allows what the protocol
// does, and says what is missing and which setting gives it.
func Dial(o Options) (*Client, error) { return waitqueue.Dial(o) }

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

// New makes a client on the caller's connections, which Close leaves open. The options that rc was made
// with should have DisableCache set; one connection (PipelineMultiplex -1) saves repeating requests that
// may overtake each other. o.Redis is not used.
func New(rc rueidis.Client, o Options) (*Client, error) { return waitqueue.New(rc, o) }
