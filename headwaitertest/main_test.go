package headwaitertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// bubble runs a case with a server in a bubble.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// both runs a case in a bubble and outside.
func both(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	t.Run("in a bubble", func(t *testing.T) { bubble(t, run) })
	t.Run("by the clock on the wall", func(t *testing.T) {
		t.Parallel()
		run(t, headwaitertest.Start(t))
	})
}

// length is the lease of the locks here: as short as outside a bubble it may be on a busy machine.
const length = 2 * time.Second

// lock takes a lock and fails the test if that cannot be.
func lock(t testing.TB, m *fairlock.Mutex) *lease.Lease {
	t.Helper()
	held, err := m.Lock(context.Background())
	require.NoError(t, err)
	return held
}

// queue begins a call that waits for m, and returns when it stands in the queue as the nth.
func queue(t testing.TB, m *fairlock.Mutex, n int) *kit.Call[*lease.Lease] {
	t.Helper()
	c := kit.Lock(context.Background(), m.Lock)
	kit.Waiting(t, n, m.Inspect)
	return c
}
