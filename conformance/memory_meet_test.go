package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A latch in memory: open is closed when it is open.
type latch struct {
	left    int64
	open    chan struct{}
	waiting int
}

type latchOf struct {
	client *client
	name   string
}

// at returns the latch if it is set. The memory's lock is held.
func (l *latchOf) at() (*latch, error) {
	found := l.client.latches[l.name]
	switch {
	case l.client.closed:
		return nil, errClosed
	case found == nil && l.client.bug == opensUnset:
		open := make(chan struct{})
		close(open)
		return &latch{open: open}, nil
	case found == nil:
		return nil, errUnset
	}
	return found, nil
}

func (l *latchOf) TrySetCount(_ context.Context, n int64) (bool, error) {
	m := l.client.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 1 {
		return false, errors.New("count")
	}
	found := m.latches[l.name]
	if found != nil && (found.left > 0 && m.bug != setsTwice || m.bug == setsOnce) {
		return false, nil
	}
	m.latches[l.name] = &latch{left: n, open: make(chan struct{})}
	return true, nil
}

func (l *latchOf) CountDown(context.Context) (int64, error) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	found, err := l.at()
	if err != nil || found.left == 0 {
		return 0, err
	}
	if l.client.bug == opensEarly {
		defer func() {
			if found.left == 1 {
				close(found.open)
			}
		}()
		found.left--
		return found.left, nil
	}
	if found.left--; found.left == 0 {
		close(found.open)
	}
	if l.client.bug == countsTwice && found.left > 0 {
		return found.left / 2 * 2, nil
	}
	return found.left, nil
}

func (l *latchOf) Count(context.Context) (int64, error) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	found, err := l.at()
	if err != nil {
		return 0, err
	}
	return found.left, nil
}

func (l *latchOf) Waiting(context.Context) (int, error) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if found := l.client.latches[l.name]; found != nil {
		return found.waiting, nil
	}
	return 0, nil
}

func (l *latchOf) Wait(ctx context.Context) error {
	m := l.client.memory
	m.mu.Lock()
	found, err := l.at()
	if err != nil {
		m.mu.Unlock()
		return err
	}
	found.waiting++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		found.waiting--
		m.mu.Unlock()
	}()
	closed := l.client.close
	if m.bug == deafToClose {
		closed = nil
	}
	select {
	case <-found.open:
		return nil
	case <-closed:
		return errClosed
	case <-ctx.Done():
		if m.bug == cancelCounts {
			_, _ = l.CountDown(ctx)
		}
		return fmt.Errorf("wait: %w", ctx.Err())
	}
}

// A barrier in memory is its present generation, and whether it is broken.
type barrier struct {
	*generation
}

type generation struct {
	parties []*party
	broken  bool
}

// A party waits for a place, or for -1 where the barrier is broken.
type party struct {
	client *client
	lasts  time.Duration
	place  chan int // has room for one
}

func (g *generation) breaks() {
	g.broken = true
	for _, p := range g.parties {
		p.place <- -1
	}
	g.parties = nil
}

// cut ends the waits of a client in a lease. The memory's lock is held.
func (b *barrier) cut(c *client) {
	g := b.generation
	for _, p := range g.parties {
		if p.client == c && c.bug != deadParty {
			time.AfterFunc(p.lasts, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				g.breaks()
			})
		}
	}
}

type barrierOf struct {
	client  *client
	name    string
	parties int
	lasts   time.Duration
}

func (b *barrierOf) at() *barrier {
	found := b.client.barriers[b.name]
	if found == nil {
		found = &barrier{&generation{}}
		b.client.barriers[b.name] = found
	}
	return found
}

func (b *barrierOf) Waiting(context.Context) (int, error) {
	b.client.mu.Lock()
	defer b.client.mu.Unlock()
	return len(b.at().parties), nil
}

func (b *barrierOf) Reset(context.Context) error {
	b.client.mu.Lock()
	defer b.client.mu.Unlock()
	if b.client.bug == resetsOnlyBroken && !b.at().broken {
		return nil
	}
	b.at().breaks()
	if b.client.bug != staysBroken {
		b.at().generation = &generation{}
	}
	return nil
}

func (b *barrierOf) Await(ctx context.Context) (int, error) {
	m := b.client.memory
	m.mu.Lock()
	g, p := b.at().generation, &party{client: b.client, lasts: b.lasts, place: make(chan int, 1)}
	switch {
	case b.client.closed:
		m.mu.Unlock()
		return 0, errClosed
	case g.broken:
		m.mu.Unlock()
		return 0, errBroken
	}
	g.parties = append(g.parties, p)
	enough := b.parties
	if m.bug == goesEarly {
		enough = max(1, b.parties-1)
	}
	if len(g.parties) == enough {
		for i, other := range g.parties {
			place := b.parties - 1 - i
			if m.bug == samePlace {
				place = 0
			}
			other.place <- place
		}
		b.at().generation = &generation{}
	}
	m.mu.Unlock()
	return b.wait(ctx, g, p)
}

func (b *barrierOf) wait(ctx context.Context, g *generation, p *party) (int, error) {
	m := b.client.memory
	var why error
	closed := b.client.close
	if m.bug == deafToClose {
		closed = nil
	}
	select {
	case place := <-p.place:
		if place < 0 {
			return 0, errBroken
		}
		return place, nil
	case <-closed:
		why = errClosed
	case <-ctx.Done():
		why = fmt.Errorf("await: %w", ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(g.parties, p); i >= 0 {
		if g.parties = slices.Delete(g.parties, i, i+1); m.bug != leavesQuietly {
			g.breaks()
		}
	}
	return 0, why
}
