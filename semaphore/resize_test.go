package semaphore_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestWhoWaitsForMoreThanAResizeLeavesIsRefused(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 6)
		l := take(t, s, 6)
		calls := queue(t, s, other, 4, 2, 5, 6)
		require.NoError(t, s.Resize(t.Context(), 3))
		// Nothing is free, so it is their clients' looks that find out.
		kit.Fails(t, calls[0].Err(t), lease.ErrTooLarge, "4 permits of 3")
		pending(t, calls[1])
		l = kit.Next(t, l, calls[1])
		for i, n := range []int{5, 6} {
			kit.Fails(t, calls[2+i].Err(t), lease.ErrTooLarge, fmt.Sprintf("%d permits of 3", n))
		}
		kit.Waiting(t, 0, s.Inspect)
		require.ErrorIs(t, kit.Err(other.Acquire(t.Context(), 4)), lease.ErrTooLarge)
		kit.Release(t, l)
		available(t, other, 3)
	})
}

func TestAResizeIsForAllClients(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 3)
		l := take(t, x, 1)
		kit.Release(t, l)
		require.NoError(t, y.Resize(t.Context(), 9))
		available(t, x, 9)
		l = take(t, x, 9)
		kit.Release(t, l)

		// One that nobody has used is made by it.
		fresh := semaphore.New(kit.Dial(t, s), x.Name()+":fresh", 2)
		require.NoError(t, fresh.Resize(t.Context(), 5))
		kit.Release(t, take(t, fresh, 5))
		require.NoError(t, fresh.Resize(t.Context(), 5), "twice is once")
		available(t, fresh, 5)
	})
}

func TestAResizeTakesNobodyDownWhateverNumberTheyState(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		three, five, four := semaphore.New(c, kit.Name(t), 3), semaphore.New(c, kit.Name(t), 5), semaphore.New(c, kit.Name(t), 4)
		l := take(t, three, 1)
		limit := int64(3)
		use := func() {
			for _, x := range []*semaphore.Semaphore{three, five, four} {
				available(t, x, limit-1)
				kit.Release(t, take(t, x, limit-1))
				rest, n, err := x.Drain(t.Context())
				require.NoError(t, err)
				require.Equal(t, limit-1, n)
				waits := queue(t, x, x, 1)[0]
				kit.PassOn(t, rest, waits)
				require.ErrorIs(t, kit.Err(x.Acquire(t.Context(), limit+1)), lease.ErrTooLarge)
			}
		}
		for i, by := range []*semaphore.Semaphore{three, five, four, three} {
			limit = []int64{5, 8, 2, 3}[i]
			require.NoError(t, by.Resize(t.Context(), limit))
			use()
		}
		kit.Release(t, l)
		available(t, four, 3)
	})
}

// What holds is lost, what was set is not.
func TestAResizeOutlivesTheLossOfItsHolders(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x := semaphore.New(kit.Dial(t, s), kit.Name(t), 3)
		require.NoError(t, x.Resize(t.Context(), 5))
		l := take(t, x, 5)
		s.Do("DEL", lua.Semaphore.Keys("headwaiter", x.Name()).Holders)
		kit.Release(t, take(t, semaphore.New(kit.Dial(t, s), x.Name(), 3), 5))
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		available(t, x, 5)
	})
}

// One release lets several in: the message to their client has one note for all, and one wake-up is told.
func TestTheNoteOfAReleaseReachesAllThatItLetsIn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		from, to := &kit.Observer{}, &kit.Observer{}
		x, y := semaphores(t, kit.Dial(t, s, kit.Observed(from)), kit.Dial(t, s, kit.Observed(to)), 3)
		l := take(t, x, 3)
		calls, own := queue(t, y, y, 2, 1), queue(t, x, x, 3)[0]
		synctest.Wait()
		kit.PassOn(t, l, calls...)
		kit.Release(t, own.Value(t))

		require.Equal(t, []string{"began, granted, released", "began, queued, granted, released", "handed off, woken"}, from.Story())
		require.Equal(t, []string{
			"began, queued, granted, released", "began, queued, granted, released", "woken, handed off",
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
		kit.PassOn(t, l, calls...)
		for _, x := range o.Of(observe.Granted)[1:] {
			require.Equal(t, "1", x.Note)
		}
		require.Empty(t, o.Of(observe.HandedOff, observe.Woken), "no message")
	})
}
