package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

var (
	errPasses = errors.New("passes")
	errStays  = errors.New("stays")
)

func passes(err error) bool { return errors.Is(err, errPasses) }

// told answers with one error after the other, and then with none.
func told(errs ...error) func() (string, error) {
	return func() (string, error) {
		if len(errs) == 0 {
			return "answer", nil
		}
		err := errs[0]
		errs = errs[1:]
		return "", err
	}
}

func TestARequestIsSentAgainAfterErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		answer, attempts, err := Insist(ctx, ctx, passes, told())
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
		require.Equal(t, 1, attempts)

		answer, attempts, err = Insist(ctx, ctx, passes, told(errPasses, errPasses))
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
		require.Equal(t, 3, attempts, "an earlier one may have had its effect")

		_, attempts, err = Insist(ctx, ctx, passes, told(errPasses, errStays, errPasses))
		require.ErrorIs(t, err, errStays)
		require.Equal(t, 2, attempts)

		away := func() (int, error) { return 0, errPasses }
		for range 2 {
			begun := time.Now()
			over, cancel := context.WithTimeout(ctx, time.Minute)
			_, attempts, err = Insist(over, ctx, passes, away)
			require.ErrorIs(t, err, errPasses)
			require.Greater(t, attempts, 10)
			require.Equal(t, time.Minute, time.Since(begun))
			_, _, err = Insist(ctx, over, passes, away)
			require.ErrorIs(t, err, errPasses, "the other has ended")
			cancel()
		}
	})
}

// A place is a session of an engine that there is none of, and a guest a ticket.
type (
	place struct {
		Session
		ended bool
	}
	guest struct{ Ticket[*place] }
)

func (p *place) Live()                     { <-p.Ctx.Done() }
func (p *place) End(context.Context) error { p.ended = true; return nil }

// coreOf opens sessions that are certain for a minute, and erases as it is told to.
func coreOf(t *testing.T, erase func([]*guest) bool) *Core[*place, *guest] {
	var c *Core[*place, *guest]
	c = NewCore(t.Context(), nil, func() (*place, error) {
		p := &place{Session: NewSession(c.Life)}
		p.Until = keeper.Until{Deadline: time.Now().Add(time.Minute), Slept: keeper.Slept()}
		return p, nil
	}, erase)
	t.Cleanup(func() { shut(t, c) })
	return c
}

func shut(t *testing.T, c *Core[*place, *guest]) {
	require.NoError(t, c.Close(context.Background(), func(err error) error { return err }))
}

// come makes a ticket in the present session, and the lease on it.
func come(t *testing.T, c *Core[*place, *guest], id string) (*guest, *lease.Lease) {
	p := kit.Got(c.Current(t.Context()))(t)
	g := &guest{NewTicket(p, id, "name")}
	c.Lock()
	c.Tickets[id] = g
	c.Unlock()
	l := kit.Got(c.Hold(t.Context(), g, keeper.Terms{Release: func(context.Context) error { return nil }}, Limits{}))(t)
	return g, l
}

func TestAClientKeepsFewGoroutinesAndNoneWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coreOf(t, nil)
		for range 3 {
			var all sync.WaitGroup
			begin := make(chan struct{})
			for range 10 * mostIdle {
				all.Add(1)
				require.NoError(t, c.Spawn(func() { <-begin; all.Done() }))
			}
			close(begin)
			all.Wait()
			synctest.Wait()
			require.EqualValues(t, mostIdle, c.rest.Load(), "the others have ended")
		}
		shut(t, c) // It waits for all.
		require.ErrorIs(t, c.Spawn(func() {}), lease.ErrClosed)
	})
}

func TestAllWhoNeedASessionWaitForTheSameOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		answers, opened := make(chan struct{}), []*place{}
		c := coreOf(t, nil)
		open := c.open
		c.open = func() (*place, error) {
			<-answers
			if err != nil {
				return nil, err
			}
			p, err := open()
			opened = append(opened, p)
			return p, err
		}
		ended, end := context.WithCancelCause(t.Context())
		end(errStays)
		_, gone := c.Current(ended)
		require.ErrorIs(t, gone, errStays)
		got := make(chan *place, 2)
		wait := func() {
			p, _ := c.Current(t.Context())
			got <- p
		}
		go wait()
		go wait()
		synctest.Wait()
		require.Empty(t, got)
		answers <- struct{}{}
		require.Same(t, <-got, <-got)

		c.Lock()
		c.BuryLocked(c.Session)
		c.Unlock()
		err = errPasses
		go func() { answers <- struct{}{} }()
		_, failed := c.Current(t.Context())
		require.ErrorIs(t, failed, errPasses)

		err = nil
		go func() { _, _ = c.Current(t.Context()) }()
		synctest.Wait()
		go shut(t, c)
		synctest.Wait()
		answers <- struct{}{}
		shut(t, c)
		require.Len(t, opened, 2)
		require.True(t, opened[1].ended, "it came as the client closed")
	})
}

func TestAHoldBeginsWhenItsSessionHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coreOf(t, nil)
		p := kit.Got(c.Current(t.Context()))(t)
		time.Sleep(2 * time.Minute) // Of the bubble.
		hurried := make(chan struct{}, 1)
		p.Hurry = func() { hurried <- struct{}{} }
		go func() {
			<-hurried
			c.Lock()
			defer c.Unlock()
			c.ExtendLocked(p, keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()})
		}()
		_, l := come(t, c, "one")
		require.Equal(t, time.Now().Add(time.Hour), l.Deadline())
		shut(t, c)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrClientClosed)
		require.True(t, p.ended)
	})
}

func TestWhatEndsInTheBackgroundIsTriedUntilItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Core[*place, *guest]
		tries := 0
		c = coreOf(t, func(batch []*guest) bool {
			if tries++; tries < 3 {
				return false
			}
			c.Lock()
			defer c.Unlock()
			for _, g := range batch {
				c.DropLocked(g)
				g.End(context.Canceled)
			}
			return true
		})
		g, l := come(t, c, "one")
		c.Lock()
		c.ExpireLocked(g.Session)
		c.Unlock()
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrExpired)
		require.NoError(t, c.BehindEnds(t.Context(), "other"))
		require.NoError(t, c.BehindEnds(t.Context(), "name"))
		require.Equal(t, 3, tries)
		require.Empty(t, c.Tickets)
	})
}
