package zklock

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

const (
	// DefaultLease is the session time-out that a client asks for.
	DefaultLease = 10 * time.Second
	// MinLease is the shortest: what is confirmed at a quarter of it should outlast a pause of either process.
	MinLease = time.Second
	// MaxLease is the longest: a waiter behind a dead holder waits that long.
	MaxLease = 24 * time.Hour
	// DefaultPrefix is the node below which all others are.
	DefaultPrefix = "/headwaiter"
)

// Options are what a client is made with.
type Options struct {
	// Servers are host:port, or host with the usual port 2181. A name is looked up anew for each connection.
	Servers []string
	// Prefix is the node below which all others are, for example /teams/billing. What is missing of it is made. The
	// default is [DefaultPrefix].
	Prefix string
	// Lease is the session time-out to ask for: all holds of a client share one session. The servers have bounds
	// for it, 2 and 20 of their ticks (4 s and 40 s) unless they are configured otherwise; what they say counts.
	Lease time.Duration
	// Name of the client, for operators; the default is the program's.
	Name string
	// Auth are what each connection proves itself with.
	Auth []Auth
	// ACL of the nodes that are made. The default is that the identities of Auth may do all, and if there are
	// none, that everybody may. Who shares a lock has to read, create and delete what the others make.
	ACL []zk.ACL
	// TLS, if not nil, is how connections are encrypted. Where it names no server, the host of the address is.
	TLS *tls.Config
	// Dialer makes the connections, in place of a [net.Dialer]; TLS is done on top of it.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Observer is told what happens to the calls and holds of this client: asked, queued, granted, failed, released, lost, and what
	// HeldTooLong and WaitedTooLong are for. The default is nobody.
	Observer observe.Observer
	// Log gets the same as records, as Log of headwaiter.Options does. The default is no log.
	Log *slog.Logger
	// HeldTooLong and WaitedTooLong are how long a hold, and the wait of a call, may last before the Observer and the Log
	// are told: then, and again each time that it has doubled. The default is not to look.
	HeldTooLong, WaitedTooLong time.Duration
}

// Auth is one identity: the scheme digest and user:password, for example.
type Auth struct {
	Scheme string
	Secret []byte
}

func (o *Options) fill() error {
	if len(o.Servers) == 0 {
		return fmt.Errorf("%w: no servers are named", lease.ErrInvalid)
	}
	servers := make([]string, len(o.Servers))
	for i, s := range o.Servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(strings.Trim(s, "[]"), strconv.Itoa(zk.DefaultPort))
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" || strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return fmt.Errorf("%w: the server %q is not host:port", lease.ErrInvalid, o.Servers[i])
		}
		servers[i] = s
	}
	o.Servers = servers
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Lease < MinLease || o.Lease > MaxLease {
		return fmt.Errorf("%w: a lease of %v must be from %v to %v", lease.ErrInvalid, o.Lease, MinLease, MaxLease)
	}
	if err := engine.Lasting(o.HeldTooLong, o.WaitedTooLong); err != nil {
		return err
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return err
	}
	o.Prefix = strings.TrimSuffix(o.Prefix, "/") // The root is nothing.
	if o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
		if len(o.Auth) > 0 {
			o.ACL = zk.AuthACL(zk.PermAll)
		}
	}
	return nil
}

func checkPrefix(prefix string) error {
	bad := func(why string) error { return fmt.Errorf("%w: the prefix %q %s", lease.ErrInvalid, prefix, why) }
	if !strings.HasPrefix(prefix, "/") {
		return bad("does not begin with a slash")
	}
	if !names.Printable(prefix) || strings.IndexFunc(prefix, unprintable) >= 0 {
		return bad("has bytes that cannot be printed")
	}
	if trimmed := strings.Trim(prefix, "/"); trimmed != "" {
		for part := range strings.SplitSeq(trimmed, "/") {
			if part == "" || part == "." || part == ".." {
				return bad("has a part that no node may be called")
			}
		}
	}
	return nil
}

// unprintable are what ZooKeeper takes in no path, in addition to control characters: some that stand for nothing.
func unprintable(r rune) bool {
	return r >= 0xf000 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
}

// dial makes one connection.
func (o *Options) dial(ctx context.Context, address string) (net.Conn, error) {
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil || o.TLS == nil {
		return conn, err
	}
	config := o.TLS
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// An Option sets how a name is held.
type Option func(*terms)

type terms = engine.Terms

// WithMaxHold ends a hold after d at the latest, confirmed or not: its context ends with the cause
// [lease.ErrMaxHold], and the next in the queue holds. The default is no such end.
func WithMaxHold(d time.Duration) Option { return func(t *terms) { t.Hold = d } }

// WithMaxStall ends a hold when nobody calls [lease.Lease.Progress] on it for d, though the client lives: a worker that
// hangs keeps nobody else out. Its context ends with the cause [lease.ErrStalled], and the next in the queue holds. d is
// at least [lease.MinLease]. The default, and 0, is no such end.
func WithMaxStall(d time.Duration) Option { return func(t *terms) { t.Stall = d } }

// WithMaxWait bounds a call until it holds, and not the hold nor the work of a Do: it fails with a [lease.WaitError] that
// wraps [lease.ErrWaitTimeout] and context.DeadlineExceeded. d is at least 1 ms. The default, and 0, is to wait until the
// context ends.
func WithMaxWait(d time.Duration) Option { return func(t *terms) { t.MaxWait = d } }
