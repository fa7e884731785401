package semaphore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/semaphore"
)

// The first use of a name makes the semaphore, and that is refused as what would take of one that is there.
func TestAFullMemoryRefusesNewCallsAndLeavesNothingOfThem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := kit.Dial(t, s)
	used, unused := semaphore.New(c, kit.Name(t), 3), semaphore.New(c, kit.Name(t)+":new", 3)
	l := take(t, used, 1)
	before := s.Keys()

	s.Do("CONFIG", "SET", "maxmemory", "1")
	for _, m := range []*semaphore.Semaphore{used, unused} {
		_, err := m.TryAcquire(t.Context(), 1)
		require.ErrorContains(t, err, "OOM")
		require.ErrorContains(t, ask(t.Context(), m, 1).Err(t), "OOM")
	}
	require.ElementsMatch(t, before, s.Keys())
	kit.Release(t, l)

	s.Do("CONFIG", "SET", "maxmemory", "0")
	kit.Release(t, take(t, unused, 3))
}
