package waitqueue

import (
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
	// [Dial]: one connection for commands, no client-side cache, no retries below the library's own.
	Redis rueidis.ClientOption
	// Prefix begins every key and channel: Prefix:<kind>:{name}. The default is "headwaiter". Clients with
	// different prefixes do not meet.
	Prefix string
	// Name is what operators see of this client, beside its host and process id. The default is the name
	// of the program.
	Name string
	// GrantLease is how long a grant that was sent as a message lasts before its client confirms it by a
	// renewal: the time that a stopped process can hold up the queue. The default is 2 s.
	GrantLease time.Duration
	// Linger is how long a subscription is kept after its last use, so that a hot lock does not subscribe
	// for every wait. The default is 5 s, the least 100 ms.
	Linger time.Duration
	// WithoutSkip turns off the counting of subscribers. It is for servers behind a proxy, where PUBSUB
	// NUMSUB says nothing: there a dead waiter costs one grant lease instead of nothing.
	WithoutSkip bool
	// Observer is told what happens to the calls and holds of this client. The default is nobody, which costs nothing.
	Observer observe.Observer
	// Log gets the same as records: what is usual at level debug, what others may have to wait for at info, what
	// operators should look into at warn. A goroutine of the client writes it, so a slow handler holds up no lock; what
	// does not fit into its queue of 1,024 records is counted, and told. What is told after Close has returned is not written. The default is no log.
	Log *slog.Logger
	// HeldTooLong is how long a hold may last before the Observer and the Log are told, once. The default is not to look.
	HeldTooLong time.Duration
}

// Defaults and limits, each with its reason.
const (
	defaultPrefix     = "headwaiter"
	defaultGrantLease = 2 * time.Second
	defaultLinger     = 5 * time.Second
	// minLinger bounds how often a name that is in use is looked at for whether it still is.
	minLinger = 100 * time.Millisecond

	// maxPrefix, for the same reason.
	maxPrefix = 128
)

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if len(o.Prefix) > maxPrefix || strings.ContainsAny(o.Prefix, "{}") || !names.Printable(o.Prefix) {
		return o, fmt.Errorf("headwaiter: prefix %.40q: must be printable, without braces, at most %d bytes", o.Prefix, maxPrefix)
	}
	if o.GrantLease == 0 {
		o.GrantLease = defaultGrantLease
	}
	if o.GrantLease < lease.MinLease || o.GrantLease > lease.MaxLease {
		return o, fmt.Errorf("headwaiter: grant lease %v: must be from %v to %v", o.GrantLease, lease.MinLease, lease.MaxLease)
	}
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	if o.Linger < 0 {
		return o, errors.New("headwaiter: linger must not be negative")
	}
	if o.HeldTooLong < 0 {
		return o, errors.New("headwaiter: held too long must not be negative")
	}
	o.Linger = max(o.Linger, minLinger)
	return o, nil
}

// minLifetime: less would not outlive a server that is away for a while.
const minLifetime = time.Minute

// CheckLifetime is why something cannot be kept for d after its last use, if it cannot.
func CheckLifetime(d time.Duration) error {
	if d < minLifetime || d > lease.MaxLease {
		return fmt.Errorf("%w: a lifetime of %v must be from %v to %v", lease.ErrInvalid, d, minLifetime, lease.MaxLease)
	}
	return nil
}
