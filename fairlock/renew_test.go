package fairlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// keyLife is how long keys stay after the last use of a lock with the default lease.
const keyLife = waitqueue.DefaultLease + time.Minute

func TestAHoldIsRenewedForAsLongAsItLasts(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := dial(t, s)
		l := hold(t, fairlock.New(c, nameOf(t), fairlock.WithLease(time.Second)))
		waiter := dialMutex(t, s)
		next := begin(t.Context(), waiter)
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, l.Context().Err())
			require.False(t, next.returned())
			require.True(t, inspect(t, waiter).Held)
		}
		// At a third of the lease each.
		require.InDelta(t, 12, c.Stats().Renewals, 1)
		release(t, l)
		release(t, next.granted(t))
		renewed := c.Stats().Renewals
		time.Sleep(10 * time.Second)
		require.Equal(t, renewed, c.Stats().Renewals, "a hold that was released is not renewed")
	})
}

func TestAHoldThatWasHandedOnIsLiftedToItsFullLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s, fairlock.WithLease(20*time.Second)), dialMutex(t, s)
		l := hold(t, other)
		c := begin(t.Context(), m)
		queued(t, other, 1)
		release(t, l)
		l = c.granted(t)
		require.LessOrEqual(t, inspect(t, other).Holder.Left, 2*time.Second)
		time.Sleep(time.Second)
		require.Greater(t, inspect(t, other).Holder.Left, 19*time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, l.Context().Err())
		release(t, l)
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
		time.Sleep(30 * time.Second)
		release(t, l)
		l = c.granted(t)
		time.Sleep(30 * time.Second)
		release(t, l)
	}},
	{"waited for in vain", func(t *testing.T, _ func(), m, other *fairlock.Mutex) {
		l := hold(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, begin(ctx, other).failed(t), context.DeadlineExceeded)
		release(t, l)
	}},
	{"held by one that died", func(t *testing.T, cut func(), m, _ *fairlock.Mutex) {
		hold(t, m)
		time.Sleep(time.Minute)
		cut()
	}},
	{"waited for by one that died", func(t *testing.T, cut func(), m, other *fairlock.Mutex) {
		l := hold(t, other)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin(ctx, m)
		queued(t, other, 1)
		cut()
		release(t, l)
	}},
	{"granted to one that died", func(t *testing.T, cut func(), m, other *fairlock.Mutex) {
		l := hold(t, other)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := begin(ctx, m)
		queued(t, other, 1)
		release(t, l)
		c.granted(t)
		cut()
	}},
	{"forced", func(t *testing.T, _ func(), m, other *fairlock.Mutex) {
		l := hold(t, m)
		force(t, other)
		require.ErrorIs(t, lost(t, l), lease.ErrForced)
	}},
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	for _, u := range uses {
		t.Run(u.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				mortal := dial(t, s, func(o *waitqueue.Options) { o.Redis.DialCtxFn = d.DialCtx })
				cut := func() {
					d.Refuse()
					d.Cut()
				}
				u.use(t, cut, fairlock.New(mortal, nameOf(t)), dialMutex(t, s))
				require.NotEmpty(t, s.List("KEYS", "*"))
				expiring(t, s)
				time.Sleep(keyLife + 5*time.Second)
				require.Empty(t, s.List("KEYS", "*"))
			})
		})
	}
}

func TestAReleasedHoldOfALongLeaseLeavesNoKeyForLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dialMutex(t, s, fairlock.WithLease(time.Hour)), dialMutex(t, s, fairlock.WithLease(time.Hour))
		release(t, hold(t, a))
		time.Sleep(65 * time.Second)
		require.Empty(t, s.List("KEYS", "*"))

		l := hold(t, a)
		c := begin(t.Context(), b)
		queued(t, a, 1)
		time.Sleep(time.Minute)
		release(t, l)
		l = c.granted(t)
		time.Sleep(time.Minute)
		release(t, l)
		time.Sleep(65 * time.Second)
		require.Empty(t, s.List("KEYS", "*"))
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
	each(t, func(t *testing.T, s redistest.Backend) {
		var workers sync.WaitGroup
		for i := range 4 {
			m := dialMutex(t, s, fairlock.WithLease(10*time.Second))
			lock, queue, _ := keysOf(nameOf(t))
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
