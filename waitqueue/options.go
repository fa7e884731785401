package waitqueue

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// Options is what a client needs to know. Only Redis.InitAddress must be set.
type Options struct {
	// Redis says where the server is and how to log on. The fields that the protocol depends on are set by
	// Dial: one connection for commands, no client-side cache, no retries below the library's own.
	Redis rueidis.ClientOption
	// Prefix begins every key and channel: Prefix:<kind>:{name}. The default is "headwaiter". Clients with
	// different prefixes do not meet.
	Prefix string
	// Name is what operators see of this client, next to its host and process id. The default is the name of the program.
	Name string
	// GrantLease is how long a grant that was sent as a message lasts before its client confirms it by a
	// renewal: the time that a stopped process can hold up the queue. The default is 2 s.
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
	// more are ahead: a hand-off takes some milliseconds, after a long hold up to 0.7 s. A hold learns by its renewals of a
	// release by force, and of waiters if it wants to, and a lock that is kept (fairlock.WithKeep) that it is called: up to a
	// second late. A dead waiter costs a grant lease. All clients of a Prefix set it or none: others take these for dead.
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
}

// defaults and limits, each with its reason.
const (
	defaultPrefix     = "headwaiter"
	defaultGrantLease = 2 * time.Second
	defaultLinger     = 5 * time.Second
	// minLinger bounds how often a name that is in use is looked at for whether it still is.
	minLinger = 100 * time.Millisecond

	// maxPrefix, as every key and channel begins with it.
	maxPrefix = 128
)

// defaults are the options with what was left out, or what is wrong with them.
func defaults(o Options) (Options, error) {
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	if len(o.Prefix) > maxPrefix || strings.ContainsAny(o.Prefix, "{}") || !names.Printable(o.Prefix) {
		return o, fmt.Errorf("headwaiter: prefix %.40q: must be printable, without braces, at most %d bytes", o.Prefix, maxPrefix)
	}
	o.GrantLease = cmp.Or(o.GrantLease, defaultGrantLease)
	if o.GrantLease < lease.MinLease || o.GrantLease > lease.MaxLease {
		return o, fmt.Errorf("headwaiter: grant lease %v: must be from %v to 365 days", o.GrantLease, lease.MinLease)
	}
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	if o.Linger < 0 {
		return o, errors.New("headwaiter: linger must not be negative")
	}
	if o.HeldTooLong < 0 || o.WaitedTooLong < 0 {
		return o, errors.New("headwaiter: held too long, and waited too long, must not be negative")
	}
	o.Linger = max(o.Linger, minLinger)
	return o, nil
}
