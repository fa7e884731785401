package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/semaphore"
)

// sideBySide runs a test with an old process that states one number and a new one that states another.
func sideBySide(t *testing.T, old, now int64, run func(t *testing.T, s redistest.Backend, x, y *semaphore.Semaphore)) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		first := kit.Dial(t, s)
		run(t, s, semaphore.New(first, kit.Name(t), old), semaphore.New(kit.Dial(t, s), kit.Name(t), now))
	})
}

// use acquires n permits of each, one after the other, and gives them back.
func use(t *testing.T, n int64, all ...*semaphore.Semaphore) {
	t.Helper()
	for _, x := range all {
		kit.Release(t, take(t, x, n))
	}
}

func TestARolloutToMorePermitsServesThoseWhoWait(t *testing.T) {
	sideBySide(t, 3, 5, func(t *testing.T, _ redistest.Backend, old, now *semaphore.Semaphore) {
		all := take(t, old, 3)
		first := queue(t, old, old, 1)[0]
		second := take(t, now, 1) // The first request of the new process.
		available(t, old, 0)
		available(t, now, 0)
		one := first.Value(t)
		refused(t, old, 1)
		refused(t, now, 1)
		waits := queue(t, now, old, 2, 3)
		kit.Release(t, all)
		kit.Release(t, waits[0].Value(t), one, second)
		kit.Release(t, waits[1].Value(t))
		kit.Release(t, take(t, old, 5))
		kit.Fails(t, kit.Err(old.Acquire(t.Context(), 6)), lease.ErrTooLarge, "6 permits of 5")
		unused(t, now)
	})
}

func TestARolloutToFewerPermitsEndsNobodysHold(t *testing.T) {
	sideBySide(t, 5, 3, func(t *testing.T, _ redistest.Backend, old, now *semaphore.Semaphore) {
		held := []*lease.Lease{take(t, old, 1), take(t, old, 1), take(t, old, 3)}
		large, small := queue(t, old, old, 4)[0], queue(t, old, old, 1)[0]
		next := ask(t.Context(), now, 2) // The first request of the new process.
		kit.Fails(t, large.Err(t), lease.ErrTooLarge, "4 permits of 3")
		kit.Waiting(t, 2, now.Inspect)
		available(t, old, -2)
		available(t, now, -2)
		kit.Release(t, held[0], held[1])
		available(t, now, 0)
		refused(t, old, 1)
		pending(t, small, next)
		kit.Release(t, held[2])
		kit.Release(t, small.Value(t), next.Value(t))
		kit.Release(t, take(t, old, 3))
		kit.Fails(t, kit.Err(old.Acquire(t.Context(), 4)), lease.ErrTooLarge, "4 permits of 3")
		unused(t, now)
	})
}

// A rollback is a rollout: its processes are newer than those with the number that was wrong.
func TestARollbackTakesTheNumberBack(t *testing.T) {
	sideBySide(t, 3, 5, func(t *testing.T, s redistest.Backend, old, now *semaphore.Semaphore) {
		use(t, 1, old, now)
		use(t, 5, old)
		back := semaphore.New(kit.Dial(t, s), old.Name(), 3)
		use(t, 1, back, now, old)
		for _, x := range []*semaphore.Semaphore{old, now, back} {
			available(t, x, 3)
		}
	})
}

func TestAResizeFromAnyHandleCountsUntilAnotherNumberIsStated(t *testing.T) {
	sideBySide(t, 3, 5, func(t *testing.T, s redistest.Backend, old, now *semaphore.Semaphore) {
		l := take(t, old, 1)
		require.NoError(t, now.Resize(t.Context(), 5), "it has asked for nothing yet")
		available(t, old, 4)
		require.NoError(t, old.Resize(t.Context(), 9))
		kit.Release(t, l)
		same := semaphore.New(kit.Dial(t, s), old.Name(), 3)
		for range 2 {
			use(t, 9, old, same) // It states what was stated before.
		}
		available(t, same, 9)
		info := kit.Got(same.Inspect(t.Context()))(t)
		require.EqualValues(t, []int64{9, 3}, []int64{info.Limit, info.Stated})
		use(t, 1, semaphore.New(kit.Dial(t, s), old.Name(), 4))
		available(t, old, 4)
	})
}

// Who asks first after a resize of a semaphore that nobody has used goes by it.
func TestAResizeBeforeTheFirstUseCounts(t *testing.T) {
	sideBySide(t, 3, 3, func(t *testing.T, _ redistest.Backend, old, now *semaphore.Semaphore) {
		require.NoError(t, now.Resize(t.Context(), 5))
		use(t, 5, old, now)
		available(t, old, 5)
	})
}

// Which number counts is kept with the semaphore, and goes with it.
func TestANumberIsForgottenWithItsSemaphore(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		with := func(permits int64, do func(x *semaphore.Semaphore)) {
			synctime.Pass(time.Second)
			c := kit.Dial(t, s)
			do(semaphore.New(c, kit.Name(t), permits))
			require.NoError(t, c.Shutdown(t.Context()))
		}
		uses := func(x *semaphore.Semaphore) { use(t, 1, x) }
		for name, do := range map[string]func(){
			"a rollout":           func() { with(3, uses); with(5, uses) },
			"a rollout after all": func() { with(3, func(x *semaphore.Semaphore) { uses(x); _ = x.Resize(t.Context(), 9) }); with(5, uses) },
			"a resize back": func() {
				with(3, func(x *semaphore.Semaphore) {
					uses(x)
					require.NoError(t, x.Resize(t.Context(), 9))
					require.NoError(t, x.Resize(t.Context(), 3))
					uses(x)
				})
			},
		} {
			do()
			synctime.Pass(80 * time.Second)
			require.Empty(t, s.List("KEYS", "*}"), name) // Not the note of what was said to a resize.
			require.Empty(t, s.List("KEYS", "*}:holders"), name)
		}
	})
}

func TestClientsThatStateDifferentNumbersSaySo(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		one, two, three := &kit.Observer{}, &kit.Observer{}, &kit.Observer{}
		a := kit.Dial(t, s, kit.Observed(one))
		old := semaphore.New(a, kit.Name(t), 3)
		kit.Release(t, take(t, old, 1))
		synctime.Pass(time.Second)
		now := semaphore.New(kit.Dial(t, s, kit.Observed(two)), kit.Name(t), 5)
		use(t, 1, now, now, now)
		require.Len(t, two.Of(observe.Differs), 1, "only when it changes the number")
		require.Equal(t, kit.Name(t), two.Of(observe.Differs)[0].Name)
		require.Equal(t, "semaphore", two.Of(observe.Differs)[0].Kind)
		require.Empty(t, one.Of(observe.Differs))
		l := take(t, old, 5)
		waits := queue(t, old, old, 1)[0]
		refused(t, old, 1)
		kit.PassOn(t, l, waits)
		require.Len(t, one.Of(observe.Differs), 3, "of each request")
		require.EqualValues(t, 3, a.Stats().Differs)

		agrees := semaphore.New(kit.Dial(t, s, kit.Observed(three)), kit.Name(t), 5)
		require.NoError(t, agrees.Resize(t.Context(), 7))
		kit.Release(t, take(t, agrees, 7))
		require.Empty(t, three.Of(observe.Differs), "a resize is no statement")
	})
}
