package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
)

// A Client is one instance of the library on etcd: an identity and an etcd lease of its own, which all its holds
// share. It is safe for use by several goroutines.
type Client struct {
	etcd    *clientv3.Client
	owned   bool // etcd is to be closed
	opts    Options
	who     string
	numbers atomic.Uint64 // of calls
	core    *engine.Core[*session, *ticket]
}

// Dial makes a client with connections of its own. Unless there is a user to authenticate it sends nothing: a server
// that is away is waited for by the calls, each for as long as its context says. A user is authenticated here, and where
// no server answers Dial fails after the DialTimeout of Options.Etcd.
func Dial(o Options) (*Client, error) {
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	etcd, err := clientv3.New(o.Etcd)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	return newClient(etcd, o, true), nil
}

// NewClient makes a client on the caller's connections, which Close leaves open. Of the options Etcd is not used.
// The connections should be watched (DialKeepAliveTime), or one that is half open is noticed late.
func NewClient(etcd *clientv3.Client, o Options) (*Client, error) {
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	return newClient(etcd, o, false), nil
}

func newClient(etcd *clientv3.Client, o Options, owned bool) *Client {
	c := &Client{etcd: etcd, owned: owned, opts: o, who: names.Who(o.Name)}
	watch := engine.NewWatch(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who, "etcd", strings.Join(etcd.Endpoints(), ","))
	// A member that has lost its leader is to say so, not to let requests wait for one.
	c.core = engine.NewCore(clientv3.WithRequireLeader(context.Background()), watch, c.open, c.erase)
	return c
}

// Close is [Client.Shutdown] for at most 5 s, so that it can be deferred.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), calls.CloseTime)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends waits with [lease.ErrClosed], ends holds as lost ([lease.ErrClientClosed]) and gives them back: it
// revokes the etcd lease, with which all keys go in one step. With the servers away it returns an error when ctx ends,
// and without that when the etcd lease has run out by the client's clock; what is left ends with that lease. A second
// call waits for the first and returns nil.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.core.Close(ctx, func(err error) error {
		if c.owned {
			_ = c.etcd.Close() // What it could say of its streams helps nobody.
		}
		if err != nil {
			return fmt.Errorf("etcdlock: close: what is held ends with its lease: %w", err)
		}
		return nil
	})
}

// limit is how long one attempt of a request may take.
func (c *Client) limit() time.Duration { return c.opts.Lease }
