package fairlock_test

import (
	"context"
	"testing"
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

// Each way in which a hold can end is told to the next, and to that one alone.
func TestAHoldIsToldHowTheOneBeforeEnded(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		for want, end := range map[lease.EndingKind]func(other *fairlock.Mutex) *lease.Lease{
			lease.EndingReleased: func(*fairlock.Mutex) *lease.Lease {
				l := hold(t, dialMutex(t, s))
				kit.Release(t, l)
				return l
			},
			lease.EndingExpired: func(*fairlock.Mutex) *lease.Lease {
				d := faults.NewDialer(t, s.Dial)
				l := hold(t, fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t)))
				d.Away()
				synctime.Pass(lease.DefaultLease + time.Second)
				return l
			},
			lease.EndingForced: func(other *fairlock.Mutex) *lease.Lease {
				l := hold(t, dialMutex(t, s))
				force(t, other)
				return l
			},
			lease.EndingStalled: func(*fairlock.Mutex) *lease.Lease {
				l := hold(t, dialMutex(t, s, headwaiter.WithMaxStall(time.Second)))
				require.ErrorIs(t, kit.Lost(t, l), lease.ErrStalled)
				return l
			},
		} {
			other := dialMutex(t, s)
			before := hold(t, other)
			kit.Release(t, before)
			l := end(other)
			told := hold(t, other)
			p := told.Previous()
			require.Equal(t, want, p.Kind)
			if want != lease.EndingReleased {
				require.Equal(t, l.Token(), p.Token)
			}
			require.Equal(t, want == lease.EndingReleased, p.Orderly())
			kit.Release(t, told)
			last := hold(t, other)
			require.Equal(t, lease.EndingReleased, last.Previous().Kind, "it was told once")
			kit.Release(t, last)
		}
	})
}

func TestAMaximumIsAStallToTheNext(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		l := hold(t, dialMutex(t, s, headwaiter.WithMaxHold(5*time.Second)))
		next := begin(t.Context(), dialMutex(t, s))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
		require.Equal(t, lease.Ending{Kind: lease.EndingStalled, Token: l.Token()}, next.Value(t).Previous())
	})
}

func TestWhoAdoptsIsToldWhoseItWas(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s)
		l := hold(t, m)
		adopted := kit.Got(fairlock.Adopt(t.Context(), kit.Dial(t, s), give(t, l)))(t)
		require.Equal(t, lease.Ending{Kind: lease.EndingHandedOver, Token: l.Token()}, adopted.Previous())
		kit.Release(t, adopted)
		require.Equal(t, lease.EndingReleased, hold(t, m).Previous().Kind)
	})
}

// A waiter that gives up at the moment of its grant has not looked at what was left half done.
func TestWhatNobodyHasHadIsToldToTheNext(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		m, late := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l := hold(t, m)
		ctx, giveUp := context.WithCancel(t.Context())
		gone := begin(ctx, late)
		queued(t, m, 1)
		d.Delay(500 * time.Millisecond) // Its grant is under way when it gives up.
		force(t, m)
		giveUp()
		require.ErrorIs(t, gone.Err(t), context.Canceled)
		d.Delay(0)
		require.Equal(t, lease.Ending{Kind: lease.EndingForced, Token: l.Token()}, hold(t, m).Previous())
	})
}

func TestAServerThatForgotIsKnownToWhoWaited(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, m)
		next := begin(t.Context(), other)
		queued(t, m, 1)
		s.Do("FLUSHALL")
		require.Equal(t, lease.Ending{Kind: lease.EndingForgotten, Token: l.Token()}, next.Value(t).Previous())
	})
}

// A minute after the end nobody knows, unless the holder wanted it.
func TestAnEndIsRememberedForAsLongAsTheHolderWants(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		for want, opts := range map[lease.EndingKind][]fairlock.Option{
			lease.EndingUnknown: nil, lease.EndingExpired: {headwaiter.WithPrevious(time.Hour)},
		} {
			d := faults.NewDialer(t, s.Dial)
			l := hold(t, fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), opts...))
			synctime.Pass(time.Minute) // Renewals keep that up.
			require.NoError(t, l.Context().Err())
			d.Away()
			synctime.Pass(50 * time.Minute)
			next := hold(t, dialMutex(t, s))
			require.Equal(t, want, next.Previous().Kind)
			kit.Release(t, next)
			synctime.Pass(2 * time.Minute)
			lock, _, _ := keysOf(kit.Name(t))
			require.EqualValues(t, 0, s.Do("EXISTS", lock), "nothing is left after a release")
		}
	})
}

// What a program sees that looks at the name.
func TestAnInspectionTellsHowTheLastHoldEnded(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s)
		require.Equal(t, lease.Ending{}, inspect(t, m).Previous)
		l := hold(t, m)
		force(t, m)
		info := inspect(t, m)
		require.False(t, info.Held)
		require.Equal(t, lease.Ending{Kind: lease.EndingForced, Token: l.Token()}, info.Previous)
		next := hold(t, m)
		require.Equal(t, lease.EndingForced, inspect(t, m).Previous.Kind)
		kit.Release(t, next)
		require.Equal(t, lease.EndingReleased, inspect(t, m).Previous.Kind)
	})
}
