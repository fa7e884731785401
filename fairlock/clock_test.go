package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// What the clock of a client shows is nobody's business: whatever the server's shows, calls are served, and
// those that it refuses as late are few.
func TestClientsAndServerNeedNotAgreeOnTheTime(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
		t.Run(apart.String(), func(t *testing.T) {
			t.Parallel()
			s := redistest.Mini(t)
			s.Miniredis().SetTime(time.Now().Add(apart))
			m, other := dialMutex(t, s), dialMutex(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience/4)
			defer cancel()
			l, err := m.TryLock(ctx)
			require.NoError(t, err)
			c := begin(ctx, other)
			queued(t, m, 1)
			kit.Release(t, l)
			l = c.Value(t)
			require.InDelta(t, kit.ServerTime(s), l.Token(), float64(time.Minute.Microseconds()), "a token is the server's time")
			kit.Release(t, l)
			kit.Free(t, m)
		})
	}
}
