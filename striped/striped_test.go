package striped_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// mates returns two keys of one stripe and one of another.
func mates(m *striped.Mutex) (a, b, other string) {
	a = "0"
	for i := 1; b == "" || other == ""; i++ {
		key := strconv.Itoa(i)
		if m.Stripe(key) == m.Stripe(a) {
			b = key
		} else {
			other = key
		}
	}
	return a, b, other
}

func lock(t testing.TB, m *striped.Mutex, key string) *lease.Lease {
	t.Helper()
	return kit.Go(func() (*lease.Lease, error) { return m.Lock(t.Context(), key) }).Value(t)
}

func TestKeysOfOneStripeExcludeEachOther(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, c1, c2 *headwaiter.Client) {
		name := kit.Name(t)[len("TestKeysOfOneStripeExclude"):] // Short enough for errors to show it all.
		m1, m2 := striped.New(c1, name, 0), striped.New(c2, name, 16)
		a, b, other := mates(m1)
		held := lock(t, m1, a)
		for _, key := range []string{a, b} {
			_, err := m2.TryLock(t.Context(), key)
			kit.Fails(t, err, lease.ErrBusy, `striped: try lock "`+key+`": fairlock: try lock "`+m2.Stripe(key)+`": busy: client `)
		}
		free := kit.Got(m2.TryLock(t.Context(), other))(t)
		waits := kit.Go(func() (*lease.Lease, error) { return m2.Lock(t.Context(), b) })
		kit.Waiting(t, 1, fairlock.New(c1, m1.Stripe(a)).Inspect)
		require.False(t, waits.Returned())
		next := kit.Next(t, held, waits)
		kit.Release(t, next, free)
	})
}

func TestAWaitIsBoundedByItsContext(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), "n", 4)
		held := lock(t, m, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := kit.Run(func() error { return kit.Err(m.Lock(ctx, "a")) })
		kit.Waiting(t, 1, fairlock.New(kit.Dial(t, s), m.Stripe("a")).Inspect)
		cause := errors.New("enough")
		cancel(cause)
		err := waits.Err(t)
		kit.Fails(t, err, context.Canceled, cause)
		require.Regexp(t, `^striped: lock "a": fairlock: lock "n:./4": waited .*: context canceled: enough$`, err.Error())
		_, err = striped.New(kit.Dial(t, s), "n", 4).Lock(ctx, "a") // A client that is no member yet.
		kit.Fails(t, err, context.Canceled, cause)
		kit.Release(t, held)
	})
}

// The caller sees two keys, and the stripe is one.
func TestAnotherKeyOfAStripeThatIsHeldIsADeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), kit.Name(t), 4)
		a, b, other := mates(m)
		held := lock(t, m, a)
		for _, key := range []string{a, b} {
			kit.Fails(t, kit.Err(m.Lock(held.Context(), key)), lease.ErrDeadlock, `striped: lock "`+key+`"`)
			require.ErrorIs(t, m.Do(held.Context(), key, nil), lease.ErrDeadlock)
		}
		inner := kit.Got(m.Lock(held.Context(), other))(t)
		require.ErrorIs(t, kit.Err(m.Lock(inner.Context(), b)), lease.ErrDeadlock, "the outer one is forgotten")
		kit.Release(t, inner, held)
	})
}

func TestDoHoldsWhileItRuns(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), kit.Name(t), 4)
		wrong := errors.New("wrong")
		err := m.Do(t.Context(), "a", func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			require.ErrorIs(t, kit.Err(m.TryLock(t.Context(), "a")), lease.ErrBusy)
			return wrong
		})
		require.Equal(t, wrong, err)
		require.Panics(t, func() { _ = m.Do(t.Context(), "a", func(context.Context) error { panic("so") }) })
		other := fairlock.New(kit.Dial(t, s), m.Stripe("a"))
		err = m.Do(t.Context(), "a", func(ctx context.Context) error {
			info := kit.Got(other.Inspect(t.Context()))(t)
			require.NoError(t, kit.Err(other.ForceRelease(t.Context(), info.Token)))
			return nil
		})
		kit.Fails(t, err, lease.ErrLost, "released elsewhere by force")
	})
}

func TestAHoldCostsNoMoreThanThatOfOneLock(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		kit.Release(t, lock(t, striped.New(c, kit.Name(t), 16), "a"))
		s.ResetStats()
		for i := range 10 {
			kit.Release(t, lock(t, striped.New(c, kit.Name(t), 16), strconv.Itoa(i)))
		}
		require.Equal(t, map[string]int64{"evalsha": 20}, kit.Scripts(s))
	})
}

func TestNamesThatCannotBeUsed(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		for name, want := range map[string]error{
			"": lease.ErrInvalid, "}": lease.ErrInvalid, "\n": lease.ErrInvalid, strings.Repeat("n", 510): lease.ErrTooLarge,
		} {
			_, err := striped.New(c, name, 4).Lock(t.Context(), "k")
			require.ErrorIs(t, err, want, name)
			require.ErrorContains(t, err, `striped: lock "k": `)
		}
		_, err := striped.New(c, kit.Name(t), 4, headwaiter.WithLease(0)).Lock(t.Context(), "k")
		kit.Fails(t, err, lease.ErrInvalid, "a lease of 0s")
		require.NoError(t, kit.Err(striped.New(c, kit.Name(t), 4, headwaiter.WithLease(lease.MaxLease)).TryLock(t.Context(), "k")))

		// Any key will do, and errors show no more of it than they should.
		m := striped.New(c, "{tag}"+kit.Name(t), 4)
		for _, key := range []string{"", "\n\x00", "}{", strings.Repeat("k", 1<<20)} {
			held := lock(t, m, key)
			_, err := m.TryLock(t.Context(), key)
			require.ErrorIs(t, err, lease.ErrBusy)
			require.Less(t, len(err.Error()), 400)
			require.Regexp(t, `^\P{C}*$`, err.Error())
			kit.Release(t, held)
		}
	})
}

// refused requires that a call fails because others have another number of stripes.
func refused(t *testing.T, m *striped.Mutex, here, elsewhere string) {
	t.Helper()
	err := kit.Run(func() error { return kit.Err(m.Lock(t.Context(), "k")) }).Err(t)
	require.ErrorIs(t, err, lease.ErrMismatch)
	require.ErrorContains(t, err, `striped: lock "k": another client has stated another limit: `+here+` stripes here, `+elsewhere+` elsewhere`)
	require.ErrorIs(t, kit.Err(m.TryLock(t.Context(), "k")), lease.ErrMismatch)
}

// permits are what clients hold as members, as one that states that many stripes sees them.
func permits(t *testing.T, c *headwaiter.Client, name string, stripes int64) int64 {
	t.Helper()
	return kit.Got(semaphore.New(c, name+":stripes", stripes*1_000_000).Inspect(t.Context()))(t).Used
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
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c1, c2 *headwaiter.Client) {
		kit.Release(t, lock(t, striped.New(c1, "n", 16), "k"))
		m := striped.New(c2, "n", 32)
		held := kit.Got(fairlock.New(c1, m.Stripe("k")).Lock(t.Context()))(t)
		refused(t, m, "32", "16")
		kit.Release(t, held)
	})
}

func TestAClientStatesTheNumberOnce(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c1, c2 *headwaiter.Client) {
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
		require.NoError(t, c2.Shutdown(t.Context()))
		require.Equal(t, int64(1), permits(t, c1, kit.Name(t), 4))
		require.ErrorIs(t, kit.Err(striped.New(c2, kit.Name(t), 4).Lock(t.Context(), "k")), lease.ErrClosed)
	})
}

func TestTheNumberStandsWhileAClientHasIt(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, c1, c2 *headwaiter.Client) {
		held := lock(t, striped.New(c1, "n", 16, headwaiter.WithLease(time.Minute)), "k")
		synctime.Pass(10 * time.Minute)
		refused(t, striped.New(c2, "n", 32), "32", "16")
		kit.Release(t, held)
		synctime.Pass(10 * time.Minute)
		refused(t, striped.New(c2, "n", 32), "32", "16")
		require.NoError(t, c1.Shutdown(t.Context()))
		refused(t, striped.New(c2, "n", 32), "32", "16")
		synctime.Pass(2 * time.Minute)
		kit.Release(t, lock(t, striped.New(c2, "n", 32), "k"))
	})
}

// The number of stripes is no number of permits that could be changed.
func TestTheNumberOfStripesIsNotResized(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		kit.Release(t, lock(t, striped.New(a, "n", 16), "k"))
		require.ErrorIs(t, semaphore.New(b, "n:stripes", 1).Resize(t.Context(), 32_000_000), lease.ErrMismatch)
		refused(t, striped.New(b, "n", 32), "32", "16")
	})
}

// both takes the lock of a key by two numbers of stripes, in this order: the middle version of a rollout.
func both(t *testing.T, old, now *striped.Mutex, key string) []*lease.Lease {
	t.Helper()
	first := lock(t, old, key)
	return []*lease.Lease{kit.Got(now.Lock(first.Context(), key))(t), first}
}

// A rollout in two steps, as docs/deploy.md has it: at any time two versions that follow on each other run side by side.
func TestANewNumberOfStripesInTwoSteps(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		old, now := func(c *headwaiter.Client) *striped.Mutex { return striped.New(c, "n", 16) },
			func(c *headwaiter.Client) *striped.Mutex { return striped.New(c, "n-32", 32) }
		busy := func(m *striped.Mutex) { require.ErrorIs(t, kit.Err(m.TryLock(t.Context(), "k")), lease.ErrBusy) }

		held := lock(t, old(a), "k")
		busy(old(b)) // The middle version comes to this lock first.
		kit.Release(t, held)
		two := both(t, old(b), now(b), "k")
		busy(old(a))
		kit.Release(t, two...)

		two = both(t, old(a), now(a), "k")
		busy(now(b))
		kit.Release(t, two...)
		held = lock(t, now(b), "k")
		middle := kit.Run(func() error {
			l, err := old(a).Lock(t.Context(), "k")
			if err != nil {
				return err
			}
			defer l.Unlock()
			return now(a).Do(l.Context(), "k", func(context.Context) error { return nil })
		})
		kit.Waiting(t, 1, fairlock.New(b, now(b).Stripe("k")).Inspect)
		require.False(t, middle.Returned())
		kit.Release(t, held)
		middle.Value(t)
	})
}

// A client that died keeps others from another number for as long as the comment of New says.
func TestTheNumberOfADeadClientIsForgotten(t *testing.T) {
	for _, of := range []time.Duration{time.Second, 10 * time.Second, 45 * time.Second, 5 * time.Minute} {
		kit.BubbleOf(t, of.String(), func(t *testing.T, s *redistest.Embedded) {
			network := faults.NewDialer(t, s.Dial)
			dying, c := kit.Dial(t, s, kit.Over(network)), kit.Dial(t, s)
			lock(t, striped.New(dying, "n", 16, headwaiter.WithLease(of)), "k")
			synctime.Pass(4 * of)
			network.Drop()
			synctime.Pass(of) // So long it may still hold the key.
			require.ErrorIs(t, kit.Err(striped.New(c, "n", 32).Lock(t.Context(), "k")), lease.ErrMismatch)
			synctime.Pass(of + 2*time.Minute)
			kit.Release(t, lock(t, striped.New(c, "n", 32), "k"))
		})
	}
}

func TestAMemberThatWasForgottenJoinsAgain(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, c1, c2 *headwaiter.Client) {
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
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, c1, c2 *headwaiter.Client) {
		m := striped.New(c1, "n", 16, headwaiter.WithMinHold(time.Hour))
		held := kit.Got(fairlock.New(c2, m.Stripe("k")).Lock(t.Context()))(t)
		waits := kit.Run(func() error { return kit.Err(m.Lock(t.Context(), "k")) })
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
			"limit": headwaiter.WithQueueLimit(1), "stall": headwaiter.WithMaxStall(time.Minute),
			"priority": headwaiter.WithPriority(3), "max hold": headwaiter.WithMaxHold(time.Minute),
		} {
			l, err := striped.New(c1, kit.Name(t)+name, 4, o).TryLock(context.Background(), "k")
			require.NoError(t, err, name)
			kit.Release(t, l)
		}
	})
}

// Nor does it end with what ends a hold of a lock: then another client might state another number.
func TestAMemberStaysWhateverTheOptionsOfItsLocks(t *testing.T) {
	for name, o := range map[string]striped.Option{
		"stall": headwaiter.WithMaxStall(time.Second), "max hold": headwaiter.WithMaxHold(time.Second),
		"lease": headwaiter.WithLease(time.Second), "keep": fairlock.WithKeep(time.Second),
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			c, other := kit.Dial(t, s), kit.Dial(t, s)
			kit.Release(t, lock(t, striped.New(c, "n", 4, o), "k"))
			synctime.Pass(10 * time.Minute)
			require.Equal(t, int64(1), permits(t, c, "n", 4))
			refused(t, striped.New(other, "n", 8), "8", "4")
		})
	}
}

func TestATryDoesNotWaitToBecomeAMember(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		d.Freeze(faults.ToServer, faults.ToClient)
		patient := kit.Within(t, time.Hour)
		require.Error(t, kit.Err(striped.New(c, kit.Name(t), 4).TryLock(patient, "k")))
		require.NoError(t, patient.Err())
		d.Heal()
	})
}

// The permit of a client is an affair of the package: neither errors nor observers speak of a semaphore.
func TestNobodyIsToldOfThePermitOfAClient(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		told := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(told), func(o *headwaiter.Options) { o.HeldTooLong = time.Minute })
		kit.Release(t, lock(t, striped.New(c, "n", 4), "k"))
		synctime.Pass(time.Hour)
		require.NotEmpty(t, told.All())
		for _, o := range told.All() {
			require.NotContains(t, o.Name, "stripes", o.Event)
		}
		other := striped.New(kit.Dial(t, s), "n2", 4)
		s.Fail("OOM command not allowed when used memory > 'maxmemory'.")
		_, err := other.Lock(t.Context(), "k")
		s.Fail("")
		kit.Fails(t, err, "striped: lock \"k\": ", "OOM")
		require.NotContains(t, err.Error(), "semaphore")
	})
}
