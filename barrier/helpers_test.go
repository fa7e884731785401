package barrier_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// atOnce is long before the end of a lease, on a busy machine too.
const atOnce = lease.DefaultLease / 2

// hears is within which time a party that hears nothing finds out by its checks.
const hears = 3 * time.Second

// view is a barrier as one client sees it.
type view struct {
	*barrier.Barrier
	client *headwaiter.Client
	opts   []barrier.Option
}

// dial returns the barrier of the test as a new client sees it.
func dial(t testing.TB, s redistest.Backend, parties int, opts ...barrier.Option) view {
	t.Helper()
	return on(t, kit.Dial(t, s), parties, opts...)
}

// on returns the barrier of the test as a client sees it.
func on(t testing.TB, c *headwaiter.Client, parties int, opts ...barrier.Option) view {
	return view{barrier.New(c, kit.Name(t), parties, opts...), c, opts}
}

// among runs a case on both servers in one client and in two, for so many parties: views(i) is the barrier of the
// ith.
func among(t *testing.T, parties int, run func(t *testing.T, s redistest.Backend, views func(i int) view)) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, clients := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
				all := make([]view, clients)
				for i := range all {
					all[i] = dial(t, s, parties)
				}
				run(t, s, func(i int) view { return all[i%clients] })
				rest(t, all[0])
				meet(t, func(i int) view { return all[i%clients] })
				kit.Expiring(t, s)
			})
		}
	})
}

// party begins a call of Await.
func (v view) party(ctx context.Context) *kit.Call[int] {
	return kit.Go(func() (int, error) { return v.Await(ctx) })
}

// comes begins a call of Await, and returns when so many parties wait, of which it is one.
func (v view) comes(t testing.TB, ctx context.Context, n int) *kit.Call[int] {
	t.Helper()
	c := v.party(ctx)
	kit.Waiting(t, n, v.Inspect)
	return c
}

// with returns the barrier with another option.
func (v view) with(t testing.TB, o barrier.Option) view {
	return on(t, v.client, v.Parties(), append(slices.Clone(v.opts), o)...)
}

// gathers lets all parties but the last come.
func gathers(t testing.TB, views func(i int) view) (calls []*kit.Call[int]) {
	t.Helper()
	n := views(0).Parties()
	for i := range n - 1 {
		calls = append(calls, views(i).comes(t, context.Background(), i+1))
	}
	return calls
}

// pass asserts that all parties pass, each with the place in which it came.
func pass(t testing.TB, calls ...*kit.Call[int]) {
	t.Helper()
	for i, c := range calls {
		require.Equal(t, len(calls)-1-i, c.Value(t))
	}
}

// fail asserts that all parties find the barrier broken.
func fail(t testing.TB, calls ...*kit.Call[int]) {
	t.Helper()
	for _, c := range calls {
		require.ErrorIs(t, c.Err(t), barrier.ErrBroken)
	}
}

// meet lets all parties come, one after the other, and pass.
func meet(t testing.TB, views func(i int) view) {
	t.Helper()
	calls := gathers(t, views)
	for _, c := range calls {
		require.False(t, c.Returned())
	}
	last := views(len(calls))
	pass(t, append(calls, last.party(context.Background()))...)
}

// rest makes a barrier ready that may be broken.
func rest(t testing.TB, v view) {
	t.Helper()
	require.NoError(t, v.Reset(context.Background()))
	require.False(t, v.broken(t))
	kit.Waiting(t, 0, v.Inspect)
}

func (v view) broken(t testing.TB) bool {
	t.Helper()
	broken, err := v.Broken(context.Background())
	require.NoError(t, err)
	return broken
}

func (v view) inspect(t testing.TB) lease.Info {
	t.Helper()
	info, err := v.Inspect(context.Background())
	require.NoError(t, err)
	return info
}

// lockOf is the key of a barrier under the default prefix.
func lockOf(name string) string { return "headwaiter:barrier:{" + name + "}" }
