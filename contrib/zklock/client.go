package zklock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A Client is one instance of the library on ZooKeeper: an identity and a session of its own, which all its holds
// share. It is safe for use by several goroutines.
type Client struct {
	opts    Options
	who     string
	id      string        // the first half of the ids of its tickets
	numbers atomic.Uint64 // of calls
	watch   *engine.Watch

	life context.Context // ends with Close, for the cause lease.ErrClosed
	end  context.CancelCauseFunc
	work sync.WaitGroup // all goroutines
	idle chan func()    // to those that have nothing to do
	rest atomic.Int32   // how many these are
	once sync.Once      // Close

	mu       sync.Mutex // guards the fields below, the sessions and the tickets; no request is sent while it is held
	closed   bool
	session  *session
	opening  *engine.Opening[*session]
	cable    *cable             // of the session, or of that which is asked for
	tickets  map[string]*ticket // by id: all whose node may be at the server
	ends     map[string]*ticket // of these, the ones whose node is to go
	sweeping bool
}

// Dial makes a client. It sends nothing: servers that are away are waited for by the calls, each for as long as its
// context says.
func Dial(o Options) (*Client, error) {
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // It never fails.
	c := &Client{
		opts: o, who: names.Who(o.Name), id: hex.EncodeToString(id[:]),
		tickets: make(map[string]*ticket), ends: make(map[string]*ticket), idle: make(chan func()),
	}
	c.watch = engine.NewWatch(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who, "zookeeper", strings.Join(o.Servers, ","))
	c.life, c.end = context.WithCancelCause(context.Background())
	return c, nil
}

// Close ends waits with [lease.ErrClosed], ends holds as lost ([lease.ErrClientClosed]) and gives them back: it
// closes the session, with which all nodes go in one step. With the servers away it returns an error when ctx ends, and
// without that when the session's time is over by the client's clock; what is left ends with the session. A second call
// waits for the first and returns nil.
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
	s := c.session
	c.mu.Unlock()
	c.end(lease.ErrClosed)
	var err error
	if s != nil {
		err = s.close(ctx)
	}
	c.work.Wait()
	if err != nil {
		return fmt.Errorf("zklock: close: what is held ends with its session: %w", err)
	}
	return nil
}

// trouble is why the servers cannot be asked, as far as is known.
func (c *Client) trouble() error {
	c.mu.Lock()
	cable := c.cable
	c.mu.Unlock()
	if cable == nil {
		return nil
	}
	return cable.trouble()
}

// sweepLocked sees to it that the node of a ticket goes, in the background.
func (c *Client) sweepLocked(t *ticket) {
	if t.session.ctx.Err() != nil {
		delete(c.tickets, t.id) // It has gone with its session.
		return
	}
	c.tickets[t.id], c.ends[t.id] = t, t
	if !c.sweeping && c.spawnLocked(c.sweeper) == nil {
		c.sweeping = true
	}
}

// atOnce is how many nodes are deleted beside each other.
const atOnce = 64

// sweeper deletes nodes until none is left. With the servers away it tries until they say that the session is over, or
// the client closes.
func (c *Client) sweeper() {
	for tries := 0; ; tries++ {
		var batch []*ticket
		c.mu.Lock()
		for id, t := range c.ends {
			if t.session.ctx.Err() != nil {
				delete(c.ends, id)
				delete(c.tickets, id)
				continue
			}
			if batch = append(batch, t); len(batch) == atOnce {
				break
			}
		}
		if len(batch) == 0 || c.closed {
			c.sweeping = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		var all sync.WaitGroup
		var left atomic.Bool
		for _, t := range batch {
			all.Go(func() {
				if t.erase() != nil {
					left.Store(true)
				}
			})
		}
		all.Wait()
		if !left.Load() {
			tries = 0
			continue
		}
		_ = retry.Rest(c.life, retry.Backoff(tries)) // Where that has ended, closed is set.
	}
}

// doubt is how long a wait goes on without a look.
func (c *Client) doubt() time.Duration { return 2 * c.opts.Lease }

// behindEnds waits until no node of a hold is left that the client is about to delete: a later call of its own would
// stand behind it.
func (l *line) behindEnds(ctx context.Context) error {
	c := l.client
	var ahead []context.Context
	c.mu.Lock()
	for _, t := range c.ends {
		if t.grip.Keeper != nil && t.line.parent == l.parent {
			ahead = append(ahead, t.ctx)
		}
	}
	c.mu.Unlock()
	return engine.AllOver(ctx, c.life, ahead)
}
