package fairlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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
	"github.com/headwaiter/headwaiter/lua"
)

// keyLife is how long keys stay after the last use of a lock with the default lease.
const keyLife = lease.DefaultLease + time.Minute

// Holds of one client are renewed by few scripts. What is unusual about one of them is no matter of the others.
func TestManyHoldsAreRenewedTogether(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const holds = 300
		c := kit.Dial(t, s)
		name := func(i int) string { return fmt.Sprintf("%s:%d", kit.Name(t), i) }
		held := make([]*lease.Lease, holds)
		for i := range held {
			held[i] = hold(t, fairlock.New(c, name(i)))
			synctime.Pass(10 * time.Millisecond)
		}
		renewed := c.Stats().Renewals
		s.ResetStats()
		synctime.Pass(20 * time.Second)
		renewed = c.Stats().Renewals - renewed
		require.GreaterOrEqual(t, renewed, uint64(6*holds-holds), "each is renewed every third of ten seconds")
		require.Less(t, s.CommandStats()["evalsha"], int64(renewed/5), "for %d renewals", renewed)

		s.Do("DEL", lua.Fairlock.Keys("headwaiter", name(0)).Lock)
		s.Do("HSET", lua.Fairlock.Keys("headwaiter", name(1)).Lock, "token", "1")
		s.Do("DEL", lua.Fairlock.Keys("headwaiter", name(2)).Lock)
		s.Do("SET", lua.Fairlock.Keys("headwaiter", name(2)).Lock, "of another kind")
		for _, l := range held[:3] {
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
		}
		synctime.Pass(20 * time.Second)
		for _, l := range held[3:] {
			kit.Release(t, l)
		}
	})
}

// Most renewals prolong no key, since it outlives the hold by a minute anyway; yet by three quarters of that it always
// does, whatever the waiters do to it.
func TestRenewalsProlongKeysNowAndThen(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, c, other *headwaiter.Client) {
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("%s:%d", kit.Name(t), i))
			hold(t, fairlock.New(c, names[i]))
		}
		live := func() {
			for range 60 {
				synctime.Pass(time.Second)
				for _, name := range names {
					left := time.Duration(s.Int("PTTL", lua.Fairlock.Keys("headwaiter", name).Lock)) * time.Millisecond
					require.Greater(t, left, 10*time.Second+lua.Least-time.Second/10)
				}
			}
		}
		live()
		renewed := c.Stats().Renewals
		s.ResetStats()
		live()
		renewed = c.Stats().Renewals - renewed
		require.Greater(t, renewed, uint64(15*len(names)))
		require.Less(t, s.CommandStats()["pexpire"], int64(renewed/3), "for %d renewals", renewed)
		for _, name := range names {
			begin(t.Context(), fairlock.New(other, name))
		}
		live()
	})
}

// strays are the keys that stay for ever, or for longer than it takes.
const strays = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local ttl = redis.call('PTTL', key)
  if ttl < 0 or ttl > tonumber(ARGV[1]) then found[#found + 1] = key .. ' ' .. ttl end
end
return found`

func TestEveryKeyExpiresAtAnyTime(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		var workers sync.WaitGroup
		for i := range 4 {
			m := dialMutex(t, s, headwaiter.WithLease(10*time.Second))
			lock, queue, _ := keysOf(kit.Name(t))
			workers.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
					switch l, err := m.Lock(ctx); {
					case err == nil && rand.N(4) > 0:
						_ = l.Release(context.Background()) // It may have been deleted.
					case err == nil:
						_, _ = m.ForceRelease(t.Context(), l.Token())
					}
					cancel()
					_, _ = m.TryLock(ctx)
					if i == 0 && rand.N(4) == 0 {
						s.Do("DEL", lock)
					}
					if i == 1 && rand.N(4) == 0 {
						s.Do("DEL", queue)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() {
			workers.Wait()
			close(done)
		}()
		looks := 0
		for over := false; !over; looks++ {
			select {
			case <-done:
				over = true
			default:
			}
			found := s.List("EVAL", strays, "0", fmt.Sprint((keyLife + time.Second).Milliseconds()))
			require.Empty(t, found, "look %d", looks)
		}
		t.Logf("%d looks", looks)
	})
}

func force(t *testing.T, m *fairlock.Mutex) {
	t.Helper()
	require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
}

func listeners(s redistest.Backend, c *headwaiter.Client) int64 {
	return s.Do("PUBSUB", "NUMSUB", lua.ClientChannel("headwaiter", c.ID())).([]any)[1].(int64)
}

// Nobody waits, and the next renewal is further away than the test's kit.Patience.
func TestAHolderIsToldAtOnceThatItWasForcedOut(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		held := kit.Got(fairlock.New(c, kit.Name(t), headwaiter.WithLease(10*kit.Patience)).Lock(t.Context()))(t)
		kit.Listening(t, s, 1)
		require.NoError(t, kit.Err(dialMutex(t, s).ForceRelease(t.Context(), held.Token())))
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		require.ErrorIs(t, held.Release(t.Context()), lease.ErrForced)
	})
}

func TestOneChannelIsEnoughForAllHolds(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
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
		kit.Release(t, held...)
		synctime.Pass(time.Minute)
		synctest.Wait()
		require.Zero(t, listeners(s, c), "nothing is held any more")
	})
}

// A message that anybody with the right may send makes the client ask, and no more.
func TestAForgedNoticeOfForceIsLookedInto(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(10*kit.Patience))
		held := kit.Got(m.Lock(t.Context()))(t)
		kit.Listening(t, s, 1)
		info := kit.Got(m.Inspect(t.Context()))(t)
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

// However long the answers to renewals take, a holder's deadline is never after the end of its lease at the server, and
// the hold goes on while an answer to a keep-alive and one to the renewal after it take less than a connection may.
func TestTheDeadlineIsBeforeTheEndOfTheLeaseAtTheServer(t *testing.T) {
	for _, c := range []struct{ lease, delay time.Duration }{
		{3 * time.Second, 300 * time.Millisecond},
		{3 * time.Second, 480 * time.Millisecond},
		{10 * time.Second, 480 * time.Millisecond},
	} {
		kit.BubbleOf(t, fmt.Sprint(c.lease, " late by ", c.delay), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			client := kit.Dial(t, s, kit.Over(d))
			l := hold(t, fairlock.New(client, kit.Name(t), headwaiter.WithLease(c.lease)))
			d.Delay(c.delay, faults.ToClient)
			for client.Stats().Renewals < 6 {
				synctime.Pass(50 * time.Millisecond) // Where both have the same clock.
				require.NoError(t, l.Context().Err())
				require.Less(t, l.Deadline().UnixMicro(), number(t, s, kit.Name(t), "until"))
			}
			d.Heal()
			kit.Release(t, l)
		})
	}
}
