package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// mates begins n calls of m, one after the other, a millisecond apart: in a bubble no time passes by itself, and none
// of a cohort is passed a token that the server's clock has not come to.
func mates(t *testing.T, m *fairlock.Mutex, n int) []*call {
	t.Helper()
	calls := make([]*call, n)
	for i := range calls {
		calls[i] = begin(t.Context(), m)
		synctime.Pass(time.Millisecond)
	}
	return calls
}

func TestACohortPassesItsHoldOnInOrderAndSendsNothing(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(8))
		l := hold(t, m)
		calls := mates(t, m, 8)
		before := c.Stats()
		for i, mate := range calls {
			old := l
			l = kit.Next(t, l, mate)
			require.Greater(t, l.Token(), old.Token())
			require.ErrorIs(t, context.Cause(old.Context()), lease.ErrReleased)
			require.NoError(t, l.Context().Err())
			for _, later := range calls[i+1:] {
				require.False(t, later.Returned())
			}
		}
		after := c.Stats()
		require.Equal(t, before.AcquireRequests, after.AcquireRequests)
		require.Equal(t, before.ReleaseRequests, after.ReleaseRequests)
		require.Equal(t, uint64(9), after.Granted)
		kit.Release(t, l)
		require.Equal(t, before.ReleaseRequests+1, c.Stats().ReleaseRequests)
	})
}

// After the last pass there is no time to subscribe first: a client that never had to wait has done so by then.
func TestAMateBehindTheLastPassIsQueuedAheadOfWhoCameLater(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s, fairlock.WithCohort(1))
		l := hold(t, m)
		calls := mates(t, m, 2)
		synctime.Pass(time.Millisecond)
		calls = append(calls, begin(t.Context(), dialMutex(t, s)))
		queued(t, m, 1)
		inTurn(t, l, calls)
	})
}

// A call that was given up before its answer came tells nothing of the server: the next leader's ask still goes with the
// end of the hold, and ahead of who came later.
func TestACallThatIsGivenUpCostsNoMateItsPlace(t *testing.T) {
	t.Parallel()
	for range 12 { // Who is first is sometimes so by chance. Each time with clients whose clocks no slow answer has unsettled.
		redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			m := fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), fairlock.WithCohort(1))
			l := hold(t, m)
			calls := mates(t, m, 2)
			synctime.Pass(time.Second)
			calls = append(calls, begin(t.Context(), dialMutex(t, s)))
			queued(t, m, 1)
			d.Delay(time.Second) // With another request under way a call is given up only when its answer is slow.
			require.ErrorIs(t, kit.Err(m.TryLock(kit.Within(t, time.Millisecond))), context.DeadlineExceeded)
			synctime.Pass(2 * time.Second)
			d.Delay(0)
			inTurn(t, l, calls)
		})
	}
}

// inTurn releases the hold, and then each call's in turn, and wants the next call to hold at once.
func inTurn(t *testing.T, l *lease.Lease, calls []*call) {
	t.Helper()
	for i, c := range calls {
		kit.Release(t, l)
		synctest.Wait()
		require.True(t, c.Returned(), "turn %d is not the turn of call %d", i, i)
		l = c.Value(t)
	}
	kit.Release(t, l)
}

func TestCloseEndsTheCallsOfMates(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(4))
		l := hold(t, m)
		calls := mates(t, m, 3)
		require.NoError(t, c.Shutdown(t.Context()))
		<-l.Context().Done()
		for _, call := range calls {
			require.ErrorIs(t, call.Err(t), lease.ErrClosed)
		}
		require.ErrorIs(t, kit.Err(m.Lock(t.Context())), lease.ErrClosed)
	})
}

func TestALeadersFailureIsItsOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, held := dialMutex(t, s, fairlock.WithCohort(4)), hold(t, dialMutex(t, s))
		ctx, cancel := context.WithCancel(t.Context())
		leader := begin(ctx, m)
		queued(t, m, 1)
		calls := mates(t, m, 2)
		kit.Cancel(t, cancel, leader)
		kit.PassOn(t, held, calls...)
	})
}

// A release with a mate waiting sends the mate's ask too. Neither of the two waits for the answer for longer than it may.
func TestAReleaseAndALockInACohortEndWithTheirContexts(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		m := fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), fairlock.WithCohort(1))
		l := hold(t, m)
		first := mates(t, m, 1)[0]
		kit.Release(t, l)
		l = first.Value(t) // No pass is left.
		within := func(limit time.Duration, f func(context.Context) error) *kit.Call[struct{}] {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			call := kit.Run(func() error {
				defer cancel()
				return f(ctx)
			})
			synctest.Wait()
			return call
		}
		d.Freeze(faults.ToServer, faults.ToClient)
		began := time.Now()
		mate := within(600*time.Millisecond, func(ctx context.Context) error { return kit.Err(m.Lock(ctx)) })
		require.ErrorIs(t, within(300*time.Millisecond, l.Release).Err(t), lease.ErrUnconfirmed)
		require.Equal(t, 300*time.Millisecond, time.Since(began))
		require.ErrorIs(t, mate.Err(t), context.DeadlineExceeded)
		require.Equal(t, 600*time.Millisecond, time.Since(began))
		d.Heal()
		kit.Release(t, begin(t.Context(), m).Value(t))
		kit.Release(t, begin(t.Context(), dialMutex(t, s)).Value(t))
		queued(t, m, 0)
	})
}

// After a step back the server gives arrivals by the highest that it gave, which are ahead of its clock. The time of a
// mate's call would be earlier than all of these.
func TestACohortDoesNotOvertakeMoreAfterTheClockSteppedBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s, fairlock.WithCohort(1)), dialMutex(t, s)
		l := hold(t, m)
		for _, next := range []*fairlock.Mutex{other, m} { // So that there is a highest arrival, and both hear.
			c := joins(t, 1, next, m)
			l = kit.Next(t, l, c)
		}
		kit.Release(t, l)
		s.Miniredis().SetTime(time.Now().Add(-time.Hour))
		synctime.Pass(time.Second) // The next answer is news of the clock.
		l = hold(t, m)
		stranger := joins(t, 1, other, m)
		overtaken := 0
		for _, mate := range mates(t, m, 6) {
			kit.Release(t, l)
			synctest.Wait()
			if stranger.Returned() {
				break
			}
			overtaken++
			l = mate.Value(t)
		}
		require.LessOrEqual(t, overtaken, 1)
		kit.Release(t, stranger.Value(t))
	})
}
