package engine

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A Session is what the servers keep of a client as long as they hear of it.
//
// Losing contact does not end it: the holds are lost when their time is over by the client's clock, but a waiter's key or
// node is there as long as the session is, and with it the place in the queue.
type Session struct {
	Ctx     context.Context // ends when the session is known to be over, or the client closes; the cause says why
	Die     context.CancelCauseFunc
	Until   keeper.Until  // as long as it is certain
	Changed chan struct{} // closed, and replaced, when it has more time, or less
	Hurry   func()        // asks for more time now; nil where that comes by itself

	// guarded by the client's core
	asked   time.Time // when it asked for more time, until that is answered
	trouble error     // why that was not answered the last time
}

// NewSession makes one of a client.
func NewSession(life context.Context) Session {
	ctx, die := context.WithCancelCause(life)
	return Session{Ctx: ctx, Die: die, Changed: make(chan struct{})}
}

func (s *Session) base() *Session { return s }

// Over reports whether the servers do not know the session any more.
func (s *Session) Over() bool { return errors.Is(context.Cause(s.Ctx), lease.ErrLost) }

// LeftLocked is how long the session is certain.
func (s *Session) LeftLocked() time.Duration {
	return time.Until(s.Until.Deadline) - (keeper.Slept() - s.Until.Slept)
}

// ChangeLocked tells the waiters of a change.
func (s *Session) ChangeLocked() {
	close(s.Changed)
	s.Changed = make(chan struct{})
}

// ExtendLocked gives a session more time, and its holds. What was lost stays lost.
func (c *Core[S, T]) ExtendLocked(s S, u keeper.Until) {
	s.base().Until = u
	for _, t := range c.holdsLocked(s) {
		g := &t.base().Grip
		if !g.Extend(u) && errors.Is(g.cause(), lease.ErrLost) {
			c.loseLocked(t, lease.ErrExpired)
		}
	}
	s.base().ChangeLocked()
}

// AskLocked notes that a session asks for more time.
func (s *Session) AskLocked(at time.Time) { s.asked = at }

// AnswerLocked notes that it has been answered, or why not.
func (s *Session) AnswerLocked(trouble error) { s.asked, s.trouble = time.Time{}, trouble }

var (
	errNoSession = errors.New("there is no session")
	errSilent    = errors.New("no answer yet")
)

// Trouble is why the servers do not answer, as far as the session of the client knows: it has asked for more time in vain,
// or waits for the answer, or there is none.
func (c *Core[S, T]) Trouble() error {
	c.Lock()
	defer c.Unlock()
	if c.Session == *new(S) {
		return errNoSession
	}
	s := c.Session.base()
	if s.trouble == nil && !s.asked.IsZero() && time.Since(s.asked) > calls.SlowAnswer {
		return errSilent
	}
	return s.trouble
}

// FailingLocked notes why a session gets no more time: none since then.
func (c *Core[S, T]) FailingLocked(s S, since time.Time, why error) {
	for _, t := range c.holdsLocked(s) {
		t.base().Grip.Keeper.Failing(since, why)
	}
}

// ExpireLocked ends the holds: by the client's clock the session may be over. A waiter keeps its place, for what that is
// worth.
func (c *Core[S, T]) ExpireLocked(s S) {
	for _, t := range c.holdsLocked(s) {
		c.loseLocked(t, lease.ErrExpired)
	}
}

// holdsLocked are the tickets of a session that hold.
func (c *Core[S, T]) holdsLocked(s S) (all []T) {
	for _, t := range c.Tickets {
		if t.base().Session == s && t.base().Grip.Keeper != nil && !c.LeavingLocked(t) {
			all = append(all, t)
		}
	}
	return all
}

// loseLocked ends a hold whose key or node may be there.
func (c *Core[S, T]) loseLocked(t T, why error) {
	t.base().Grip.Lose(why)
	c.SweepLocked(t)
}

// BuryLocked ends a session that the servers do not know any more: all that it had there is gone.
func (c *Core[S, T]) BuryLocked(s S) {
	if c.Session == s {
		c.Session = *new(S)
	}
	cause := lease.ErrForgotten
	if s.base().LeftLocked() <= 0 {
		cause = lease.ErrExpired
	}
	s.base().Die(cause)
	for _, t := range c.Tickets {
		if t.base().Session == s {
			t.base().Grip.Lose(cause)
			c.DropLocked(t)
		}
	}
	s.base().ChangeLocked()
}

// confirm waits until the session has time.
func (c *Core[S, T]) confirm(ctx context.Context, s *Session) error {
	for {
		c.Lock()
		left, changed := s.LeftLocked(), s.Changed
		c.Unlock()
		if left > 0 {
			return nil
		}
		if s.Hurry != nil {
			s.Hurry()
		}
		select {
		case <-changed:
		case <-s.Ctx.Done():
			return context.Cause(s.Ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
