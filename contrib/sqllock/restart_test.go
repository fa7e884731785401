package sqllock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAServerThatIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	url := s.URL("postgres") + "&synchronous_commit=on" // The servers of tests forget what was committed last.
	exec(t, admin(t, url), sqllock.Schema)
	c, other := dial(t, url), dial(t, url)
	session, kept := hold(t, sqllock.NewSession(c, "a")), hold(t, sqllock.NewLeased(c, "a", sqllock.WithLease(time.Minute)))
	waits := kit.Lock(t.Context(), sqllock.NewSession(other, "a").Lock)
	queued(t, sqllock.NewSession(c, "a"), 1)
	follows := kit.Lock(t.Context(), sqllock.NewLeased(other, "a").Lock)
	queued(t, sqllock.NewLeased(c, "a"), 1)

	begun := time.Now()
	require.NoError(t, s.Restart())
	require.ErrorIs(t, kit.Lost(t, session), lease.ErrForgotten, "all sessions have ended")
	t.Logf("back after %v", time.Since(begun))
	next := waits.Value(t)
	require.Greater(t, next.Token(), session.Token())
	kit.Release(t, next)

	require.NoError(t, kept.Context().Err(), "leases outlast the server")
	require.False(t, follows.Returned())
	require.NoError(t, kept.Release(t.Context()))
	last := follows.Value(t)
	require.Greater(t, last.Token(), next.Token(), "a token came twice")
	kit.Release(t, last)
}
