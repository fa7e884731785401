package fairlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// A lock that is kept, with what else a lock can have.

func TestAKeptLockIsNotHandedOver(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, m := kept(t, s)
		l := hold(t, m)
		text, err := l.HandOver(t.Context())
		kit.Fails(t, err, errors.ErrUnsupported, "WithKeep")
		require.Empty(t, text)
		require.NoError(t, l.Context().Err())
		idling(t, m, l)

		text = give(t, hold(t, dialMutex(t, s)))
		kit.Fails(t, kit.Err(fairlock.Adopt(t.Context(), c, text, fairlock.WithKeep(time.Minute))), lease.ErrInvalid, "WithKeep")
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy, "nobody keeps what is in transit")
		l = kit.Got(fairlock.Adopt(t.Context(), c, text))(t)
		kit.Release(t, l)
	})
}

// An idle keeper takes no room in the queue: it is called.
func TestAKeptLockIsCalledBackByAQueueThatEnds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		ctx := kit.Within(t, time.Minute)
		for _, o := range []fairlock.Option{headwaiter.WithQueueLimit(1)} {
			stranger := dialMutex(t, s, o)
			l := kit.Got(stranger.Lock(ctx))(t)
			kit.Release(t, l)
			idling(t, m, hold(t, m))
			l = kit.Got(stranger.TryLock(ctx))(t)
			kit.Release(t, l)
			idling(t, m, hold(t, m))
		}

		limited, used := dialMutex(t, s, headwaiter.WithQueueLimit(1)), hold(t, m)
		waits := joins(t, 1, limited, m)
		full(t, begin(t.Context(), limited).Err(t))
		_, err := limited.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.NotErrorIs(t, err, lease.ErrQueueFull)
		used.Unlock()
		kit.Release(t, waits.Value(t))
	})
}

// For the server the uses of a kept lock are one hold: nothing is sent of them.
func TestAHistoryHasOneEntryForAllUsesOfAKeptLock(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), fairlock.WithKeep(time.Minute), fairlock.WithHistory(4))
		l := hold(t, m)
		first := l.Token()
		for range 5 {
			idling(t, m, l)
			l = hold(t, m)
		}
		idling(t, m, l)
		require.Empty(t, past(t, c))
		kit.Release(t, hold(t, dialMutex(t, s, fairlock.WithHistory(4))))
		all := past(t, c)
		require.Len(t, all, 2)
		require.Equal(t, first, all[1].Token)
		require.Greater(t, all[0].Token, l.Token())
	})
}

// Several names in one call are asked for at the server: also of the client that keeps one of them.
func TestSeveralNamesCallBackWhatIsKept(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		for range 2 {
			for _, of := range []*fairlock.Mutex{dialMutex(t, s), m} {
				o := fairlock.LockEach(t.Context(), of)[0]
				require.NoError(t, o.Err)
				kit.Release(t, o.Lease)
				idling(t, m, hold(t, m))
				o = fairlock.TryLockEach(t.Context(), of)[0]
				require.ErrorIs(t, o.Err, lease.ErrBusy)
				require.True(t, inspect(t, m).Holder.Idle)
			}
		}
	})
}

// For the race detector: a kept lock is given back at the moment at which its lease is to be made short.
func TestAKeptLockIsGivenBackWhileItIsRenewed(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s, func(o *headwaiter.Options) { o.GrantLease = 30 * time.Millisecond })
		for range 100 {
			for i := range 3 {
				hold(t, fairlock.New(c, fmt.Sprint("kept ", i), fairlock.WithKeep(10*time.Millisecond))).Unlock()
			}
			synctime.Pass(25 * time.Millisecond)
		}
	})
}

// A renewal of a kept hold that nobody uses makes the life of the key short too. The next renewals have to make it long
// again, though they go together with others and would otherwise only write the end of the lease.
func TestTheKeyOfAKeptHoldOutlivesIt(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, a, b *headwaiter.Client) {
		names := []string{"x", "y"}
		use := func() (held []*lease.Lease) {
			for _, name := range names {
				held = append(held, hold(t, fairlock.New(a, name, fairlock.WithKeep(time.Hour), headwaiter.WithLease(10*time.Minute))))
			}
			return held
		}
		idle := func(held []*lease.Lease, apart time.Duration) {
			for _, l := range held {
				kit.Release(t, l)
				synctime.Pass(apart)
			}
			synctime.Pass(700 * time.Millisecond)
		}
		held := use()
		synctime.Pass(12 * time.Minute)
		idle(held, 0)
		held = use() // The renewals of both go together, with the lease.
		synctime.Pass(800 * time.Millisecond)
		idle(held, 5*time.Millisecond) // Each goes alone, with a grant lease.
		held = use()
		for i, name := range names { // Who holds is told that somebody waits, and renews.
			require.ErrorIs(t, kit.Err(fairlock.New(b, name).TryLock(t.Context())), lease.ErrBusy)
			synctime.Pass(time.Duration(i) * 2 * time.Second)
		}
		for i, name := range names {
			lock, _, _ := keysOf(name)
			require.Greater(t, time.Duration(s.Int("PTTL", lock))*time.Millisecond, time.Until(held[i].Deadline()), name)
		}
	})
}

// The token of a pass names the hold, also for ForceRelease; a token that the hold cannot have come to does not.
func TestAHoldThatWasPassedOnIsForcedByItsToken(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s, fairlock.WithCohort(4))
		l := hold(t, m)
		mate := mates(t, m, 1)[0]
		l = kit.Next(t, l, mate)
		require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), l.Token()+10)), lease.ErrOtherToken)
		require.NoError(t, kit.Err(m.ForceRelease(t.Context(), l.Token())))
	})
}
