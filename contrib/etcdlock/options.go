package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

const (
	// DefaultLease is for how long the etcd lease of a client lasts unless it is renewed.
	DefaultLease = 10 * time.Second
	// MinLease is the shortest: etcd raises shorter ones to one and a half of its election time-outs, 2 s as it is
	// delivered, and what is renewed at a third of it should outlast an election.
	MinLease = 2 * time.Second
	// MaxLease is the longest: a waiter behind a dead holder waits that long.
	MaxLease = 24 * time.Hour
	// DefaultPrefix is what all keys begin with.
	DefaultPrefix = "headwaiter/"
)

// Options are what a client is made with.
type Options struct {
	// Etcd is how [Dial] reaches the servers. Where it sets no DialKeepAliveTime, a connection that does not answer
	// is given up after some seconds. Where it sets no DialTimeout, Dial asks for the rights of a user for as long as
	// a lease.
	Etcd clientv3.Config
	// Prefix of all keys; it should end with a slash. The default is [DefaultPrefix]. Where users have rights, the
	// client's needs to read and write below it.
	Prefix string
	// Lease is how long holds last unless they are renewed, which is done at a third of it: all holds of a client
	// share one etcd lease. etcd counts whole seconds; a part of one counts as one.
	Lease time.Duration
	// Name of the client, for operators; the default is the program's.
	Name string
	// Observer is told what happens to the calls and holds of this client: asked, queued, granted, failed, released, lost, and what
	// HeldTooLong and WaitedTooLong are for. The default is nobody.
	Observer observe.Observer
	// Log gets the same as records, as Log of headwaiter.Options does. The default is no log.
	Log *slog.Logger
	// HeldTooLong and WaitedTooLong are how long a hold, and the wait of a call, may last before the Observer and the Log
	// are told: then, and again each time that it has doubled. The default is not to look.
	HeldTooLong, WaitedTooLong time.Duration
}

func (o *Options) fill() error {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Lease < MinLease || o.Lease > MaxLease {
		return fmt.Errorf("%w: a lease of %v must be from %v to %v", lease.ErrInvalid, o.Lease, MinLease, MaxLease)
	}
	o.Lease = (o.Lease + time.Second - 1).Truncate(time.Second)
	if err := engine.Lasting(o.HeldTooLong, o.WaitedTooLong); err != nil {
		return err
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Etcd.DialKeepAliveTime == 0 {
		// What gRPC takes at least; etcd refuses more than one ping in 5 s.
		o.Etcd.DialKeepAliveTime = 10 * time.Second
		o.Etcd.DialKeepAliveTimeout = 2 * time.Second
		o.Etcd.PermitWithoutStream = true
	}
	if o.Etcd.DialTimeout == 0 {
		o.Etcd.DialTimeout = o.Lease // How long the first word with a server may take, if there is a user.
	}
	if o.Etcd.Username != "" {
		o.Etcd.DialOptions = append(slices.Clone(o.Etcd.DialOptions), grpc.WithChainUnaryInterceptor(authenticate))
	}
	return nil
}

// authenticate makes up for a disagreement of etcd's client and servers of version 3.4. These ask for a valid token when
// one is asked for, and then the client asks again, without end. A server that has started anew knows none.
//
// To say that there are no users lets the client forget its token, and ask without one when it is told to.
func authenticate(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, answer, conn, opts...)
	if method == pb.Auth_Authenticate_FullMethodName && errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	return err
}

// An Option sets how a name is held.
type Option func(*terms)

type terms = engine.Terms

// WithMaxHold ends a hold after d at the latest, renewed or not: its context ends with the cause
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
