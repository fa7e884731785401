package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A Ticket is one call and what it has at the servers: a key or a node of its own, so that two calls of one client exclude
// each other as those of two clients do.
type Ticket[S session] struct {
	ID      string
	Root    string // below which all keys or nodes of the name are
	Session S
	Ctx     context.Context // ends when the key or node is known to be gone, or the session ends
	End     context.CancelCauseFunc
	Grip    Grip
	Pending bool // what makes the key or node is under way: nothing is deleted before its end

	abandoned bool // the call needs it no more
}

// NewTicket makes one for a call.
func NewTicket[S session](s S, id, root string) Ticket[S] {
	t := Ticket[S]{ID: id, Root: root, Session: s}
	t.Ctx, t.End = context.WithCancelCause(s.base().Ctx)
	return t
}

func (t *Ticket[S]) base() *Ticket[S] { return t }

// LeavingLocked reports whether the ticket's key or node is to go, or may.
func (c *Core[S, T]) LeavingLocked(t T) bool { return t.base().abandoned || c.EndsLocked(t) }

// EndsLocked reports whether the ticket's key or node is to go in the background.
func (c *Core[S, T]) EndsLocked(t T) bool {
	_, ends := c.ends[t.base().ID]
	return ends
}

// KnownLocked reports whether the ticket may have a key or node.
func (c *Core[S, T]) KnownLocked(t T) bool { return c.Tickets[t.base().ID] == t }

// DropLocked forgets a ticket that has no key or node.
func (c *Core[S, T]) DropLocked(t T) {
	delete(c.Tickets, t.base().ID)
	delete(c.ends, t.base().ID)
}

// MissedLocked tells that somebody has removed the ticket's key or node; its call gets gone as the reason.
func (c *Core[S, T]) MissedLocked(t T, gone error) {
	if !c.KnownLocked(t) || c.LeavingLocked(t) {
		return
	}
	c.DropLocked(t)
	t.base().Grip.Lose(lease.ErrForced)
	t.base().End(gone)
}

// Leave gives up the place or the hold, in the background: when what may make the key or node has come to its end.
func (c *Core[S, T]) Leave(t T) {
	c.Lock()
	defer c.Unlock()
	b := t.base()
	b.abandoned = true
	if !b.Pending && c.KnownLocked(t) {
		c.SweepLocked(t)
	}
	b.End(context.Canceled)
}

// SettledLocked tells that what might make the key or node has come to its end.
func (c *Core[S, T]) SettledLocked(t T) {
	t.base().Pending = false
	if t.base().abandoned && c.KnownLocked(t) {
		c.SweepLocked(t)
	}
}

// SweepLocked sees to it that the ticket's key or node goes, in the background.
func (c *Core[S, T]) SweepLocked(t T) {
	b := t.base()
	if b.Session.base().Ctx.Err() != nil {
		delete(c.Tickets, b.ID) // It has gone with its session.
		return
	}
	c.Tickets[b.ID], c.ends[b.ID] = t, t
	if !c.sweeping && c.SpawnLocked(c.sweeper) == nil {
		c.sweeping = true
	}
}

// SpareLocked takes the ticket off those whose key or node is to go.
func (c *Core[S, T]) SpareLocked(t T) { delete(c.ends, t.base().ID) }

// sweeper has keys or nodes deleted until none is left. With the servers away it tries until they say that the session is
// over, or the client closes.
func (c *Core[S, T]) sweeper() {
	for tries := 0; ; tries++ {
		batch := c.batch()
		if len(batch) == 0 {
			return
		}
		if c.erase(batch) {
			tries = -1
			continue
		}
		_ = calls.Rest(c.Life, calls.Backoff(tries)) // Where that has ended, closed is set.
	}
}

// atOnce is how many keys or nodes go at a time; a server of etcd takes 128 operations in a request.
const atOnce = 64

// batch are the next tickets for the sweeper. If there are none it ends.
func (c *Core[S, T]) batch() (batch []T) {
	c.Lock()
	defer c.Unlock()
	for _, t := range c.ends {
		if t.base().Session.base().Ctx.Err() != nil {
			c.DropLocked(t)
			continue
		}
		if batch = append(batch, t); len(batch) == atOnce {
			break
		}
	}
	if c.closed {
		batch = nil
	}
	c.sweeping = len(batch) > 0
	return batch
}

// BehindEnds waits until nothing is left of a name's hold that the client is about to delete: a later call of its own
// would wait for it.
func (c *Core[S, T]) BehindEnds(ctx context.Context, root string) error {
	var ahead []<-chan struct{}
	c.Lock()
	for _, t := range c.ends {
		if b := t.base(); b.Grip.Keeper != nil && b.Root == root {
			ahead = append(ahead, b.Ctx.Done())
		}
	}
	c.Unlock()
	return AllOver(ctx, c.Life, ahead)
}

// Hold makes the lease on what a ticket has got, when its session has time. It fails when the session, the key or node, or
// ctx ends before.
func (c *Core[S, T]) Hold(ctx context.Context, t T, how keeper.Terms, limits Limits) (*lease.Lease, error) {
	for {
		if held := c.take(ctx, t, how, limits); held != nil {
			return held, nil
		}
		if err := context.Cause(t.base().Ctx); err != nil {
			return nil, err
		}
		if err := c.confirm(ctx, t.base().Session.base()); err != nil {
			return nil, err
		}
	}
}

// take makes the lease. It returns nil if the session's time is over, or the key or node gone.
func (c *Core[S, T]) take(ctx context.Context, t T, how keeper.Terms, limits Limits) *lease.Lease {
	c.Lock()
	defer c.Unlock()
	b := t.base()
	s := b.Session.base()
	if c.closed || b.Ctx.Err() != nil || s.LeftLocked() <= 0 {
		return nil
	}
	how.Until = s.Until
	return b.Grip.Take(ctx, how, limits, func() {
		c.Lock()
		defer c.Unlock()
		if !c.LeavingLocked(t) && b.Grip.Over() {
			c.SweepLocked(t)
		}
	})
}

// ReleasingLocked begins what Release of a lease does, once, when the lease's context has ended. It returns an error where
// there is nothing to wait for.
func (c *Core[S, T]) ReleasingLocked(ctx context.Context, t T) error {
	cause := t.base().Grip.Ended()
	lost, known := !errors.Is(cause, lease.ErrReleased), c.KnownLocked(t) && !c.EndsLocked(t)
	if known && (lost || ctx.Err() != nil) {
		// It was lost, or nobody can wait for the answer, which is no reason to keep the lock.
		c.SweepLocked(t)
	}
	t.base().abandoned = true
	switch {
	case lost:
		return cause
	case !known:
		return c.LostBy(t, lease.ErrForced)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, calls.WhyEnded(ctx))
	}
	return nil
}

// LostBy is the loss that a release has found, unless the end of the session explains it.
func (c *Core[S, T]) LostBy(t T, cause error) error {
	switch s := t.base().Session.base(); {
	case s.Over():
		return context.Cause(s.Ctx)
	case c.Life.Err() != nil:
		return lease.ErrClientClosed
	}
	return cause
}

// Unconfirmed leaves a release to the sweeper.
func (c *Core[S, T]) Unconfirmed(ctx context.Context, t T, err error) error {
	c.Lock()
	if c.KnownLocked(t) {
		c.SweepLocked(t)
	}
	c.Unlock()
	if ended := calls.WhyEnded(ctx); ended != nil {
		err = ended
	} else if c.Life.Err() != nil {
		err = lease.ErrClosed
	}
	return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, err)
}
