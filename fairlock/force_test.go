package fairlock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func listeners(s redistest.Backend, c *headwaiter.Client) int64 {
	counts := s.Do("PUBSUB", "NUMSUB", lua.ClientChannel("headwaiter", c.ID())).([]any)
	return counts[1].(int64)
}

// Nobody waits, and the next renewal is further away than the test's kit.Patience.
func TestAHolderIsToldAtOnceThatItWasForcedOut(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		held, err := fairlock.New(c, kit.Name(t), headwaiter.WithLease(10*kit.Patience)).Lock(t.Context())
		require.NoError(t, err)
		kit.Listening(t, s, 1)
		_, err = dialMutex(t, s).ForceRelease(t.Context(), held.Token())
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		require.ErrorIs(t, held.Release(t.Context()), lease.ErrForced)
	})
}

func TestOneChannelIsEnoughForAllHolds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		held := make([]*lease.Lease, 200)
		for i := range held {
			var err error
			held[i], err = fairlock.New(c, fmt.Sprintf("%s:%d", kit.Name(t), i), headwaiter.WithLease(time.Hour)).Lock(t.Context())
			require.NoError(t, err)
		}
		synctime.Pass(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, c.Stats().Subscribes)
		require.EqualValues(t, 1, listeners(s, c))
		for _, l := range held {
			kit.Release(t, l)
		}
		synctime.Pass(time.Minute)
		synctest.Wait()
		require.Zero(t, listeners(s, c), "nothing is held any more")
	})
}

func TestShortHoldsDoNotListen(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		for range 20 {
			held, err := m.Lock(t.Context())
			require.NoError(t, err)
			synctime.Pass(200 * time.Millisecond)
			kit.Release(t, held)
		}
		require.Zero(t, c.Stats().Subscribes)
	})
}

// A renewal refutes such a notice: what ends the hold later is told as what it is.
func TestAForgedNoticeOfForceIsForgottenWhenItWasLookedInto(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		held := hold(t, m)
		synctime.Pass(time.Second) // It listens.
		before := c.Stats().Renewals
		lock, _, _ := keysOf(kit.Name(t))
		s.Do("PUBLISH", lua.ClientChannel("headwaiter", c.ID()), "F "+inspect(t, m).Holder.Ticket+" "+lock)
		synctest.Wait()
		require.Equal(t, before+1, c.Stats().Renewals)
		s.Do("DEL", lock)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForgotten)
	})
}

// A message that anybody with the right may send makes the client ask, and no more.
func TestAForgedNoticeOfForceIsLookedInto(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(10*kit.Patience))
		held, err := m.Lock(t.Context())
		require.NoError(t, err)
		kit.Listening(t, s, 1)
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		own, lock := lua.ClientChannel("headwaiter", c.ID()), lua.Fairlock.Keys("headwaiter", kit.Name(t)).Lock
		for _, text := range []string{"", "F", "F x", "F  ", "F " + info.Holder.Ticket, "G x 1 2 3", "F x " + lock, "F " + info.Holder.Ticket + " x"} {
			s.Do("PUBLISH", own, text)
		}
		before := c.Stats().Renewals
		s.Do("PUBLISH", own, "F "+info.Holder.Ticket+" "+lock)
		kit.Eventually(t, "a renewal", func() bool { return c.Stats().Renewals > before })
		require.Equal(t, before+1, c.Stats().Renewals)
		require.NoError(t, held.Context().Err())
		kit.Release(t, held)
	})
}

// Grants to tickets that the client does not have are given back, but not as many as somebody likes to make up.
func TestForgedGrantsCostAClientLittle(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const forged = 10_000
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		held := hold(t, fairlock.New(kit.Dial(t, s), kit.Name(t)))
		waits := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
		var text strings.Builder
		text.WriteString("G")
		for i := range forged {
			made := lua.Ticket{Client: c.ID(), Number: uint64(forged + i), Kind: lua.Exclusive, Permits: 1, Lease: time.Second, Grant: time.Second}
			fmt.Fprintf(&text, " %s %d 1 2", made, i+1)
		}
		lock, _, _ := keysOf(kit.Name(t))
		before := c.Stats()
		s.Do("PUBLISH", lock+":wake:"+c.ID(), text.String())
		kit.Eventually(t, "most to be dropped", func() bool { return c.Stats().Forged-before.Forged > forged/2 })
		kit.Release(t, held)
		kit.Release(t, waits.Value(t)) // The ends of the others went before.
		require.Less(t, c.Stats().Ends-before.Ends, uint64(forged/2))
	})
}
