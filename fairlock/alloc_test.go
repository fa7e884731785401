//go:build !race

package fairlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// A cycle allocates nine objects, none of them by rueidis: the call with its ticket, the ticket's text and the request's last time,
// the hold with its lease, three of the lease's context, and for each request the context that rueidis gets. The race detector
// empties pools at random, so it counts others. The server is another process, as what it allocates would count here.
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
	require.LessOrEqual(t, testing.AllocsPerRun(200, cycle), 11.0)
}
