package semaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// One release lets several in: the message to their client has one note for all, and one wake-up is told.
func TestTheNoteOfAReleaseReachesAllThatItLetsIn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		from, to := &kit.Observer{}, &kit.Observer{}
		x, y := semaphores(t, kit.Dial(t, s, kit.Observed(from)), kit.Dial(t, s, kit.Observed(to)), 3)
		l := take(t, x, 3)
		calls := queue(t, y, y, 2, 1)
		own := queue(t, x, x, 3)[0]
		synctest.Wait()
		kit.Release(t, l)
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
		kit.Release(t, own.Value(t))

		require.Equal(t, []string{"asked, granted, released", "asked, queued, granted, released", "handed off, woken"}, from.Story())
		require.Equal(t, []string{
			"asked, queued, granted, released", "asked, queued, granted, released", "woken, handed off",
		}, to.Story())
		for i, x := range to.Of(observe.Queued) {
			require.Equal(t, i+1, x.Place)
			require.Equal(t, "semaphore", x.Kind)
		}
		for _, x := range to.Of(observe.Granted) {
			require.Equal(t, "1", x.Note)
		}
		require.Equal(t, 2, to.Of(observe.Woken)[0].Count)
		require.Equal(t, "2", from.Of(observe.Granted)[1].Note, "of the release that let it in")
	})
}

func TestANoteReachesAHolderInTheReplyToTheOwnRelease(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		x, y := semaphores(t, c, c, 2)
		l := take(t, x, 2)
		calls := queue(t, x, y, 1, 1)
		synctest.Wait()
		kit.Release(t, l)
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
		for _, x := range o.Of(observe.Granted)[1:] {
			require.Equal(t, "1", x.Note)
		}
		require.Empty(t, o.Of(observe.HandedOff, observe.Woken), "no message")
	})
}

// The fast path of a release has a note, too: on a real server, where its scripts run as they are.
func TestANoteReachesTheNextHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		from, to := &kit.Observer{Carry: func() string { return "00-a~b-01" }}, &kit.Observer{}
		x, y := semaphores(t, kit.Dial(t, s, kit.Observed(from)), kit.Dial(t, s, kit.Observed(to)), 2)
		// A look of the waiter may be faster than the message, and has no note.
		kit.Eventually(t, "a grant with a note", func() bool {
			l := take(t, x, 2)
			c := queue(t, y, y, 1)[0]
			kit.Release(t, l)
			kit.Release(t, c.Value(t))
			grants := to.Of(observe.Granted)
			note := grants[len(grants)-1].Note
			require.Contains(t, []string{"", "00-a~b-01"}, note)
			return note != ""
		})
	})
}

// Of several holders one is cut off: its loss is its own, and those who wait are told of the lease that ran out.
func TestTheObserverIsToldOfTheHolderThatLostItsPermits(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		near, far := &kit.Observer{}, &kit.Observer{}
		x, y := semaphores(t, kit.Dial(t, s, kit.Observed(near)), kit.Dial(t, s, kit.Observed(far), kit.Over(d)), 3,
			headwaiter.WithLease(3*time.Second))
		living, cut := take(t, x, 1), take(t, y, 2)
		call := queue(t, x, x, 2)[0]
		d.Refuse()
		d.Cut()
		require.ErrorIs(t, kit.Lost(t, cut), lease.ErrExpired)
		kit.Release(t, call.Value(t))
		kit.Release(t, living)

		require.Equal(t, "asked, granted, renewal failed, lost", far.Story()[0])
		require.ErrorIs(t, far.Of(observe.Lost)[0].Err, lease.ErrExpired)
		require.Equal(t, []string{"asked, granted, renewed, released", "asked, queued, granted, released"}, near.Story()[:2])
		expired := near.Of(observe.Expired)
		require.Len(t, expired, 1)
		require.Equal(t, 1, expired[0].Count)
		require.Empty(t, near.Of(observe.Lost))
	})
}

func TestTheObserverIsToldOfRequestsThatFail(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		x, _ := semaphores(t, kit.Dial(t, s, kit.Observed(o)), kit.Dial(t, s), 2)
		l := take(t, x, 2)
		_, err := x.TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, lease.ErrBusy)
		_, err = x.Acquire(t.Context(), 3)
		require.Error(t, err)
		kit.Release(t, l)
		require.Equal(t, []string{"asked, granted, released", "asked, failed", "asked, failed"}, o.Story())
		for _, f := range o.Of(observe.Failed) {
			require.Error(t, f.Err)
		}
	})
}
