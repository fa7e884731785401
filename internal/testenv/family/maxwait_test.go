package family

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

type locking = func(context.Context) (*lease.Lease, error)

// waiters are all calls that wait for a hold, each with a name of its own: as the one who waits for d makes them.
var waiters = map[string]func(c *headwaiter.Client, name string, d time.Duration) locking{
	"fairlock": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return fairlock.New(c, name, headwaiter.WithMaxWait(d)).Lock
	},
	"cohort": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return fairlock.New(c, name, headwaiter.WithMaxWait(d), fairlock.WithCohort(8)).Lock
	},
	"each": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return func(ctx context.Context) (*lease.Lease, error) {
			o := fairlock.LockEach(ctx, fairlock.New(c, name, headwaiter.WithMaxWait(d)))
			return o[0].Lease, o[0].Err
		}
	},
	"reentrant": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return reentrant.New(c, name, headwaiter.WithMaxWait(d)).Lock
	},
	"rwlock": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return rwlock.New(c, name, headwaiter.WithMaxWait(d)).Lock
	},
	"semaphore": func(c *headwaiter.Client, name string, d time.Duration) locking {
		s := semaphore.New(c, name, 1, headwaiter.WithMaxWait(d))
		return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) }
	},
	"election": func(c *headwaiter.Client, name string, d time.Duration) locking {
		e := election.New(c, name, headwaiter.WithMaxWait(d))
		return func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, "value") }
	},
	"multilock": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return multilock.New(c, []string{name, name + ":more"}, headwaiter.WithMaxWait(d)).Lock
	},
	"striped": func(c *headwaiter.Client, name string, d time.Duration) locking {
		m := striped.New(c, name, 1, headwaiter.WithMaxWait(d))
		return func(ctx context.Context) (*lease.Lease, error) { return m.Lock(ctx, "key") }
	},
	"redlock": func(c *headwaiter.Client, name string, d time.Duration) locking {
		return redlock.New([]*headwaiter.Client{c}, name, headwaiter.WithMaxWait(d), redlock.WithoutSafeRestart()).Lock
	},
}

// waitedOut checks the error of a call that has waited for as long as it may.
func waitedOut(t *testing.T, err error, d time.Duration) {
	t.Helper()
	require.ErrorIs(t, err, headwaiter.ErrWaitTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, ": the maximum wait is over")
	var waited *lease.WaitError
	require.ErrorAs(t, err, &waited)
	require.Equal(t, d, waited.Waited.Round(10*time.Millisecond))
}

func eachWaiter(t *testing.T, run func(t *testing.T, s *redistest.Embedded, make func(c *headwaiter.Client, d time.Duration) locking)) {
	for name, of := range waiters {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				run(t, s, func(c *headwaiter.Client, d time.Duration) locking { return of(c, "name", d) })
			})
		})
	}
}

func TestACallWaitsForItsMaximumAndLeavesItsPlace(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
		l, err := make(holder, 0)(t.Context())
		require.NoError(t, err)
		begun := time.Now()
		none, err := make(waiter, 5*time.Second)(t.Context())
		require.Equal(t, 5*time.Second, time.Since(begun).Round(10*time.Millisecond))
		require.Nil(t, none)
		waitedOut(t, err, 5*time.Second)

		next := kit.Lock(t.Context(), make(waiter, 5*time.Second))
		synctime.Pass(4 * time.Second)
		kit.Release(t, l)
		l = next.Value(t)
		synctime.Pass(time.Minute) // It does not bound the hold.
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

func TestTheFirstAnswerIsWaitedForNoLongerThanTheMaximum(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		d := faults.NewDialer(t, s.Dial)
		c := kit.Dial(t, s, kit.Over(d))
		d.Freeze()
		begun := time.Now()
		_, err := make(c, 5*time.Second)(t.Context())
		d.Heal()
		if errors.Is(err, redlock.ErrNoQuorum) {
			require.Less(t, time.Since(begun), 5*time.Second)
			return // It asks others.
		}
		require.Equal(t, 5*time.Second, time.Since(begun).Round(10*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrWaitTimeout)
	})
}

func TestTheEndOfTheContextComesBeforeTheMaximumWait(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
		l, err := make(holder, 0)(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = make(waiter, 5*time.Second)(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrWaitTimeout)
		kit.Release(t, l)
	})
}

func TestAMaximumWaitThatMakesNoSenseIsReportedByTheFirstCall(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		c := kit.Dial(t, s)
		for _, d := range []time.Duration{-1, -time.Second, 1, time.Millisecond - 1, lease.MaxLease + 1, 1<<63 - 1, -1 << 63} {
			_, err := make(c, d)(t.Context())
			require.ErrorIs(t, err, headwaiter.ErrInvalid, "%d", d)
			require.ErrorContains(t, err, "WithMaxWait", "%d", d)
		}
	})
}

// Names of different slots, or of one: it is one wait.
func TestTheMaximumWaitIsOfAllNamesTogether(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
		a, err := fairlock.New(holder, "a").Lock(t.Context())
		require.NoError(t, err)
		b, err := fairlock.New(holder, "b").Lock(t.Context())
		require.NoError(t, err)
		call := kit.Lock(t.Context(), multilock.New(waiter, []string{"a", "b"}, headwaiter.WithMaxWait(5*time.Second)).Lock)
		synctime.Pass(4 * time.Second)
		kit.Release(t, a)
		synctime.Pass(4 * time.Second)
		waitedOut(t, call.Err(t), 5*time.Second)
		kit.Release(t, b)
		synctest.Wait()
		l, err := multilock.New(holder, []string{"a", "b"}).TryLock(t.Context())
		require.NoError(t, err)
		kit.Release(t, l)
	})
}

// Each waits for its own maximum, though they are asked for together.
func TestLocksThatAreAskedForTogetherKeepTheirMaxima(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s, kit.Over(d))
		held, err := fairlock.New(holder, "a").Lock(t.Context())
		require.NoError(t, err)
		d.Freeze()
		call := kit.Go(func() ([]fairlock.Outcome, error) {
			return fairlock.LockEach(t.Context(), fairlock.New(waiter, "a", headwaiter.WithMaxWait(time.Second)), // Less than a server may take that is slow.
				fairlock.New(waiter, "b", headwaiter.WithMaxWait(time.Minute)), fairlock.New(waiter, "c")), nil
		})
		synctime.Pass(30 * time.Second)
		d.Heal()
		all := call.Value(t)
		waitedOut(t, all[0].Err, time.Second)
		require.NoError(t, all[1].Err)
		require.NoError(t, all[2].Err)
		kit.Release(t, all[1].Lease)
		kit.Release(t, all[2].Lease)
		kit.Release(t, held)
	})
}

func TestAMaximumWaitBoundsNeitherTheWorkNorEnteringAgain(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := reentrant.New(c, "name", headwaiter.WithMaxWait(time.Second))
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			synctime.Pass(time.Minute)
			require.NoError(t, ctx.Err())
			_, bounded := ctx.Deadline()
			require.False(t, bounded)
			l, err := m.Lock(ctx)
			require.NoError(t, err)
			synctime.Pass(time.Minute)
			require.NoError(t, l.Context().Err())
			return l.Release(ctx)
		}))
	})
}

func TestALatchIsWaitedForNoLongerThanTheMaximum(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		l := countdown.New(c, "name", headwaiter.WithMaxWait(5*time.Second))
		_, err := l.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		waitedOut(t, l.Wait(t.Context()), 5*time.Second)
		_, err = l.CountDown(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Wait(t.Context()))

		err = countdown.New(c, "name", headwaiter.WithMaxWait(-1)).Wait(t.Context())
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "WithMaxWait")
	})
}
