package fairlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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
	"github.com/headwaiter/headwaiter/lua"
)

// keyLife is how long keys stay after the last use of a lock with the default lease.
const keyLife = lease.DefaultLease + time.Minute

func TestAHoldIsRenewedForAsLongAsItLasts(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		l := hold(t, fairlock.New(c, kit.Name(t), headwaiter.WithLease(time.Second)))
		waiter := dialMutex(t, s)
		next := begin(t.Context(), waiter)
		for range 40 {
			synctime.Pass(100 * time.Millisecond)
			require.NoError(t, l.Context().Err())
			require.False(t, next.Returned())
			require.True(t, inspect(t, waiter).Held)
		}
		// At a third of the lease each.
		require.InDelta(t, 12, c.Stats().Renewals, 1)
		kit.Release(t, l)
		kit.Release(t, next.Value(t))
		renewed := c.Stats().Renewals
		synctime.Pass(10 * time.Second)
		require.Equal(t, renewed, c.Stats().Renewals, "a hold that was released is not renewed")
	})
}

func TestAHoldThatWasHandedOnIsLiftedToItsFullLease(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s, headwaiter.WithLease(20*time.Second)), dialMutex(t, s)
		l := hold(t, other)
		c := begin(t.Context(), m)
		queued(t, other, 1)
		kit.Release(t, l)
		l = c.Value(t)
		require.LessOrEqual(t, inspect(t, other).Holder.Left, 2*time.Second)
		synctime.Pass(time.Second)
		require.Greater(t, inspect(t, other).Holder.Left, 19*time.Second)
		synctime.Pass(time.Minute)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

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
// does, whatever those who wait do to it.
func TestRenewalsProlongKeysNowAndThen(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
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

// uses are ways to be done with a lock. Each takes a client that can be cut off and another.
var uses = []struct {
	name string
	use  func(t *testing.T, cut func(), m, other *fairlock.Mutex)
}{
	{"released", func(t *testing.T, _ func(), m, other *fairlock.Mutex) {
		l := hold(t, m)
		c := begin(t.Context(), other)
		queued(t, m, 1)
		synctime.Pass(30 * time.Second)
		kit.Release(t, l)
		l = c.Value(t)
		synctime.Pass(30 * time.Second)
		kit.Release(t, l)
	}},
	{"waited for in vain", func(t *testing.T, _ func(), m, other *fairlock.Mutex) {
		l := hold(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, begin(ctx, other).Err(t), context.DeadlineExceeded)
		kit.Release(t, l)
	}},
	{"held by one that died", func(t *testing.T, cut func(), m, _ *fairlock.Mutex) {
		hold(t, m)
		synctime.Pass(time.Minute)
		cut()
	}},
	{"waited for by one that died", func(t *testing.T, cut func(), m, other *fairlock.Mutex) {
		l := hold(t, other)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin(ctx, m)
		queued(t, other, 1)
		cut()
		kit.Release(t, l)
	}},
	{"granted to one that died", func(t *testing.T, cut func(), m, other *fairlock.Mutex) {
		l := hold(t, other)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := begin(ctx, m)
		queued(t, other, 1)
		kit.Release(t, l)
		c.Value(t)
		cut()
	}},
	{"forced", func(t *testing.T, _ func(), m, other *fairlock.Mutex) {
		l := hold(t, m)
		force(t, other)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	}},
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	for _, u := range uses {
		t.Run(u.name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				mortal := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.DialCtxFn = d.DialCtx })
				cut := func() {
					d.Refuse()
					d.Cut()
				}
				u.use(t, cut, fairlock.New(mortal, kit.Name(t)), dialMutex(t, s))
				require.NotEmpty(t, s.List("KEYS", "*{*"))
				kit.Expiring(t, s)
				synctime.Pass(keyLife + 5*time.Second)
				require.Empty(t, s.List("KEYS", "*{*"))
			})
		})
	}
}

func TestAReleasedHoldOfALongLeaseLeavesNoKeyForLong(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dialMutex(t, s, headwaiter.WithLease(time.Hour)), dialMutex(t, s, headwaiter.WithLease(time.Hour))
		kit.Release(t, hold(t, a))
		synctime.Pass(65 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))

		l := hold(t, a)
		c := begin(t.Context(), b)
		queued(t, a, 1)
		synctime.Pass(time.Minute)
		kit.Release(t, l)
		l = c.Value(t)
		synctime.Pass(time.Minute)
		kit.Release(t, l)
		synctime.Pass(65 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))
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
				for range 60 {
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
