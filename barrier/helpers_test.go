package barrier_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestALonePartyIsOneScriptAndOneMoreForItsAction(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const n = 100
		plain := dial(t, s, 1)
		acting := plain.with(t, barrier.WithAction(func(context.Context) error { return nil }))
		for i, v := range []view{plain, acting} {
			require.NoError(t, kit.Err(v.Await(t.Context())))
			// While an action runs, its party listens, which takes a look: once in the life of a client. Each script is
			// sent in full once: the probe (twice, see there), which master it is, who the client is, and the ask of the one; the opening and
			// the look of the other.
			kit.Eventually(t, "what the first call began", func() bool {
				return kit.Scripts(s)["eval"] == []int64{5, 2}[i] && len(s.List("PUBSUB", "CHANNELS")) == i
			})
			looked := v.client.Stats().Checks
			s.ResetStats()
			for range n {
				require.NoError(t, kit.Err(v.Await(t.Context())))
			}
			var got map[string]int64
			kit.Eventually(t, "the scripts of the calls, without looks", func() bool { // One may be on its way.
				got = kit.Scripts(s)
				return got["evalsha"]-int64(v.client.Stats().Checks-looked) == int64((i+1)*n)
			})
			require.EqualValues(t, n, got["publish"])
			require.Zero(t, got["subscribe"])
		}
	})
}

// A party that has passed, but has not heard of it before its generation and others are over, asks again. It
// may be told that it has passed, or that nothing is known of it any more; it is no arrival of the generation
// that it finds.
func TestAPartyThatAsksAgainGenerationsLaterDoesNotComeAgain(t *testing.T) {
	for _, later := range []int{0, 1, 2, 3} {
		kit.BubbleOf(t, string(rune('0'+later)), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			far, near := on(t, kit.Dial(t, s, kit.Over(d)), 2), dial(t, s, 2)
			meet(t, turns(far, near))

			first := near.comes(t, t.Context(), 1)
			d.LoseReplies(1, kit.Runs(lua.Barrier.Ask))
			lost := far.party(t.Context())
			kit.LostReplies(t, d.Faults, 1)
			d.Refuse() // Until the others have met a few times.
			d.Cut()
			require.Equal(t, 1, first.Value(t))
			for range later {
				meet(t, func(int) view { return near })
			}
			alone := near.comes(t, t.Context(), 1)
			d.Heal()
			synctime.Pass(10 * time.Second)
			require.True(t, lost.Returned(), "it waits in a generation that is not its own")
			if err := lost.Err(t); err != nil {
				require.ErrorIs(t, err, barrier.ErrBroken)
			}
			require.False(t, alone.Returned())
			require.Equal(t, 1, near.inspect(t).Waiting)
			pass(t, alone, far.party(t.Context()))
		})
	}
}

// The others wait for the outcome, so it is told again, and not given up at the first answer.
func TestTheOutcomeOfAnActionIsToldAgainToAServerWithAFullDisk(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		first, last := dial(t, s, 2), dial(t, s, 2, barrier.WithAction(func(context.Context) error {
			refusal := "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
			s.Answer("EVALSHA", refusal)
			time.AfterFunc(2*time.Second, func() { s.Answer("EVALSHA", "") })
			return nil
		}))
		other := first.party(t.Context())
		synctest.Wait()
		require.NoError(t, last.party(t.Context()).Err(t))
		require.NoError(t, other.Err(t))
	})
}

func TestTheLargestNumberOfPartiesIsKept(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		kit.Fails(t, kit.Err(barrier.New(c, "name", barrier.MaxParties+1).Await(t.Context())), lease.ErrTooLarge, "at most 10000")
		for _, n := range []int{1, 7, barrier.MaxParties} {
			require.Equal(t, n, barrier.New(c, "name", n).Parties())
		}
		b := barrier.New(c, "name", barrier.MaxParties)
		_ = kit.Go(func() (int, error) { return b.Await(t.Context()) })
		kit.Waiting(t, 1, b.Inspect)
		require.EqualValues(t, barrier.MaxParties, kit.Got(b.Inspect(t.Context()))(t).Limit)
	})
}

func TestAnotherNumberOfPartiesIsAMismatch(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		two, three := dial(t, s, 2), dial(t, s, 3)
		first := two.comes(t, t.Context(), 1)
		for range 2 {
			kit.Fails(t, kit.Err(three.Await(t.Context())), lease.ErrMismatch, "it was made with 2")
			require.False(t, first.Returned())
			require.False(t, two.broken(t))
		}
		pass(t, first, two.party(t.Context()))
		require.ErrorIs(t, kit.Err(three.Await(t.Context())), lease.ErrMismatch, "it counts until the barrier is forgotten")
		require.EqualValues(t, 2, three.inspect(t).Limit)
	})
}

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

// among runs a case on both servers in one client and in two, for that many parties: views(i) is the barrier of the ith.
func among(t *testing.T, parties int, run func(t *testing.T, s redistest.Backend, views func(i int) view)) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		views := turns(on(t, a, parties), on(t, b, parties))
		run(t, s, views)
		rest(t, views(0))
		meet(t, views)
		kit.Expiring(t, s)
	})
}

// turns has the parties come by two clients in turn.
func turns(a, b view) func(i int) view { return func(i int) view { return []view{a, b}[i%2] } }

// party begins a call of Await.
func (v view) party(ctx context.Context) *kit.Call[int] {
	return kit.Go(func() (int, error) { return v.Await(ctx) })
}

// comes begins a call of Await, and returns when n parties wait, itself among them.
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
	pass(t, append(calls, views(len(calls)).party(context.Background()))...)
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
	return kit.Got(v.Broken(context.Background()))(t)
}

func (v view) inspect(t testing.TB) lease.Info {
	t.Helper()
	return kit.Got(v.Inspect(context.Background()))(t)
}

// lockOf is the key of a barrier under the default prefix.
func lockOf(name string) string { return "headwaiter:barrier:{" + name + "}" }
