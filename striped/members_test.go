package striped_test

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
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// refused requires that a call fails because others have another number of stripes.
func refused(t *testing.T, m *striped.Mutex, here, elsewhere string) {
	t.Helper()
	err := kit.Run(func() error {
		_, err := m.Lock(t.Context(), "k")
		return err
	}).Err(t)
	require.ErrorIs(t, err, lease.ErrMismatch)
	require.ErrorContains(t, err, `striped: lock "k": another client has stated another limit: `+here+` stripes here, `+elsewhere+` elsewhere`)
	_, err = m.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, lease.ErrMismatch)
}

// permits are those that clients have as members, as one that states so many stripes sees them.
func permits(t *testing.T, c *headwaiter.Client, name string, stripes int64) int64 {
	t.Helper()
	info, err := semaphore.New(c, name+":stripes", stripes*1_000_000).Inspect(t.Context())
	require.NoError(t, err)
	return info.Used
}

// A key is of another lock with another number of stripes, so both would hold.
func TestClientsThatDisagreeAboutTheNumberAreTold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, c1, c2 *headwaiter.Client) {
		held := lock(t, striped.New(c1, kit.Name(t), 16), "k")
		refused(t, striped.New(c2, kit.Name(t), 32), "32", "16")
		refused(t, striped.New(c2, kit.Name(t), 15), "15", "16")
		kit.Release(t, lock(t, striped.New(c2, kit.Name(t)+"2", 32), "k"))
		kit.Release(t, held)
		refused(t, striped.New(c2, kit.Name(t), 32), "32", "16")
		kit.Release(t, lock(t, striped.New(c2, kit.Name(t), 16), "k"))
	})
}

// It is told before it waits for a lock that says nothing.
func TestWhoDisagreesDoesNotWaitForIt(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c1, c2 := kit.Dial(t, s), kit.Dial(t, s)
		kit.Release(t, lock(t, striped.New(c1, "n", 16), "k"))
		m := striped.New(c2, "n", 32)
		held, err := fairlock.New(c1, m.Stripe("k")).Lock(t.Context())
		require.NoError(t, err)
		refused(t, m, "32", "16")
		kit.Release(t, held)
	})
}

func TestAClientStatesTheNumberOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c1, c2 := kit.Dial(t, s), kit.Dial(t, s)
		calls := make([]*kit.Call[struct{}], 50)
		for i := range calls {
			calls[i] = kit.Run(func() error {
				return striped.New(c1, kit.Name(t), 4).Do(t.Context(), "k", func(context.Context) error { return nil })
			})
		}
		for _, call := range calls {
			require.NoError(t, call.Err(t))
		}
		require.Equal(t, int64(1), permits(t, c1, kit.Name(t), 4))
		kit.Release(t, lock(t, striped.New(c2, kit.Name(t), 4), "k"))
		require.Equal(t, int64(2), permits(t, c1, kit.Name(t), 4))
		require.NoError(t, c2.Close(t.Context()))
		require.Equal(t, int64(1), permits(t, c1, kit.Name(t), 4))
		_, err := striped.New(c2, kit.Name(t), 4).Lock(t.Context(), "k")
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestTheNumberStandsWhileAClientHasIt(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c1, c2 := kit.Dial(t, s), kit.Dial(t, s)
		held := lock(t, striped.New(c1, "n", 16, headwaiter.WithLease(time.Minute)), "k")
		synctime.Pass(10 * time.Minute)
		refused(t, striped.New(c2, "n", 32), "32", "16")
		kit.Release(t, held)
		synctime.Pass(10 * time.Minute)
		refused(t, striped.New(c2, "n", 32), "32", "16")
		require.NoError(t, c1.Close(t.Context()))
		refused(t, striped.New(c2, "n", 32), "32", "16")
		synctime.Pass(2 * time.Minute)
		kit.Release(t, lock(t, striped.New(c2, "n", 32), "k"))
	})
}

// A client that died keeps others from another number for as long as the comment of New says.
func TestTheNumberOfADeadClientIsForgotten(t *testing.T) {
	for _, of := range []time.Duration{time.Second, 10 * time.Second, 45 * time.Second, 5 * time.Minute} {
		t.Run(of.String(), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				network := faults.NewDialer(t, s.Dial)
				dying, c := kit.Dial(t, s, kit.Over(network)), kit.Dial(t, s)
				lock(t, striped.New(dying, "n", 16, headwaiter.WithLease(of)), "k")
				synctime.Pass(4 * of)
				network.Drop()
				synctime.Pass(of) // So long it may still hold the key.
				_, err := striped.New(c, "n", 32).Lock(t.Context(), "k")
				require.ErrorIs(t, err, lease.ErrMismatch)
				synctime.Pass(of + 2*time.Minute)
				kit.Release(t, lock(t, striped.New(c, "n", 32), "k"))
			})
		})
	}
}

func TestAMemberThatWasForgottenJoinsAgain(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c1, c2 := kit.Dial(t, s), kit.Dial(t, s)
		m := striped.New(c1, "n", 16)
		kit.Release(t, lock(t, m, "k"))
		s.Do("FLUSHALL")
		synctime.Pass(time.Minute) // A renewal has found out.
		synctest.Wait()
		require.Zero(t, permits(t, c1, "n", 16))
		kit.Release(t, lock(t, m, "k"))
		require.Equal(t, int64(1), permits(t, c1, "n", 16))
		s.Do("FLUSHALL")
		synctime.Pass(time.Minute)
		synctest.Wait()
		kit.Release(t, lock(t, striped.New(c2, "n", 32), "k"))
		refused(t, m, "16", "32")
	})
}

// What happened while a call waited is looked at before it returns a hold.
func TestACallThatWaitedIsStillAMember(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c1, c2 := kit.Dial(t, s), kit.Dial(t, s)
		m := striped.New(c1, "n", 16)
		held, err := fairlock.New(c2, m.Stripe("k")).Lock(t.Context())
		require.NoError(t, err)
		waits := kit.Run(func() error {
			_, err := m.Lock(t.Context(), "k")
			return err
		})
		synctest.Wait()
		s.Do("DEL", "headwaiter:semaphore:{n:stripes}", "headwaiter:semaphore:{n:stripes}:holders")
		kit.Release(t, lock(t, striped.New(c2, "n", 32), "k"))
		synctime.Pass(time.Minute)
		kit.Release(t, held)
		require.ErrorIs(t, waits.Err(t), lease.ErrMismatch)
		synctest.Wait() // It is given back in the background.
		free, err := fairlock.New(c2, m.Stripe("k")).TryLock(t.Context())
		require.NoError(t, err, "what was got was kept")
		kit.Release(t, free)
	})
}

// A permit goes by none of the options that are about waiting for a lock, and holding it.
func TestAMemberJoinsWhateverTheOptionsOfItsLocks(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, c1, _ *headwaiter.Client) {
		for name, o := range map[string]striped.Option{
			"history": fairlock.WithHistory(10), "cohort": fairlock.WithCohort(4), "keep": fairlock.WithKeep(time.Second),
			"admission": headwaiter.WithAdmission(), "limit": headwaiter.WithQueueLimit(1), "stall": headwaiter.WithMaxStall(time.Minute),
			"priority": headwaiter.WithPriority(3), "max hold": headwaiter.WithMaxHold(time.Minute),
		} {
			m := striped.New(c1, kit.Name(t)+name, 4, o)
			l, err := m.TryLock(context.Background(), "k") // Without a deadline, which admission wants of a Lock.
			require.NoError(t, err, name)
			kit.Release(t, l)
		}
	})
}

func TestATryDoesNotWaitToBecomeAMember(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		c := kit.Dial(t, s, kit.Over(d))
		d.Freeze(faults.ToServer, faults.ToClient)
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := striped.New(c, kit.Name(t), 4).TryLock(patient, "k")
		require.Error(t, err)
		require.NoError(t, patient.Err())
		d.Heal()
	})
}
