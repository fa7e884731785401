package countdown_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestACountAndAPassAreOneScriptAndNothingElse(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const n = 100
		v := dial(t, s)
		v.set(t, n+2)
		v.down(t, n+1)
		s.ResetStats()
		for i := range int64(n) {
			v.down(t, n-i)
		}
		require.Equal(t, map[string]int64{"evalsha": n}, kit.Scripts(s))
		v.down(t, 0)
		require.NoError(t, v.Wait(t.Context()))
		s.ResetStats()
		for range n {
			require.NoError(t, v.Wait(t.Context()))
		}
		require.Equal(t, map[string]int64{"evalsha": n}, kit.Scripts(s))
	})
}

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
	return on(t, kit.Dial(t, s, changes...))
}

// on returns the latch of the test as a client sees it.
func on(t testing.TB, c *headwaiter.Client) view { return view{countdown.New(c, kit.Name(t)), c} }

// passed asserts that all waits pass.
func passed(t testing.TB, calls ...*kit.Call[struct{}]) {
	t.Helper()
	for _, c := range calls {
		require.NoError(t, c.Err(t))
	}
}

// set closes the latch with a count.
func (v view) set(t testing.TB, n int64) {
	t.Helper()
	require.True(t, kit.Got(v.TrySetCount(context.Background(), n))(t))
}

// down counts down by one, after which left must be left.
func (v view) down(t testing.TB, left int64) {
	t.Helper()
	require.Equal(t, left, kit.Got(v.CountDown(context.Background()))(t))
}

// left is what the latch has left.
func (v view) left(t testing.TB) int64 {
	t.Helper()
	return kit.Got(v.Count(context.Background()))(t)
}

// waits begins a call of Wait, and returns when its client hears of the latch.
func (v view) waits(t testing.TB, ctx context.Context) *kit.Call[struct{}] {
	t.Helper()
	before := v.client.Stats()
	c := kit.Run(func() error { return v.Wait(ctx) })
	kit.Eventually(t, "a wait that was answered, and a subscription", func() bool {
		now := v.client.Stats()
		return now.AcquireRequests > before.AcquireRequests && now.Subscribes > 0 && now.Checks > 0 || c.Returned()
	})
	return c
}

// keyOf is the key of a latch under the default prefix.
func keyOf(name string) string { return "headwaiter:latch:{" + name + "}" }

func TestTheLargestCountIsExact(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s)
		for _, n := range []int64{countdown.MaxCount + 1, countdown.MaxCount + 2, math.MaxInt64} {
			done, err := v.TrySetCount(t.Context(), n)
			require.False(t, done)
			require.ErrorIs(t, err, lease.ErrTooLarge)
		}
		require.EqualValues(t, 1<<53-1, countdown.MaxCount)
		v.set(t, countdown.MaxCount)
		for i := range int64(10) {
			require.EqualValues(t, countdown.MaxCount-i, v.left(t))
			v.down(t, countdown.MaxCount-i-1)
		}
		require.EqualValues(t, countdown.MaxCount, kit.Got(v.Inspect(t.Context()))(t).Limit)
	})
}

func TestAnOpeningThatMayNotBePublishedIsAnErrorAndOpensAllTheSame(t *testing.T) {
	s := kit.Start(t)
	v, other := dial(t, s), dial(t, s)
	v.set(t, 2)
	v.down(t, 1)
	c := other.waits(t, t.Context())
	s.Do("ACL", "SETUSER", "default", "-publish")
	begun := time.Now()
	left, err := v.CountDown(t.Context())
	require.ErrorIs(t, err, lease.ErrUnwoken)
	require.Zero(t, left)
	require.NoError(t, c.Err(t))
	require.Less(t, time.Since(begun), 2*hears)
	require.Zero(t, v.left(t))
	removed, err := v.Remove(t.Context())
	require.ErrorIs(t, err, lease.ErrUnwoken)
	require.True(t, removed)
}

// The behaviour that the JSR-166 TCK tests in CountDownLatchTest: the names in quotes are cases of package
// conformance.
//
//	testConstructor               "only a count of at least one can be set, and only once": a latch is made to be waited for
//	testGetCount, testCountDown   TestTheLargestCountIsExact (input_test.go), "counts of many clients are each told apart"
//	testAwait, testTimedAwait     "all wait for the last count, also those who come late"
//	testAwait_Interruptible,
//	testTimedAwait_Interruptible,
//	testAwaitTimeout              "a wait that is cancelled changes nothing"
//	testToString                  TestInspectTellsStateAndCount

func TestInspectTellsStateAndCount(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		v := on(t, a)
		tells := func(state string, initial, left int64) lease.Info {
			info := kit.Got(on(t, b).Inspect(t.Context()))(t)
			require.Equal(t, state, info.State)
			require.Equal(t, initial, info.Limit)
			require.Equal(t, left, info.Used)
			require.False(t, info.Held)
			return info
		}
		tells("unset", 0, 0)
		v.set(t, 2)
		first := tells("closed", 2, 2).Token
		v.down(t, 1)
		require.Equal(t, first, tells("closed", 2, 1).Token)
		v.down(t, 0)
		require.Equal(t, first, tells("open", 2, 0).Token)
		v.set(t, 7)
		require.Greater(t, tells("closed", 7, 7).Token, first, "each setting is a generation of its own")
	})
}

// What a process has counted stays counted, and nobody waits for those it leaves waiting.
func TestAKilledProcessLeavesItsCountsAndNothingElse(t *testing.T) {
	s := kit.Start(t)
	v := dial(t, s)
	v.set(t, 2)
	victim := crowd.Start(t, crowd.Plan{Addr: s.Addr(), Kind: crowd.Latch, Names: []string{v.Name()}, Clients: 1, Waiters: 5})
	here := v.waits(t, t.Context())
	kit.Waiting(t, 2, v.Inspect)
	victim.CountDown()
	victim.Await(crowd.Counted, 1, kit.Patience)
	victim.Kill()
	kit.Waiting(t, 1, v.Inspect)
	require.EqualValues(t, 1, v.left(t))
	v.down(t, 0)
	require.NoError(t, here.Err(t))
}
