package zklock_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// The library waits for a second for the answer to its farewell, or longer. Of some attempts one must be quicker, on
// whatever machine.
func TestCloseEndsWithItsContextThoughTheServerIsSilent(t *testing.T) {
	s := zktest.Shared(t)
	for name, prepare := range map[string]func(t *testing.T, m *zklock.Mutex, r *zktest.Relay){
		"before there is a session": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			r.Freeze()
			call := kit.Lock(t.Context(), m.Lock)
			kit.Eventually(t, "a connection", func() bool { return r.Connections() > 0 })
			t.Cleanup(func() { require.Error(t, call.Err(t)) })
		},
		"in a session": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			locked(t, m)
			r.Freeze()
		},
		"between two connections": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			locked(t, m)
			r.Freeze()
			r.Cut()
			kit.Eventually(t, "another connection", func() bool { return r.Connections() > 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			const attempts, limit = 5, 50 * time.Millisecond
			best := time.Hour
			for range attempts {
				r := zktest.NewRelay(t, s)
				c := dial(t, s, through(r), lasting(kit.Patience))
				prepare(t, zklock.New(c, rand.Text()), r)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				begun := time.Now()
				_ = c.Close(ctx)
				best = min(best, time.Since(begun))
				cancel()
			}
			require.Less(t, best, time.Second/2)
		})
	}
}
