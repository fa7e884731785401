package etcdlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// next waits for news until a value and a token are told.
func next(t *testing.T, news <-chan lease.Leader, value string, token uint64) {
	t.Helper()
	seen := kit.Go(func() (string, error) {
		for l := range news {
			if l.Value == value && l.Token == token {
				return l.Value, l.Err
			}
		}
		return "no more news", nil
	})
	require.Equal(t, value, seen.Value(t))
}

func TestLeadersInTurnAreObserved(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	a, b, watching := dial(t, s), dial(t, s), dial(t, s)
	one, two := etcdlock.NewElection(a, "one"), etcdlock.NewElection(b, "one")
	looks := etcdlock.NewElection(watching, "one")
	_, err := looks.Leader(t.Context())
	require.ErrorIs(t, err, lease.ErrNoLeader)
	ctx, cancel := context.WithCancel(t.Context())
	news := looks.Observe(ctx)
	next(t, news, "", 0)

	l, err := one.Campaign(t.Context(), "first")
	require.NoError(t, err)
	next(t, news, "first", l.Token())
	other := kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) { return two.Campaign(ctx, "second") })
	root := admin(t, s)
	kit.Eventually(t, "another candidate", func() bool { return keys(t, root).Count == 2 })
	require.NoError(t, one.Proclaim(t.Context(), l, "first again"))
	next(t, news, "first again", l.Token())
	require.ErrorIs(t, two.Proclaim(t.Context(), l, "not mine"), lease.ErrNotHeld)

	kit.Release(t, l)
	later := other.Value(t)
	require.Greater(t, later.Token(), l.Token())
	next(t, news, "second", later.Token())
	require.ErrorIs(t, one.Proclaim(t.Context(), l, "late"), lease.ErrReleased)
	who, err := looks.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "second", who.Value)
	require.True(t, strings.HasPrefix(who.Who, "test@"), who.Who)

	// Taken away: the leader learns it from its proclamation.
	_, err = looks.ForceRelease(t.Context(), later.Token())
	require.NoError(t, err)
	require.ErrorIs(t, two.Proclaim(t.Context(), later, "third"), lease.ErrLost)
	require.ErrorIs(t, kit.Lost(t, later), lease.ErrForced)
	next(t, news, "", 0)
	cancel()
	kit.Eventually(t, "the channel to be closed", func() bool { _, open := <-news; return !open })
	empty(t, root)
}

func TestAnObservationEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	c := dial(t, s)
	e := etcdlock.NewElection(c, "one")
	news := e.Observe(t.Context())
	next(t, news, "", 0)
	require.NoError(t, c.Close(t.Context()))
	last, open := <-news
	require.True(t, open)
	require.ErrorIs(t, last.Err, lease.ErrClosed)
	_, open = <-news
	require.False(t, open)
	require.ErrorIs(t, (<-e.Observe(t.Context())).Err, lease.ErrClosed)
}

// The server has not yet confirmed the watch of an observation that ends right behind its first news.
func TestObservationsThatEndAtOnceLeaveNoWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	c := dial(t, s, lasting(kit.Patience))
	l := locked(t, etcdlock.New(c, "other")) // Its client listens on, by the connection that the watches have too.
	e := etcdlock.NewElection(c, "one")
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		news := e.Observe(ctx)
		require.NoError(t, (<-news).Err)
		cancel()
		_, more := <-news
		require.False(t, more)
	}
	kit.Eventually(t, "one watch to be left", func() bool { return watches(t, s) == 1 })
	kit.Release(t, l)
}

// A proclamation whose answer is lost is not made twice; one that comes late replaces nothing.
func TestAProclamationThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	var l loser
	e, root := etcdlock.NewElection(dial(t, s, l.option), "one"), admin(t, s)
	held, err := e.Campaign(t.Context(), "a")
	require.NoError(t, err)
	l.lose(txnMethod, 2, nil)
	require.NoError(t, e.Proclaim(t.Context(), held, "b"))
	require.EqualValues(t, 2, keys(t, root).Kvs[0].Version)

	late := make(chan struct{})
	l.lose(txnMethod, 1<<30, late)
	ctx, cancel := context.WithCancel(t.Context())
	unsure := kit.Run(func() error { return e.Proclaim(ctx, held, "c") })
	kit.Eventually(t, "the request to be on its way", l.begun)
	cancel()
	err = unsure.Err(t)
	require.ErrorIs(t, err, lease.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	l.lose(txnMethod, 0, nil)
	require.NoError(t, e.Proclaim(t.Context(), held, "b"), "what it is as yet")
	close(late)
	l.done.Wait()
	who, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b", who.Value)
	require.ErrorIs(t, e.Proclaim(t.Context(), nil, "d"), lease.ErrNotHeld)
	kit.Release(t, held)
}
