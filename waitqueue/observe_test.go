package waitqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// What the fair lock and the semaphore tell is tested with them. Here are the others, and what they have in common.

// plain is an observer that is no tracer.
type plain struct{ observe.Observer }

func TestSeveralObserversAreToldInTheirOrder(t *testing.T) {
	require.Nil(t, observe.Observers())
	require.Nil(t, observe.Observers(nil, nil))
	a, b := &kit.Observer{Carry: func() string { return "" }}, &kit.Observer{Carry: func() string { return "b" }}
	require.Same(t, a, observe.Observers(nil, a), "one is itself")
	_, tracer := observe.Observers(nil, plain{a}).(observe.Tracer)
	require.False(t, tracer)

	c := &kit.Observer{Carry: func() string { return "c" }}
	all, ok := observe.Observers(plain{&kit.Observer{}}, a, nil, b, c).(observe.Tracer)
	require.True(t, ok)
	ctx := all.Wait(context.Background(), observe.Observation{})
	ctx = all.Hold(ctx, observe.Observation{})
	for _, o := range []*kit.Observer{a, b, c} {
		require.Equal(t, 1, o.Holder(ctx))
	}
	require.Equal(t, "b", all.Note(ctx), "of the first that has one")

	var order []string
	first := told(func() { order = append(order, "first") })
	second := told(func() { order = append(order, "second") })
	observe.Observers(first, second).Observe(ctx, observe.Observation{})
	require.Equal(t, []string{"first", "second"}, order)
	require.Empty(t, observe.Observers(first, second).(observe.Tracer).Note(ctx))
}

// told is an observer that calls a function.
type told func()

func (f told) Observe(context.Context, observe.Observation) { f() }

func TestAnObserverIsNotToldOfHoldsThatLastForLessThanNothing(t *testing.T) {
	_, err := waitqueue.Dial(waitqueue.Options{HeldTooLong: -1})
	require.EqualError(t, err, "headwaiter: held too long, and waited too long, must not be negative")
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestEventsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range []observe.EventKind{
		observe.Began, observe.Queued, observe.Granted, observe.Entered, observe.Passed, observe.Failed,
		observe.Renewed, observe.RenewalFailed, observe.HeldLong, observe.Released, observe.Lost, observe.HandedOver,
		observe.HandedOff, observe.Skipped, observe.Expired, observe.Woken, observe.Rejoined, observe.Missed,
		observe.Suspected, observe.GivenBack, observe.Differs, observe.TwoMasters,
	} {
		require.NotEmpty(t, m.String())
		require.False(t, seen[m.String()], "%v twice", m)
		seen[m.String()] = true
	}
}

func TestAGroupOfReadersGetsTheNoteOfTheWriterBefore(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		from, to := &kit.Observer{}, &kit.Observer{}
		writer := rwlock.New(kit.Dial(t, s, kit.Observed(from)), kit.Name(t))
		readers := rwlock.New(kit.Dial(t, s, kit.Observed(to)), kit.Name(t))
		l := kit.Got(writer.Lock(t.Context()))(t)
		calls := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), readers.RLock)}
		synctest.Wait()
		calls = append(calls, kit.Lock(t.Context(), readers.RLock), kit.Lock(t.Context(), writer.RLock))
		synctest.Wait()
		kit.PassOn(t, l, calls...)
		for _, x := range append(to.Of(observe.Granted), from.Of(observe.Granted)[1:]...) {
			require.Equal(t, "1", x.Note)
			require.Equal(t, "rwlock", x.Kind)
		}
		require.Len(t, to.Of(observe.Granted), 2)
		require.Equal(t, 2, to.Of(observe.Woken)[0].Count)
	})
}

func TestToEnterAgainIsNoCallButOfAnOwnerWhoWaited(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		m := reentrant.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t))
		other := kit.Got(reentrant.New(kit.Dial(t, s), kit.Name(t)).Lock(t.Context()))(t)
		ctx := reentrant.Owner(t.Context(), "owner")
		first := kit.Lock(ctx, m.Lock)
		synctest.Wait()
		second := kit.Lock(ctx, m.Lock)
		synctime.Pass(time.Second)
		kit.Release(t, other)
		inner := kit.Got(m.Lock(first.Value(t).Context()))(t)
		for _, l := range []*lease.Lease{first.Value(t), second.Value(t), inner} {
			require.Empty(t, o.Of(observe.Released), "the hold lasts until its last lease is released")
			kit.Release(t, l)
		}
		require.Equal(t, []string{"began, queued, granted, released", "began, queued, entered"}, o.Story()[:2])
		require.Len(t, o.Of(observe.Began), 2)
		require.InDelta(t, time.Second, o.Of(observe.Entered)[0].Waited, float64(50*time.Millisecond))
	})
}

func TestTheObserverIsToldOfEventsThatHaveCome(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		latch := countdown.New(c, "latch")
		require.NoError(t, kit.Err(latch.TrySetCount(t.Context(), 1)))
		for range 2 { // The first subscribes first.
			call := kit.Run(func() error { return latch.Wait(t.Context()) })
			synctest.Wait()
			defer call.Value(t)
		}
		require.ErrorIs(t, latch.Wait(kit.Within(t, time.Second)), context.DeadlineExceeded)
		require.NoError(t, kit.Err(latch.CountDown(t.Context())))
		synctest.Wait()
		require.NoError(t, latch.Wait(t.Context()))
		require.Equal(t, []string{
			"began, queued, passed", "began, queued, passed", "began, queued, failed", "began, passed", "woken",
		}, o.Story())
		passed := o.Of(observe.Passed)
		require.Equal(t, "latch", passed[0].Name)
		require.InDelta(t, time.Second, passed[0].Waited, float64(50*time.Millisecond))
	})
}

func TestTheObserverIsToldHowTheWaitForOthersEnds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		failed := errors.New("not now")
		action := func(context.Context) error { return nil }
		b := barrier.New(c, "barrier", 2, barrier.WithAction(func(ctx context.Context) error { return action(ctx) }))
		meet := func() error {
			first := kit.Run(func() error { _, err := b.Await(t.Context()); return err })
			synctest.Wait()
			_, err := b.Await(t.Context())
			return errors.Join(err, first.Err(t))
		}
		require.NoError(t, meet())
		action = func(context.Context) error { return failed }
		require.ErrorIs(t, meet(), failed)
		require.NoError(t, b.Reset(t.Context()))
		action = func(context.Context) error { panic("the action") }
		require.PanicsWithValue(t, "the action", func() { _ = meet() })
		synctest.Wait()
		ends := o.Of(observe.Passed, observe.Failed)
		require.Len(t, ends, 6, "each wait ends, also where the action panics")
		for _, x := range ends[:2] {
			require.Equal(t, observe.Passed, x.Event)
		}
		for _, x := range ends[2:] {
			require.Equal(t, observe.Failed, x.Event)
			require.Error(t, x.Err)
		}
	})
}

func TestTheObserverIsToldOfEachNameOfAMultilock(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		names := []string{"a", "b", "c"}
		m := multilock.New(c, names, multilock.WithBound(time.Second))
		other := fairlock.New(kit.Dial(t, s), "b")

		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		require.Equal(t, []string{"began, granted, released", "began, granted, released", "began, granted, released"}, o.Story())
		for _, moment := range []observe.EventKind{observe.Began, observe.Granted, observe.Released} {
			seen := []string{}
			for _, x := range o.Of(moment) {
				seen = append(seen, x.Name)
			}
			require.Equal(t, names, seen, "%v", moment)
		}

		busy := kit.Got(other.Lock(t.Context()))(t)
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		require.Equal(t, []string{"began, failed", "began, failed", "began, failed"}, o.Story()[3:])

		// It holds two for a second, gives them back, and asks for them again when it has the third.
		call := kit.Lock(t.Context(), m.Lock)
		synctime.Pass(1500 * time.Millisecond)
		kit.PassOn(t, busy, call)
		story := o.Story()[6:]
		given, waited := 0, 0
		for _, x := range story {
			switch x {
			case "began, granted, released":
				given++
			case "began, queued, granted, released":
				waited++
			}
		}
		require.Equal(t, 4, given, "%v", story)
		require.Equal(t, 1, waited, "%v", story)
	})
}

func TestAMultilockThatLosesANameReleasesTheOthers(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		l := kit.Got(multilock.New(c, []string{"a", "b", "c"}).Lock(t.Context()))(t)
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), "b").ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		synctest.Wait()
		lost := o.Of(observe.Lost)
		require.Len(t, lost, 1)
		require.Equal(t, "b", lost[0].Name)
		require.ErrorIs(t, lost[0].Err, lease.ErrForced)
		require.Len(t, o.Of(observe.Released), 2)
	})
}

func TestWhoReleasesByForceIsToldOfTheHandOff(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), kit.Name(t)).Lock(t.Context())))
		call := kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), kit.Name(t)).Lock)
		synctest.Wait()
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t)).ForceRelease(t.Context(), 0)))
		kit.Release(t, call.Value(t))
		require.Equal(t, []string{"handed off"}, o.Story())
		require.Equal(t, kit.Name(t), o.All()[0].Name)
		require.Equal(t, "lock", o.All()[0].Kind)
	})
}

func TestAMultilockThatIsGivenUpEndsTheWaitForEachName(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		busy := kit.Got(fairlock.New(kit.Dial(t, s), "b").Lock(t.Context()))(t)
		_, err := multilock.New(kit.Dial(t, s, kit.Observed(o)), []string{"a", "b", "c"}).Lock(kit.Within(t, 500*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait() // What it gave back in the end is told when Redis has answered.
		require.ElementsMatch(t, []string{
			"began, granted, released", "began, queued, failed", "began, granted, released",
		}, o.Story())
		failed := o.Of(observe.Failed)[0]
		require.Equal(t, "b", failed.Name)
		require.ErrorIs(t, failed.Err, context.DeadlineExceeded)
		kit.Release(t, busy)
	})
}
