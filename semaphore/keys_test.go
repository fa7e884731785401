package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// lives is for how long the longest of a semaphore's keys lives.
func lives(t *testing.T, s redistest.Backend) time.Duration {
	t.Helper()
	var longest int64
	for _, key := range lua.Semaphore.Keys("headwaiter", kit.Name(t)).All() {
		longest = max(longest, s.Int("PTTL", key))
	}
	return time.Duration(longest) * time.Millisecond
}

// Whichever of the holds ends last, and whether somebody waits.
func TestKeysAreNotKeptForALeaseThatIsOver(t *testing.T) {
	for name, waits := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				short := semaphore.New(c, kit.Name(t), 2)
				var held []*lease.Lease
				for _, m := range []*semaphore.Semaphore{semaphore.New(c, kit.Name(t), 2, headwaiter.WithLease(24*time.Hour)), short} {
					l, err := m.Acquire(t.Context(), 1)
					require.NoError(t, err)
					held = append(held, l)
				}
				require.Greater(t, lives(t, s), 23*time.Hour)
				if waits {
					next := kit.Go(func() (*lease.Lease, error) { return short.Acquire(t.Context(), 1) })
					kit.Waiting(t, 1, short.Inspect)
					kit.Release(t, held[0])
					held[0] = next.Value(t)
					require.Less(t, lives(t, s), 3*time.Minute)
				}
				for _, l := range held {
					kit.Release(t, l)
				}
				require.Less(t, lives(t, s), 2*time.Minute)
			})
		})
	}
}

// Where the key is gone tokens begin at the clock.
func TestAKeyLivesUntilItsTokenIsNotAheadOfTheClock(t *testing.T) {
	for name, d := range map[string]time.Duration{"a short lease": 10 * time.Second, "a long lease": time.Minute} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				waitqueue.Above(c, uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
				for range 2 {
					l, err := semaphore.New(c, kit.Name(t), 2, headwaiter.WithLease(d)).Acquire(t.Context(), 1)
					require.NoError(t, err)
					require.Greater(t, lives(t, s), time.Hour-kit.Patience)
					kit.Release(t, l)
					require.Greater(t, lives(t, s), time.Hour-kit.Patience)
				}
			})
		})
	}
}

// A renewal for ten seconds must not take back what another hold has prolonged for an hour.
func TestALongHoldOutlivesTheRenewalsOfAShortOne(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		long := semaphore.New(kit.Dial(t, s), kit.Name(t), 2, headwaiter.WithLease(time.Hour))
		short := semaphore.New(kit.Dial(t, s), kit.Name(t), 2)
		third := semaphore.New(kit.Dial(t, s), kit.Name(t), 2)
		a, b := take(t, long, 1), take(t, short, 1)
		synctime.Pass(65 * time.Minute)
		kit.Release(t, b)
		synctime.Pass(2 * time.Minute)
		require.NoError(t, a.Context().Err())
		require.Greater(t, lives(t, s), time.Until(a.Deadline()))
		_, err := third.TryAcquire(t.Context(), 2)
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, a)
	})
}

// What a release hands on is above all that its client has seen, and the keys live for that token: the next is above it.
func TestKeysLiveForATokenThatWasHandedOn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		x, y := semaphores(t, a, b, 1)
		l := take(t, x, 1)
		next := ask(t.Context(), y, 1)
		kit.Waiting(t, 1, x.Inspect)
		waitqueue.Above(a, uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
		kit.Release(t, l)
		require.NoError(t, a.Close(t.Context())) // It does not look after what it has handed on.
		n := next.Value(t)
		kit.Release(t, n)
		require.NoError(t, b.Close(t.Context()))
		synctime.Pass(3 * time.Minute)
		l, err := semaphore.New(kit.Dial(t, s), kit.Name(t), 1).TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.Greater(t, l.Token(), n.Token())
		kit.Release(t, l)
	})
}
