package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// Close comes while many calls are about to hold: each of them holds, and loses that, or is told of the end.
func TestAClientThatClosesAsItIsGrantedLocksGivesThemBack(t *testing.T) {
	const calls, rounds = 64, 20
	for kind, lock := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schema(t)
			conn := admin(t, url)
			for round := range rounds {
				c := dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns, o.MaxSessions = 16, 16 })
				first, stop := make(chan struct{}, calls), make(chan struct{})
				var all sync.WaitGroup
				all.Go(func() { c.Contend(stop) })
				for i := range calls {
					m := lock(c, fmt.Sprint(round, "/", i))
					all.Go(func() {
						l, err := m.Lock(t.Context())
						if err != nil {
							if !errors.Is(err, lease.ErrClosed) {
								t.Error(err)
							}
							return
						}
						first <- struct{}{}
						<-l.Context().Done()
						if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrClientClosed) {
							t.Errorf("a hold has ended with its client for the cause %q", cause)
						}
					})
				}
				<-first
				err := c.Close(t.Context())
				close(stop)
				all.Wait()
				require.NoError(t, err)
				require.Zero(t, count(t, conn, granted[kind]))
			}
		})
	}
}

// A slow server has been given much to do: each hold is given back, which takes longer than Close waits for an answer.
func TestCloseGivesAllBackForAsLongAsTheServerAnswers(t *testing.T) {
	t.Parallel()
	const holds, conns, slow = 40, 2, 200 * time.Millisecond
	url := schema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	c := dial(t, through, func(o *sqllock.Options) { o.Config.MaxConns = conns })
	for i := range holds {
		hold(t, lasting("leased", c, fmt.Sprint(i)))
	}
	p.Delay(slow)
	begun := time.Now()
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, count(t, conn, leftTickets))
	require.Greater(t, time.Since(begun), 6*time.Second, "it was no slow server")
}

// One name is locked by somebody for as long as he likes.
func TestCloseGivesUpWhatTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const holds = 64
	url := schema(t)
	conn := admin(t, url)
	c := dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns = 2 })
	for i := range holds {
		hold(t, lasting("leased", c, fmt.Sprint(i)))
	}
	_, err := begin(t, admin(t, url)).Exec(t.Context(), "SELECT headwaiter_enter('0')")
	require.NoError(t, err)
	done := kit.Run(func() error { return c.Close(context.Background()) })
	require.ErrorIs(t, done.Err(t), context.DeadlineExceeded)
	require.Equal(t, 1, count(t, conn, leftTickets), "the others are given back")
}
