package countdown_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// view is a latch as one client sees it.
type view struct {
	*countdown.Latch
	client *headwaiter.Client
}

// dial returns the latch of the test as a new client sees it.
func dial(t testing.TB, s redistest.Backend, changes ...func(*headwaiter.Options)) view {
	t.Helper()
	c := kit.Dial(t, s, changes...)
	return view{countdown.New(c, kit.Name(t)), c}
}

// among runs a case on both servers in one client and in two: views(i) is that of the ith caller.
func among(t *testing.T, run func(t *testing.T, s redistest.Backend, views func(i int) view)) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, clients := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
				all := make([]view, clients)
				for i := range all {
					all[i] = dial(t, s)
				}
				run(t, s, func(i int) view { return all[i%clients] })
			})
		}
	})
}

// set closes the latch with a count.
func (v view) set(t testing.TB, n int64) {
	t.Helper()
	done, err := v.TrySetCount(context.Background(), n)
	require.NoError(t, err)
	require.True(t, done)
}

// down counts down by one, after which so many must be left.
func (v view) down(t testing.TB, left int64) {
	t.Helper()
	got, err := v.CountDown(context.Background())
	require.NoError(t, err)
	require.Equal(t, left, got)
}

// left is what the latch has left.
func (v view) left(t testing.TB) int64 {
	t.Helper()
	n, err := v.Count(context.Background())
	require.NoError(t, err)
	return n
}

// waits begins a call of Wait, and returns when its client hears of the latch.
func (v view) waits(t testing.TB, ctx context.Context) *kit.Call[struct{}] {
	t.Helper()
	before := v.client.Stats()
	c := kit.Run(func() error { return v.Wait(ctx) })
	kit.Eventually(t, "a wait that was answered, and a subscription", func() bool {
		now := v.client.Stats()
		return now.Asks > before.Asks && now.Subscribes > 0 && now.Checks > 0 || c.Returned()
	})
	return c
}

// gate says whether a latch may be passed yet; it has no waiter that passes before.
type gate struct {
	opened atomic.Bool
	early  atomic.Int64
}

// wait is Wait, and looks whether it came back in time.
func (g *gate) wait(v view) func() error {
	return func() error {
		err := v.Wait(context.Background())
		if err == nil && !g.opened.Load() {
			g.early.Add(1)
		}
		return err
	}
}

// open counts down by one, which opens the latch.
func (g *gate) open(t testing.TB, v view) {
	t.Helper()
	g.opened.Store(true)
	v.down(t, 0)
	require.Zero(t, g.early.Load(), "somebody has passed a closed latch")
}

// keysOf are the keys of a latch under the default prefix.
func keysOf(name string) (lock, calls string) {
	lock = "headwaiter:latch:{" + name + "}"
	return lock, lock + ":calls"
}

// channel is the one on which all who wait hear.
func (v view) channel() string {
	lock, _ := keysOf(v.Name())
	return lock + ":wake"
}
