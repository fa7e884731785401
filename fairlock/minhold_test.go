package fairlock_test

import (
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

// least is a lock whose name stays taken for a minute from the grant.
func least(t *testing.T, s redistest.Backend, opts ...fairlock.Option) *fairlock.Mutex {
	t.Helper()
	return dialMutex(t, s, append(opts, headwaiter.WithMinHold(time.Minute))...)
}

// resting asserts that nobody holds, that nobody can, and that a try says until when.
func resting(t *testing.T, s *redistest.Embedded, token uint64, until time.Time) {
	t.Helper()
	m := dialMutex(t, s)
	h := inspect(t, m).Holder
	require.True(t, h.Rests)
	require.Equal(t, token, h.Token)
	busy := kit.As[*lease.BusyError](t, kit.Err(m.TryLock(t.Context())))
	require.WithinDuration(t, until, busy.Rests, 100*time.Millisecond)
	require.WithinDuration(t, until, time.Now().Add(h.Left), 100*time.Millisecond)
	require.ErrorContains(t, busy, "busy: until "+busy.Rests.Format(time.TimeOnly))
}

func restsOf(s redistest.Backend, t testing.TB) string {
	lock, _, _ := keysOf(kit.Name(t))
	return s.Text("HGET", lock, "rests")
}

// The lease that the next knows of may be longer than the time for which the name rests, and so may the time between two looks.
func TestTheHeadOfTheQueueIsToldUntilWhenANameRests(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m, next := dialMutex(t, s, headwaiter.WithLease(time.Hour), headwaiter.WithMinHold(time.Minute)), fairlock.New(c, kit.Name(t))
		l, waits := hold(t, m), joins(t, 1, next, next)
		synctest.Wait()
		before := c.Stats().Messages
		kit.Release(t, l)
		synctest.Wait()
		require.Equal(t, before+1, c.Stats().Messages)
		synctime.Pass(time.Minute)
		kit.Release(t, waits.Value(t))
	})
}

func TestAReleaseByForceEndsTheRest(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := least(t, s), dialMutex(t, s)
		l := hold(t, m)
		kit.Release(t, l)
		require.ErrorIs(t, kit.Err(other.ForceRelease(t.Context(), l.Token()+1)), lease.ErrOtherToken)
		require.Equal(t, l.Token(), kit.Got(other.ForceRelease(t.Context(), l.Token()))(t).Token)
		kit.Free(t, other)
		next := hold(t, m)
		require.Greater(t, next.Token(), l.Token())
		force(t, other)
		kit.Free(t, other)
	})
}

func TestAHoldThatIsHandedOverTakesItsTimeAlong(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		begun := time.Now()
		m, to := least(t, s), kit.Dial(t, s)
		l := kit.Got(fairlock.Adopt(t.Context(), to, give(t, hold(t, m))))(t)
		synctime.Pass(10 * time.Second)
		kit.Release(t, l)
		resting(t, s, l.Token(), begun.Add(time.Minute))
		synctime.Pass(time.Minute)
		// And what nobody adopts.
		give(t, hold(t, m))
		synctime.Pass(10 * time.Second)
		require.True(t, inspect(t, m).Holder.Rests || inspect(t, m).Holder.InTransit)
		require.ErrorIs(t, kit.Err(dialMutex(t, s).TryLock(t.Context())), lease.ErrBusy)
		require.True(t, inspect(t, m).Holder.Rests)
	})
}

func TestAMaximumThatIsShorterEndsTheHoldAndTheNameRests(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		begun := time.Now()
		l := hold(t, least(t, s, headwaiter.WithMaxHold(5*time.Second)))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
		synctime.Pass(10 * time.Second)
		resting(t, s, l.Token(), begun.Add(time.Minute))
	})
}

// A minimum hold, and remembering how a hold ended, have bounds, and go with no cohort.
func TestTimesThatCannotBeAreAnError(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		for name, of := range map[string]func(time.Duration) fairlock.Option{
			"WithMinHold":  func(d time.Duration) fairlock.Option { return headwaiter.WithMinHold(d) },
			"WithPrevious": func(d time.Duration) fairlock.Option { return headwaiter.WithPrevious(d) },
		} {
			for _, opts := range [][]fairlock.Option{
				{of(time.Minute), fairlock.WithKeep(time.Second)}, {of(time.Minute), fairlock.WithCohort(2)}, {of(-1)}, {of(400 * 24 * time.Hour)},
			} {
				err := kit.Err(fairlock.New(c, "x", opts...).Lock(t.Context()))
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.ErrorContains(t, err, name)
			}
		}
	})
}

// Nothing of it is on the wire where nobody asks for it.
func TestWithoutAMinimumNothingIsSaid(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		l := hold(t, m)
		require.Zero(t, c.Stats().Renewals)
		synctime.Pass(lease.DefaultLease)
		require.Positive(t, c.Stats().Renewals)
		require.Empty(t, restsOf(s, t))
		kit.Release(t, l)
		kit.Free(t, m)
	})
}
