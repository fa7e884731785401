package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestPermitsThatRestAreFreedByForceAndUnusedOnesAtOnce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := semaphore.New(c, kit.Name(t), 3, headwaiter.WithMinHold(time.Minute))
		few := semaphore.New(c, kit.Name(t), 3, headwaiter.WithMinHold(time.Minute), headwaiter.WithReplicas(9, 10*time.Millisecond))
		require.ErrorIs(t, kit.Err(few.Acquire(t.Context(), 2)), lease.ErrReplicas)
		require.EqualValues(t, 3, kit.Got(m.Available(t.Context()))(t))
		l := kit.Got(m.Acquire(t.Context(), 2))(t)
		kit.Release(t, l)
		require.EqualValues(t, 1, kit.Got(m.Available(t.Context()))(t))
		require.NoError(t, kit.Err(m.ForceRelease(t.Context(), l.Token())))
		require.EqualValues(t, 3, kit.Got(m.Available(t.Context()))(t))
	})
}
