package sqllock

import (
	"context"
	"slices"

	"github.com/headwaiter/headwaiter/internal/engine"
)

// mostEnders is how many goroutines give back what was unlocked, and how many connections that takes at the most.
const mostEnders = 4

// An unlock is the end of a hold that nobody waits for.
type unlock struct {
	of   any // the key of a session lock, or the name of a leased one
	run  func()
	over chan struct{} // closed when it was answered or given up
}

// endLater runs the end of a hold in the background. The caller has entered the client.
func (c *Client) endLater(of any, run func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &unlock{of, run, make(chan struct{})}
	c.ready = append(c.ready, u)
	c.unlocks[of] = append(c.unlocks[of], u)
	if c.enders == mostEnders {
		c.work.Done() // One of them does it, and Close waits for that.
		return
	}
	c.enders++
	go c.runEnds()
}

// runEnds runs ends until there are none.
func (c *Client) runEnds() {
	defer c.work.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ready) > 0 {
		u := c.ready[0]
		c.ready = c.ready[1:]
		c.mu.Unlock()
		u.run()
		c.mu.Lock()
		left := slices.DeleteFunc(c.unlocks[u.of], func(other *unlock) bool { return other == u })
		if c.unlocks[u.of] = left; len(left) == 0 {
			delete(c.unlocks, u.of)
		}
		close(u.over)
	}
	c.enders--
}

// behindEnds waits until what the client has unlocked of a lock is given back: a later call of its own would wait for
// it. It returns an error if ctx, or the client's life, ends before.
func (c *Client) behindEnds(ctx context.Context, of any) error {
	var ahead []<-chan struct{}
	c.mu.Lock()
	for _, u := range c.unlocks[of] {
		ahead = append(ahead, u.over)
	}
	c.mu.Unlock()
	return engine.AllOver(ctx, c.life, ahead)
}

// endIf has the end of a hold run in the background, if take makes it the caller's to end. Otherwise somebody else does,
// or Close.
func (c *Client) endIf(take func() bool, of any, run func()) {
	if c.enter() != nil {
		return
	}
	if !take() {
		c.work.Done()
		return
	}
	c.endLater(of, run)
}

// letGo is what Unlock of the lease does, once.
func (h *sessionHold) letGo() {
	h.client.endIf(h.claim, h.key, func() {
		h.settle()
		h.client.clean(h.conn)
	})
}

// letGo is what Unlock of the lease does, once.
func (h *rowHold) letGo() {
	c := h.ticket.client
	c.endIf(h.take, h.ticket.lock.line.Name, func() { _, _, _ = c.endAlways(h.ticket) })
}
