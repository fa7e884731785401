package reentrant_test

import (
	"context"
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

// Nobody has looked at the clock since the end of the lease: the client's timers are late.
func TestAReleaseAfterTheEndOfTheLeaseEndsAllEntries(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var late kit.Stall
		c := kit.Dial(t, s, late.Option)
		m := reentrant.New(c, kit.Name(t), headwaiter.WithLease(2*time.Second))
		outer := hold(t, t.Context(), m)
		work, cancel := context.WithTimeout(outer.Context(), time.Hour)
		defer cancel()
		middle := hold(t, work, m)
		inner := hold(t, middle.Context(), m)
		done := []<-chan struct{}{outer.Context().Done(), middle.Context().Done(), work.Done()}
		late.Begin(t, c)
		synctime.Pass(3 * time.Second)
		other := reentrant.New(kit.Dial(t, s), kit.Name(t))
		next := hold(t, t.Context(), other)

		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrExpired)
		for _, ended := range done { // Of those whom nobody asks.
			kit.Await(t, ended, "a context of another entry to end")
		}
		require.ErrorIs(t, context.Cause(work), lease.ErrExpired)
		require.ErrorIs(t, outer.Release(t.Context()), lease.ErrExpired)
		require.ErrorIs(t, middle.Release(t.Context()), lease.ErrExpired)
		require.NoError(t, next.Context().Err())
		require.EqualValues(t, 1, c.Stats().Lost, "it is one loss")
		late.End(t)
		kit.Release(t, next)
		require.NoError(t, c.Close(t.Context()), "nothing of it is left")
	})
}
