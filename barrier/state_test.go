package barrier_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

func TestInspectTellsWhoHasCome(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 3), dial(t, s, 3, headwaiter.WithLease(time.Hour))
		first := a.comes(t, t.Context(), 1)
		second := b.comes(t, t.Context(), 2)
		info := a.inspect(t)
		require.Equal(t, "open", info.State)
		require.EqualValues(t, 3, info.Limit)
		require.EqualValues(t, 2, info.Used)
		require.Len(t, info.Holders, 2)
		require.Equal(t, a.client.ID(), info.Holders[0].Client, "the lease that ends first")
		require.Equal(t, b.client.ID(), info.Holders[1].Client)
		require.Greater(t, info.Holders[1].Left, 50*time.Minute)
		require.Contains(t, info.Holders[0].Who, "test@")
		require.Equal(t, 2, kit.Got(b.Waiting(t.Context()))(t))
		pass(t, first, second, b.party(t.Context()))
		require.Empty(t, a.inspect(t).Holders)
		breaks(t, a)
		require.Equal(t, "broken", b.inspect(t).State)
	})
}

func TestABrokenBarrierIsForgottenAfterItsLifetime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v := dial(t, s, 2, barrier.WithLifetime(time.Minute))
		breaks(t, v)
		for range 5 { // A call is a use, also one that fails.
			synctime.Pass(59 * time.Second)
			require.ErrorIs(t, kit.Err(v.Await(t.Context())), barrier.ErrBroken)
		}
		synctime.Pass(61 * time.Second)
		require.False(t, v.broken(t))
		// One that waits keeps it, however long.
		first := v.comes(t, t.Context(), 1)
		synctime.Pass(5 * time.Minute)
		pass(t, first, v.party(t.Context()))
		synctime.Pass(15 * time.Minute)
		require.Zero(t, len(s.List("KEYS", "*{*}")))
	})
}

// The behaviour that the JSR-166 TCK tests in CyclicBarrierTest: the names in quotes are cases of package
// conformance.
//
//	testConstructor1 to 3, testGetParties   TestTheLargestNumberOfPartiesIsKept, TestUnusableNumbersAreRefusedBeforeRedis of package family
//	testSingleParty                         "parties go on together, each in its place"
//	testTwoParties                          the same, "nobody is a generation ahead"
//	testBarrierAction                       TestAnActionRunsOnceThoughRepliesAreLost, action_test.go
//	testAwait6_BrokenBarrier                "a party that gives up breaks the barrier for all"
//	testReset_BrokenBarrier,
//	testReset_Leakage,
//	testReset_NoBrokenBarrier,
//	testResetWithoutBreakage                "a reset breaks the barrier and lets it begin anew"
//	testAwait1_Interrupted_BrokenBarrier,   TestAfterEachKindOfBreakAResetMendsIt
//	testAwait2_Interrupted_BrokenBarrier,
//	testAwait3_TimeoutException,
//	testAwait4_Timeout_BrokenBarrier,
//	testAwait5_Timeout_BrokenBarrier,
//	testResetAfterInterrupt,
//	testResetAfterTimeout,
//	testResetAfterCommandException
//
// It differs in what becomes of calls beyond the parties while an action runs: they wait for its end, and are
// the first of the next generation.

// breaks breaks a barrier by a party that comes and goes.
func breaks(t testing.TB, v view) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := v.comes(t, ctx, 1)
	kit.Cancel(t, cancel, c)
	kit.Eventually(t, "the barrier to be broken", func() bool { return v.broken(t) })
}

func TestAfterEachKindOfBreakAResetMendsIt(t *testing.T) {
	failure := errors.New("the action has failed")
	for kind, last := range map[string]func(t *testing.T, v view){
		"cancelled": func(t *testing.T, v view) {
			cause := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(t.Context())
			c := v.comes(t, ctx, 3)
			cancel(cause)
			require.ErrorIs(t, c.Err(t), context.Canceled)
			require.ErrorIs(t, c.Err(t), cause)
			require.NotErrorIs(t, c.Err(t), barrier.ErrBroken)
		},
		"timed out": func(t *testing.T, v view) {
			_, err := v.Await(kit.Within(t, 300*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, `^barrier: await ".+": waited \d+(\.\d+)?(µs|ms|s): context deadline exceeded$`, err.Error())
		},
		"action": func(t *testing.T, v view) {
			third := v.comes(t, t.Context(), 3)
			_, err := v.with(t, barrier.WithAction(func(context.Context) error { return failure })).Await(t.Context())
			require.ErrorIs(t, err, failure)
			require.NotErrorIs(t, err, barrier.ErrBroken)
			fail(t, third)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			among(t, 4, func(t *testing.T, s redistest.Backend, views func(int) view) {
				long := kit.Within(t, kit.Patience)
				for i := range 3 {
					plain, deadline := views(i).comes(t, t.Context(), 1), views(i+1).comes(t, long, 2)
					require.False(t, views(i).broken(t))
					begun := time.Now()
					last(t, views(i+1))
					fail(t, plain, deadline)
					require.Less(t, time.Since(begun), atOnce)
					for j := range 2 {
						require.True(t, views(j).broken(t))
						require.Zero(t, views(j).inspect(t).Waiting)
						fail(t, views(j).party(t.Context()))
					}
					require.NoError(t, views(i+1).Reset(t.Context()))
					meet(t, views)
				}
			})
		})
	}
}

// Of a node that has not answered a client yet, it does not know the time. A first call there whose answer is lost is
// asked again all the same.
func TestAFirstCallAtANodeThatIsNotAnsweredIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	for i, master := range s.Masters() {
		var name string
		for j := 0; name == "" || s.MasterOf(lockOf(name)) != master; j++ {
			name = fmt.Sprint("party ", i, " ", j)
		}
		byAddr := map[string]*faults.Dialer{}
		for _, n := range s.Nodes() {
			byAddr[n.Addr()] = faults.NewDialer(t, func() (net.Conn, error) { return net.Dial("tcp", n.Addr()) })
		}
		c := kit.Dial(t, s, func(o *headwaiter.Options) {
			o.Redis.DialCtxFn = func(_ context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return byAddr[addr].Dial()
			}
		})
		d := byAddr[master.Addr()]
		d.LoseReplies(1, func(command []string) bool { return slices.Contains(command, lockOf(name)) })
		call := view{Barrier: barrier.New(c, name, 1)}.party(t.Context())
		kit.LostReplies(t, d.Faults, 1)
		d.Cut()
		require.Zero(t, call.Value(t))
	}
}

// Nobody else waits who would look at the end of the lease, and an inspection changes nothing.
func TestAPartyWhoseLeaseIsOverDoesNotWaitAndBreaksTheBarrier(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const lasts = time.Second
		d := faults.NewDialer(t, s.Dial)
		far := on(t, kit.Dial(t, s, kit.Over(d)), 2, headwaiter.WithLease(lasts))
		near := dial(t, s, 2, headwaiter.WithLease(lasts))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gone := far.comes(t, ctx, 1)
		d.Freeze(faults.ToServer, faults.ToClient)
		synctime.Pass(2 * lasts)
		require.Zero(t, kit.Got(near.Waiting(t.Context()))(t))
		require.True(t, near.broken(t))
		require.ErrorIs(t, kit.Err(near.Await(t.Context())), barrier.ErrBroken)
		d.Heal()
		fail(t, gone)
	})
}
