package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// kept is the lock of the test as its client sees it that keeps it, and that once got and given back.
func kept(t *testing.T, s redistest.Backend, changes ...func(*headwaiter.Options)) (*headwaiter.Client, *fairlock.Mutex) {
	t.Helper()
	c := kit.Dial(t, s, changes...)
	m := fairlock.New(c, kit.Name(t), fairlock.WithKeep(time.Minute))
	idling(t, m, hold(t, m))
	return c, m
}

// idling gives a hold back that is kept, and waits until the server knows of it.
func idling(t *testing.T, m *fairlock.Mutex, l *lease.Lease) {
	t.Helper()
	l.Unlock()
	begun := time.Now() // In a bubble time can stand still, and a next use at the same microsecond has no token.
	kit.Eventually(t, "the lock to be idle", func() bool { return inspect(t, m).Holder.Idle && time.Now().After(begun) })
}

func TestAKeptLockIsTakenUpWithoutAWord(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		s.ResetStats()
		before := hold(t, m)
		for i := range 100 {
			if i%2 == 0 {
				before.Unlock()
			} else {
				kit.Release(t, before)
			}
			require.ErrorIs(t, context.Cause(before.Context()), lease.ErrReleased)
			synctime.Pass(time.Millisecond)
			l := kit.Got(m.TryLock(t.Context()))(t)
			if i%3 > 0 {
				l.Unlock()
				synctime.Pass(time.Millisecond)
				l = hold(t, m)
			}
			require.Greater(t, l.Token(), before.Token())
			require.LessOrEqual(t, int64(l.Token()), kit.ServerTime(s))
			require.Greater(t, time.Until(l.Deadline()), 500*time.Millisecond)
			require.NoError(t, l.Context().Err())
			before = l
		}
		require.Zero(t, kit.Scripts(s)["evalsha"])
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		before.Unlock()
	})
}

// A lease has to be made each time, and nothing else. The server is another process, as what it allocates for a renewal would
// count here.
func TestToTakeUpAKeptLockAllocatesTheLeaseAlone(t *testing.T) {
	_, m := kept(t, redistest.Start(t))
	ctx := t.Context()
	takesUp := testing.AllocsPerRun(200, func() {
		l, err := m.Lock(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		l.Unlock()
	})
	alone := testing.AllocsPerRun(200, func() {
		l := (*lease.Lease)(keeper.New(ctx, keeper.Terms{
			Until: keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()}, Unlock: func() {},
		}))
		_ = l.Context().Err()
		l.Unlock()
	})
	require.LessOrEqual(t, takesUp, alone)
}

func TestATryOfAnotherClientCallsTheKeeper(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		stranger, other := dialMutex(t, s), dialMutex(t, s, fairlock.WithKeep(time.Minute))
		l := kit.Got(stranger.TryLock(t.Context()))(t)
		kit.Release(t, l)
		for _, m := range []*fairlock.Mutex{m, other, m} { // Each keeps it after the other.
			l = kit.Got(m.TryLock(t.Context()))(t)
			synctime.Pass(time.Second) // It has waited for that: its client looks whether others have.
			idling(t, m, l)
		}
		l = hold(t, m)
		begun := time.Now()
		require.ErrorIs(t, kit.Err(stranger.TryLock(t.Context())), lease.ErrBusy)
		require.InDelta(t, 50*time.Millisecond, time.Since(begun), float64(10*time.Millisecond))
		ctx := kit.Within(t, 10*time.Millisecond)
		begun = time.Now()
		require.ErrorIs(t, kit.Err(stranger.TryLock(ctx)), lease.ErrBusy)
		require.Less(t, time.Since(begun), 20*time.Millisecond)
		l.Unlock()
		synctime.Pass(time.Second)
		require.False(t, inspect(t, m).Held, "somebody had waited for it")
		require.Zero(t, inspect(t, m).Waiting)
	})
}

func TestAKeptLockIsGivenBackWhenNobodyTakesItUp(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s, fairlock.WithKeep(3*time.Second))
		for range 3 {
			l := hold(t, m)
			idling(t, m, l)
			synctime.Pass(1900 * time.Millisecond)
			l = hold(t, m)
			l.Unlock()
			synctime.Pass(2900 * time.Millisecond)
			require.True(t, inspect(t, m).Holder.Idle)
			synctime.Pass(200 * time.Millisecond)
			require.False(t, inspect(t, m).Held)
		}
	})
}

func TestCloseGivesKeptLocksBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c, _ := kept(t, s, kit.Observed(o))
		stranger := dialMutex(t, s)
		require.NoError(t, c.Shutdown(t.Context()))
		require.False(t, inspect(t, stranger).Held)
		require.Empty(t, o.Of(observe.Lost))
		require.Len(t, o.Of(observe.Released), len(o.Of(observe.Granted)))
	})
}

func TestAKeptLockEndsWhenItIsFreedByForce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		stranger := dialMutex(t, s)
		before := inspect(t, m).Token
		synctime.Pass(time.Second) // From then on its client listens.
		force(t, stranger)
		synctest.Wait()
		l := hold(t, m)
		require.Greater(t, l.Token(), before)
		synctime.Pass(10 * time.Second)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

// The uses of a keeper go on to rise where the server's clock steps back, and a stranger is above them all.
func TestTokensOfAKeptLockRiseWhereTheClockStepsBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		stranger := dialMutex(t, s)
		last := uint64(0)
		use := func() {
			t.Helper()
			for range 5 {
				l := hold(t, m)
				require.Greater(t, l.Token(), last)
				last = l.Token()
				l.Unlock()
			}
		}
		use()
		s.Miniredis().SetTime(time.Now().Add(-time.Hour))
		use()
		synctime.Pass(5 * time.Second) // Renewals have told of the clock.
		use()
		theirs := hold(t, stranger)
		require.Greater(t, theirs.Token(), last)
		last = theirs.Token()
		kit.Release(t, theirs)
		use()
	})
}

func TestWhatCannotGoWithKeepingIsRefused(t *testing.T) {
	s := redistest.Mini(t)
	for why, option := range map[string]fairlock.Option{
		"-1s must be from 1ms":                    fairlock.WithKeep(-time.Second),
		"1µs must be from 1ms":                    fairlock.WithKeep(time.Microsecond),
		"2h0m0s must be from 1ms":                 fairlock.WithKeep(2 * fairlock.MaxKeep),
		"WithKeep cannot go with WithMaxHold":     headwaiter.WithMaxHold(time.Second),
		"WithKeep cannot go with WithMaxStall":    headwaiter.WithMaxStall(time.Second),
		"WithKeep cannot go with WithReplicas":    headwaiter.WithReplicas(1, time.Second),
		"WithKeep cannot go with WithFsync":       headwaiter.WithFsync(0, time.Second),
		"WithKeep cannot go with WithSafeRestart": headwaiter.WithSafeRestart(),
	} {
		m := dialMutex(t, s, fairlock.WithKeep(time.Second), option)
		kit.Fails(t, kit.Err(m.Lock(t.Context())), lease.ErrInvalid, why)
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrInvalid)
	}
}
