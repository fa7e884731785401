//go:build !race

package fairlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Eleven objects are this library's and two of rueidis. The race detector empties pools at random, so it counts others. The
// server is another process, as what it allocates would count here.
func TestAnUncontendedCycleAllocatesLittle(t *testing.T) {
	m, ctx := dialMutex(t, redistest.Start(t)), t.Context()
	cycle := func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	cycle()
	require.LessOrEqual(t, testing.AllocsPerRun(200, cycle), 16.0)
}
