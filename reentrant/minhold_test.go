package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

func TestANameStaysTakenAfterTheLastOfItsLeases(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := reentrant.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithMinHold(time.Minute)), reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		inner := hold(t, outer.Context(), m)
		entries(t, other, 2)
		kit.Release(t, inner)
		synctime.Pass(10 * time.Second)
		require.NoError(t, outer.Context().Err())
		require.False(t, kit.Got(other.Inspect(t.Context()))(t).Holder.Rests)
		kit.Release(t, outer)
		require.True(t, kit.Got(other.Inspect(t.Context()))(t).Holder.Rests)
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		synctime.Pass(time.Minute)
		kit.Release(t, hold(t, t.Context(), m))
	})
}
