package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// give hands a hold over.
func give(t testing.TB, l *lease.Lease) (text string) {
	t.Helper()
	text = kit.Got(l.HandOver(t.Context()))(t)
	require.NotEmpty(t, text)
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
	return text
}

// notAdopted asserts that a text is not good, and why.
func notAdopted(t testing.TB, c *headwaiter.Client, text string, why error) {
	t.Helper()
	l, err := fairlock.Adopt(t.Context(), c, text)
	require.ErrorIs(t, err, why)
	require.Nil(t, l)
}

func TestAHoldGoesToAnotherClientAheadOfTheQueue(t *testing.T) {
	kit.Two(t, func(t *testing.T, s redistest.Backend, from, to *headwaiter.Client) {
		m, waiter := fairlock.New(from, kit.Name(t)), dialMutex(t, s)
		l, c := hold(t, m), joins(t, 1, waiter, m)
		scripts := from.Stats().AcquireRequests + from.Stats().ReleaseRequests
		text := give(t, l)
		require.Equal(t, scripts+1, from.Stats().AcquireRequests+from.Stats().ReleaseRequests, "one round trip")
		info := inspect(t, m)
		require.True(t, info.Held)
		require.True(t, info.Holder.InTransit)
		require.Equal(t, from.ID(), info.Holder.Client)
		require.LessOrEqual(t, info.Holder.Left, 2*time.Second)
		require.NotContains(t, text, kit.Name(t))
		require.ErrorIs(t, kit.Err(waiter.TryLock(t.Context())), lease.ErrBusy)

		next := kit.Got(fairlock.Adopt(t.Context(), to, text))(t)
		require.Equal(t, uint64(1), to.Stats().AcquireRequests, "one round trip")
		require.Greater(t, next.Token(), l.Token())
		require.False(t, inspect(t, m).Holder.InTransit)
		require.Equal(t, to.ID(), inspect(t, m).Holder.Client)
		holds(t, m, next)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
		l.Unlock()
		require.ErrorIs(t, kit.Err(l.HandOver(t.Context())), lease.ErrReleased)
		notAdopted(t, to, text, lease.ErrAdopted)
		notAdopted(t, from, text, lease.ErrAdopted)
		holds(t, m, next)
		require.False(t, c.Returned())

		back := kit.Got(fairlock.Adopt(t.Context(), from, give(t, next)))(t) // And back again.
		last := kit.Next(t, back, c)
		kit.Release(t, last)
		kit.Free(t, m)
	})
}

// What nobody adopts is free after one grant lease: for those that wait, whose clients have longer to their next looks, and
// for those that come.
func TestAHoldThatNobodyAdoptsIsFreeAfterOneGrantLease(t *testing.T) {
	const grant = time.Second
	for _, waits := range []bool{true, false} {
		kit.BubbleOf(t, fmt.Sprint(waits), func(t *testing.T, s *redistest.Embedded) {
			from := kit.Dial(t, s, func(o *headwaiter.Options) { o.GrantLease = grant })
			waiter := kit.Dial(t, s)
			m, other := fairlock.New(from, kit.Name(t)), fairlock.New(waiter, kit.Name(t))
			l := hold(t, m)
			var c *call
			if waits {
				c = joins(t, 1, other, m)
				synctime.Pass(5 * time.Second)
				for before := waiter.Stats().Checks; waiter.Stats().Checks == before; { // Its next look is far away then.
					synctime.Pass(time.Millisecond)
				}
			}
			text, begun := give(t, l), time.Now()
			require.NoError(t, from.Shutdown(t.Context())) // As a process that has done its work.
			if waits {
				kit.Release(t, c.Value(t))
				require.WithinDuration(t, begun.Add(grant), time.Now(), 50*time.Millisecond)
			} else {
				require.ErrorIs(t, kit.Err(other.TryLock(t.Context())), lease.ErrBusy)
				synctime.Pass(grant)
				kit.Release(t, hold(t, other))
			}
			notAdopted(t, kit.Dial(t, s), text, lease.ErrExpired)
			require.Empty(t, inspect(t, other).Suspects, "nobody is to blame")
			kit.Free(t, other)
		})
	}
}

func TestATextThatIsNotGoodIsRefusedWithAReason(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t))
		text := give(t, hold(t, m))
		asks := c.Stats().AcquireRequests
		for _, bad := range []string{"", "hold1.", "hold2." + text[6:], text[:len(text)-1], text + "A", text[:20] + "_" + text[21:], strings.ToLower(text), "\x00", strings.Repeat("A", 1<<16)} {
			if bad != text {
				notAdopted(t, c, bad, lease.ErrNotGenuine)
			}
		}
		require.Equal(t, asks, c.Stats().AcquireRequests, "nothing is sent for a text that is none")
		x, ok := lua.ReadTransit(text)
		require.True(t, ok)
		forged := x
		forged.Secret = strings.Repeat("x", 16)
		notAdopted(t, c, forged.Text(), lease.ErrNotGenuine)
		// Who reads Redis knows the ticket, and not the secret: to name it is of no use.
		args := []string{"EVAL", lua.Move.Source, "3", x.Lock, x.Lock + ":queue", x.Lock + ":suspects",
			x.Ticket(), c.ID() + ":99:x:1:10000:2000", "0", "", wire.PhaseHeld, lua.Ever, "0", "1"}
		require.Equal(t, "forgotten", s.Do(args...).([]any)[11].([]any)[0])
		elsewhere := kit.Dial(t, s, func(o *headwaiter.Options) { o.Prefix = "other" })
		notAdopted(t, elsewhere, text, lease.ErrNotGenuine)
		kit.Fails(t, kit.Err(fairlock.Adopt(t.Context(), c, text, fairlock.WithCohort(2))), lease.ErrInvalid, "WithCohort")
		kit.Fails(t, kit.Err(fairlock.Adopt(t.Context(), c, text, headwaiter.WithLease(-1))), lease.ErrInvalid, "WithLease")

		l := kit.Got(fairlock.Adopt(t.Context(), c, text))(t) // It is as good as before.
		text = give(t, l)
		force(t, m)
		notAdopted(t, c, text, lease.ErrForced)
		kit.Free(t, m)
	})
}

func TestWhatCannotBeHandedOverIsLeftAsItIs(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(2))
		l := hold(t, m)
		text, err := l.HandOver(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Empty(t, text)
		holds(t, m, l)
		kit.Release(t, l)

		m = fairlock.New(c, kit.Name(t))
		l = hold(t, m)
		ended, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("no time")
		cancel(cause)
		text, err = l.HandOver(ended)
		kit.Fails(t, err, context.Canceled, cause)
		require.Empty(t, text)
		var nothing context.Context
		require.Panics(t, func() { _, _ = l.HandOver(nothing) })
		holds(t, m, l)
		force(t, m)
		text, err = l.HandOver(t.Context())
		require.ErrorIs(t, err, lease.ErrForced)
		require.Empty(t, text)
		kit.Free(t, m)
	})
}

// An Adopt that is given up, answered or not, leaves nothing held.
func TestAnAdoptThatIsGivenUpFreesTheLock(t *testing.T) {
	for _, way := range []faults.Direction{faults.ToServer, faults.ToClient} {
		kit.BubbleOf(t, fmt.Sprint(way), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			to, from := kit.Dial(t, s, kit.Over(d)), dialMutex(t, s)
			l := kit.Got(fairlock.Adopt(t.Context(), to, give(t, hold(t, from))))(t)
			kit.Release(t, l) // Now the script is known to the server.
			text := give(t, hold(t, from))
			d.Freeze(way)
			require.ErrorIs(t, kit.Err(fairlock.Adopt(kit.Within(t, 500*time.Millisecond), to, text)), context.DeadlineExceeded)
			d.Heal()
			begun := time.Now()
			kit.Release(t, hold(t, from))
			require.Less(t, time.Since(begun), 4*time.Second)
			synctime.Pass(time.Minute)
			kit.Free(t, from)
		})
	}
}

// Nobody knows whether it was handed over: the text is returned too, and is good as soon as Redis has heard of it.
func TestAnUnconfirmedHandOverReturnsTheText(t *testing.T) {
	for _, way := range []faults.Direction{faults.ToServer, faults.ToClient} {
		kit.BubbleOf(t, fmt.Sprint(way), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			from, to := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s)
			m := fairlock.New(from, kit.Name(t))
			next := kit.Got(fairlock.Adopt(t.Context(), to, give(t, hold(t, m))))(t)
			kit.Release(t, next) // Now the script is known to the server.
			l := hold(t, m)
			d.Freeze(way)
			text, err := l.HandOver(kit.Within(t, time.Second))
			kit.Fails(t, err, lease.ErrUnconfirmed, context.DeadlineExceeded, kit.Name(t))
			require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
			if way == faults.ToServer {
				notAdopted(t, to, text, lease.ErrNotGenuine)
				d.Heal()
				kit.Eventually(t, "it to be in transit", func() bool {
					return inspect(t, fairlock.New(to, kit.Name(t))).Holder.InTransit
				})
			}
			next = kit.Got(fairlock.Adopt(t.Context(), to, text))(t)
			d.Heal()
			synctime.Pass(time.Minute) // What is still under way changes nothing.
			holds(t, fairlock.New(to, kit.Name(t)), next)
			kit.Release(t, next)
		})
	}
}

func TestTheContextOfTheGiverEndsBeforeAnythingIsSent(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		m, other := fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t)), dialMutex(t, s)
		l := hold(t, m)
		d.Freeze(faults.ToServer)
		c := kit.Go(func() (string, error) { return l.HandOver(t.Context()) })
		synctime.Pass(time.Millisecond)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
		info := inspect(t, other)
		require.Equal(t, l.Token(), info.Holder.Token, "Redis knows nothing of it yet")
		require.False(t, info.Holder.InTransit)
		d.Heal()
		kit.Release(t, kit.Got(fairlock.Adopt(t.Context(), kit.Dial(t, s), c.Value(t)))(t))
	})
}

// The clients may end right away.
func TestAHoldInTransitOutlastsTheClientThatGaveIt(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, from, to *headwaiter.Client) {
		text := give(t, hold(t, fairlock.New(from, kit.Name(t))))
		require.NoError(t, from.Shutdown(t.Context()))
		l, err := fairlock.Adopt(t.Context(), to, text, headwaiter.WithMaxHold(2*time.Second), headwaiter.WithLease(time.Minute))
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
		kit.Free(t, fairlock.New(to, kit.Name(t)))
	})
}

func TestAHandOverIsToldAsTheEndOfAHold(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		var giver, taker kit.Observer
		from, to := kit.Dial(t, s, kit.Observed(&giver)), kit.Dial(t, s, kit.Observed(&taker))
		l := hold(t, fairlock.New(from, kit.Name(t)))
		kit.Release(t, kit.Got(fairlock.Adopt(t.Context(), to, give(t, l)))(t))
		told := giver.Of(observe.HandedOver, observe.Released, observe.Lost)
		require.Len(t, told, 1)
		require.Equal(t, observe.HandedOver, told[0].Event)
		require.Equal(t, l.Token(), told[0].Token)
		require.NoError(t, told[0].Err)
		require.Len(t, taker.Of(observe.Began), 1)
		require.Len(t, taker.Of(observe.Granted), 1)
		require.Len(t, taker.Of(observe.Released), 1)
		require.Error(t, kit.Err(fairlock.Adopt(t.Context(), to, "no text")))
		require.Len(t, taker.Of(observe.Began), 1, "nothing was asked")
	})
}
