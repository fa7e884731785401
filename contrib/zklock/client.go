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

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
)

// A Client is one instance of the library on ZooKeeper: an identity and a session of its own, which all its holds
// share. It is safe for use by several goroutines.
type Client struct {
	opts    Options
	who     string
	id      string        // the first half of the ids of its tickets
	numbers atomic.Uint64 // of calls
	core    *engine.Core[*session, *ticket]
	cable   *cable // of the session, or of that which is asked for; the core guards it
}

// Dial makes a client. It sends nothing: servers that are away are waited for by the calls, each for as long as its
// context says.
func Dial(o Options) (*Client, error) {
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // It never fails.
	c := &Client{opts: o, who: names.Who(o.Name), id: hex.EncodeToString(id[:])}
	watch := engine.NewWatch(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who, "zookeeper", strings.Join(o.Servers, ","))
	c.core = engine.NewCore(context.Background(), watch, c.open, erase)
	return c, nil
}

// Close is [Client.Shutdown] for at most 5 s, so that it can be deferred.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), calls.CloseTime)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends waits with [lease.ErrClosed], ends holds as lost ([lease.ErrClientClosed]) and gives them back: it
// closes the session, with which all nodes go in one step. With the servers away it returns an error when ctx ends, and
// without that when the session's time is over by the client's clock; what is left ends with the session. A second call
// waits for the first and returns nil.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.core.Close(ctx, func(err error) error {
		if err != nil {
			return fmt.Errorf("zklock: close: what is held ends with its session: %w", err)
		}
		return nil
	})
}

// trouble is why the servers cannot be asked, as far as is known.
func (c *Client) trouble() error {
	c.core.Lock()
	cable := c.cable
	c.core.Unlock()
	if cable != nil {
		if err := cable.trouble(); err != nil {
			return err
		}
	}
	return c.core.Trouble()
}

// erase deletes the nodes of tickets, all at the same time. It returns false if some are to be tried again.
func erase(batch []*ticket) bool {
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
	return !left.Load()
}

// doubt is how long a wait goes on without a look.
func (c *Client) doubt() time.Duration { return 2 * c.opts.Lease }
