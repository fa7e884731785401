package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// One of the names is lost when the release of all has begun: what is left to do is the release's.
func TestALossBesideTheReleaseOfSeveralNamesIsNoSecondRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		c, other := dial(t, s), dial(t, s)
		parts := []*lease.Lease{must.Got(queueOf(c, "a").Acquire(t.Context()))(t), must.Got(queueOf(c, "b").Acquire(t.Context()))(t)}
		all := keeper.New(t.Context(), keeper.Terms{Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
		all.End()
		require.NoError(t, must.Err(queueOf(other, "b").ForceRelease(t.Context(), parts[1].Token())))
		<-parts[1].Context().Done()
		require.ErrorIs(t, context.Cause(parts[1].Context()), lease.ErrForced)
		lostOne(all, parts, parts[1])
		require.NoError(t, parts[0].Context().Err(), "it is the release's to give back")
		require.ErrorIs(t, releaseParts(t.Context(), parts, len(parts)), lease.ErrForced)
		require.ErrorIs(t, context.Cause(parts[0].Context()), lease.ErrReleased)
	})
}

func TestANameThatAllHaveTwiceIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		q := queueOf(dial(t, redistest.Bubble(t)), "name")
		require.ErrorIs(t, must.Err(AcquireAll(t.Context(), []Queue{q, q}, 0)), lease.ErrInvalid)
		require.Equal(t, begun, time.Now())
	})
}
