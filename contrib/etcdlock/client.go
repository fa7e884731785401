package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A Client is one instance of the library on etcd: an identity and an etcd lease of its own, which all its holds
// share. It is safe for use by several goroutines.
type Client struct {
	etcd    *clientv3.Client
	owned   bool // etcd is to be closed
	opts    Options
	who     string
	numbers atomic.Uint64 // of calls
	watch   *engine.Watch

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // all goroutines
	once sync.Once      // Close

	mu       sync.Mutex // guards the fields below and the tickets; no request is sent while it is held
	closed   bool
	session  *session
	opening  *engine.Opening[*session]
	tickets  map[string]*ticket // by key: all whose key may be at the server
	ends     map[string]*ticket // of these, the ones whose key is to go
	sweeping bool
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
	c := &Client{
		etcd: etcd, owned: owned, opts: o, who: names.Who(o.Name),
		tickets: make(map[string]*ticket), ends: make(map[string]*ticket),
	}
	c.watch = engine.NewWatch(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who, "etcd", strings.Join(etcd.Endpoints(), ","))
	// A member that has lost its leader is to say so, not to let requests wait for one.
	c.life, c.end = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	return c
}

// Close ends waits with [lease.ErrClosed], ends holds as lost ([lease.ErrClientClosed]) and gives them back: it
// revokes the etcd lease, with which all keys go in one step. With the servers away it returns an error when ctx ends,
// and without that when the etcd lease has run out by the client's clock; what is left ends with that lease. A second
// call waits for the first and returns nil.
func (c *Client) Close(ctx context.Context) (err error) {
	retry.Given(ctx)
	c.once.Do(func() {
		err = c.close(ctx)
		c.watch.Stop()
	})
	return err
}

func (c *Client) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	for _, t := range c.tickets {
		t.grip.Lose(lease.ErrClientClosed)
	}
	c.mu.Unlock()
	c.end()
	c.work.Wait()

	var err error
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil {
		err = s.revoke(ctx)
	}
	if c.owned {
		_ = c.etcd.Close() // What it could say of its streams helps nobody.
	}
	if err != nil {
		return fmt.Errorf("etcdlock: close: what is held ends with its lease: %w", err)
	}
	return nil
}

// spawn runs f on a goroutine that Close waits for, so f has to end with the client's life.
func (c *Client) spawn(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spawnLocked(f)
}

func (c *Client) spawnLocked(f func()) error {
	if c.closed {
		return lease.ErrClosed
	}
	c.work.Go(f)
	return nil
}

// limit is how long one attempt of a request may take.
func (c *Client) limit() time.Duration { return c.opts.Lease }
