package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Who takes and frees a lock that nobody else wants looks at its hash alone, and writes two fields of it.
func TestALockThatNobodyElseWantsIsItsHash(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithLease(15*time.Second)) // No renewal comes in between.
		kit.Release(t, hold(t, m))                                 // The first makes the keys live.
		s.ResetStats()
		const cycles = 10
		for range cycles {
			kit.Release(t, hold(t, m))
		}
		stats := s.CommandStats()
		for command, times := range map[string]int64{"evalsha": 2, "time": 1, "hmget": 2, "hset": 1, "hdel": 1} {
			require.Equal(t, times*cycles, stats[command], command)
			delete(stats, command)
		}
		require.Empty(t, stats)
		lock, _, _ := keysOf(kit.Name(t))
		l := hold(t, m)
		require.Equal(t, int64(4), s.Int("HLEN", lock), "owner, token, version and how long the key lives")
		kit.Release(t, l)
	})
}
