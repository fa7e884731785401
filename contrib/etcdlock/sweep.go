package etcdlock

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/retry"
)

// sweepLocked sees to it that the key of a ticket goes, in the background.
func (c *Client) sweepLocked(t *ticket) {
	if t.session.ctx.Err() != nil {
		delete(c.tickets, t.key) // It has gone with its lease.
		return
	}
	c.tickets[t.key], c.ends[t.key] = t, t
	if !c.sweeping && c.spawnLocked(c.sweeper) == nil {
		c.sweeping = true
	}
}

// atOnce is how many keys go in one request; a server takes 128 operations.
const atOnce = 64

// sweeper deletes keys until none is left. With the servers away it tries until their lease is over by their word, or
// the client closes.
func (c *Client) sweeper() {
	for tries := 0; ; {
		var ops []clientv3.Op
		var batch []*ticket
		c.mu.Lock()
		for key, t := range c.ends {
			if t.session.ctx.Err() != nil {
				delete(c.ends, key)
				delete(c.tickets, key)
				continue
			}
			ops, batch = append(ops, clientv3.OpDelete(key)), append(batch, t)
			if len(ops) == atOnce {
				break
			}
		}
		if len(ops) == 0 || c.closed {
			c.sweeping = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()

		ctx, cancel := context.WithTimeout(c.life, c.limit())
		_, err := c.etcd.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil && transient(err) {
			tries++
			c.mu.Lock()
			for _, t := range batch {
				t.clean = false
			}
			c.mu.Unlock()
			_ = retry.Rest(c.life, retry.Backoff(tries)) // Where that has ended, closed is set.
			continue
		}
		tries = 0
		c.mu.Lock()
		for _, t := range batch {
			// Where the server refuses, the next look at the lease finds the key again.
			t.clean = t.clean && err == nil
			if t.cut && err == nil {
				t.settleLocked()
				continue
			}
			t.dropLocked()
		}
		c.mu.Unlock()
	}
}

// settleTime is after what time a key is deleted a second time.
const settleTime = 100 * time.Millisecond

// settleLocked deletes the key once more, a little later: what was to create it was given up, and may have been
// overtaken by the deletion. If it is later still, a look at the lease finds it.
func (t *ticket) settleLocked() {
	c := t.client
	t.cut = false
	delete(c.ends, t.key)
	time.AfterFunc(settleTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sweepLocked(t)
	})
}

// behindEnds waits until no key of a hold is left that the client is about to delete: a later call of its own would stand
// behind it.
func (l *line) behindEnds(ctx context.Context) error {
	c := l.client
	var ahead []context.Context
	c.mu.Lock()
	for key, t := range c.ends {
		if t.grip.Keeper != nil && strings.HasPrefix(key, l.prefix) {
			ahead = append(ahead, t.ctx)
		}
	}
	c.mu.Unlock()
	return engine.AllOver(ctx, c.life, ahead)
}
