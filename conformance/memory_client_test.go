package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// client is one that has been dialled. Its fields are guarded by the memory's lock.
type client struct {
	*memory
	closed bool
	gone   bool          // it is cut off
	silent bool          // it is not answered
	close  chan struct{} // closed with the client
}

func (m *memory) dial() *client {
	c := &client{memory: m, close: make(chan struct{})}
	if m.bug == leakClient {
		go func() { <-c.leaks }()
	}
	return c
}

// acquire is the one way to a hold.
func (c *client) acquire(ctx context.Context, s *site, t ticket, try bool) (*lease.Lease, error) {
	if err := ctx.Err(); err != nil && c.bug != ignoresContext {
		return nil, c.ended(ctx)
	}
	c.mu.Lock()
	if c.closed && c.bug != usableClosed {
		c.mu.Unlock()
		return nil, errClosed
	}
	t.client, t.ctx, t.granted = c, ctx, make(chan *hold, 1)
	free := len(s.queue) == 0 || c.bug == barges
	if !c.gone && free && c.fits(s, c, t.n) {
		h := c.grant(s, &t)
		c.mu.Unlock()
		if c.bug == forgetsGrant {
			if late(); ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		return (*lease.Lease)(h.keepers[0]), nil
	}
	if try && c.bug != triesWait {
		if c.bug == triesQueue {
			s.queue = append(s.queue, &t)
		}
		if c.bug == wantedByTries {
			c.awaited(s)
		}
		c.mu.Unlock()
		return nil, errBusy
	}
	if room := t.room; room > 0 {
		switch c.bug {
		case roomForOneMore:
			room++
		case roomOnce:
			room -= s.left
		case roomForNobody:
			s.queue = s.queue[:min(len(s.queue), room-1)]
		}
		if len(s.queue) >= room && c.bug != neverFull {
			if c.bug == refusedStays {
				s.queue = append(s.queue, &t)
			}
			c.mu.Unlock()
			return nil, lease.ErrQueueFull
		}
	}
	if !c.gone {
		s.queue = append(s.queue, &t)
		c.awaited(s)
	}
	c.mu.Unlock()
	return c.wait(ctx, s, &t)
}

// ended is the error of a call whose context has ended.
func (c *client) ended(ctx context.Context) error {
	if c.bug == ownErrors {
		return errors.New("timed out")
	}
	silent := c.bug == blamesServer || c.bug != blamesOthers && c.isSilent()
	return fmt.Errorf("acquire: %w", &lease.WaitError{Place: -1, Err: ctx.Err(), Unanswered: silent})
}

func (c *client) wait(ctx context.Context, s *site, t *ticket) (*lease.Lease, error) {
	if c.bug == leakCall {
		go func() { <-c.leaks }()
	}
	closed := c.close
	if c.bug == deafToClose {
		closed = nil
	}
	var why error
	select {
	case h := <-t.granted:
		return (*lease.Lease)(h.keepers[0]), nil
	case <-closed:
		why = errClosed
	case <-ctx.Done():
		why = c.ended(ctx)
	}
	if c.bug == bothWays || c.bug == keepsGrant {
		late()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bug == staysQueued {
		return nil, why
	}
	if i := slices.Index(s.queue, t); i >= 0 {
		s.left++
		if s.queue = slices.Delete(s.queue, i, i+1); c.bug != leavesSilently {
			c.advance(s)
		}
	}
	select {
	case h := <-t.granted:
		if c.bug == bothWays {
			return (*lease.Lease)(h.keepers[0]), why
		}
		if c.bug != keepsGrant {
			c.drop(h, nil)
		}
	default:
	}
	return nil, why
}

// late opens a window for races that would otherwise be short.
func late() { time.Sleep(time.Millisecond) } // A planted bug, which the kit has to find.

// finish closes the client.
func (c *client) finish(context.Context) error {
	if c.bug == closesInTheEnd && c.isSilent() {
		c.speak() // The kit closes once more when the case has failed.
		<-c.leaks
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		if c.bug == closesOnce {
			return errClosed
		}
		return nil
	}
	c.closed = true
	close(c.close)
	for _, s := range c.sites {
		for _, h := range slices.Clone(s.held) {
			if h.client != c || c.bug == keepsClosed || c.bug == unlockUnwaited {
				continue
			}
			c.tell(h, lease.ErrClientClosed)
			if !c.gone {
				c.drop(h, nil)
			}
		}
	}
	return nil
}

// cut takes the client from the engine. What waits by it is found dead when its turn comes.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, b := range c.barriers {
		b.cut(c)
	}
}

// silence is cut for a client that does not know.
func (c *client) silence() {
	c.cut()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

func (c *client) speak() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
}

func (c *client) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

// unanswered is a release that waits for an answer for as long as it may.
func (c *client) unanswered(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	switch c.bug {
	case waitsForAnswer:
		<-c.leaks
	case believesSilence:
		return nil
	}
	<-ctx.Done()
	return lease.ErrUnconfirmed
}
