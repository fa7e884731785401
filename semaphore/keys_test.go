package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// lives is for how long the longest of a semaphore's keys lives.
func lives(t *testing.T, s redistest.Backend) time.Duration {
	t.Helper()
	var longest int64
	for _, key := range lua.Semaphore.Keys("headwaiter", kit.Name(t)).All() {
		longest = max(longest, s.Int("PTTL", key))
	}
	return time.Duration(longest) * time.Millisecond
}

// Whichever of the holds ends last, and whether somebody waits.
func TestKeysAreNotKeptForALeaseThatIsOver(t *testing.T) {
	for name, waits := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				short := semaphore.New(c, kit.Name(t), 2)
				var held []*lease.Lease
				for _, m := range []*semaphore.Semaphore{semaphore.New(c, kit.Name(t), 2, headwaiter.WithLease(24*time.Hour)), short} {
					l, err := m.Acquire(t.Context(), 1)
					require.NoError(t, err)
					held = append(held, l)
				}
				require.Greater(t, lives(t, s), 23*time.Hour)
				if waits {
					next := kit.Go(func() (*lease.Lease, error) { return short.Acquire(t.Context(), 1) })
					kit.Waiting(t, 1, short.Inspect)
					kit.Release(t, held[0])
					held[0] = next.Value(t)
					require.Less(t, lives(t, s), 3*time.Minute)
				}
				for _, l := range held {
					kit.Release(t, l)
				}
				require.Less(t, lives(t, s), 2*time.Minute)
			})
		})
	}
}

// Where the key is gone tokens begin at the clock.
func TestAKeyLivesUntilItsTokenIsNotAheadOfTheClock(t *testing.T) {
	for name, d := range map[string]time.Duration{"a short lease": 10 * time.Second, "a long lease": time.Minute} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				waitqueue.Above(c, uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
				for range 2 {
					l, err := semaphore.New(c, kit.Name(t), 2, headwaiter.WithLease(d)).Acquire(t.Context(), 1)
					require.NoError(t, err)
					require.Greater(t, lives(t, s), time.Hour-kit.Patience)
					kit.Release(t, l)
					require.Greater(t, lives(t, s), time.Hour-kit.Patience)
				}
			})
		})
	}
}
