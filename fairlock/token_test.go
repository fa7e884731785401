package fairlock_test

import (
	"fmt"
	"strconv"
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

// Two clients that have never seen each other's tokens: what one has seen must not be what makes the
// other's rise.
func rising(t *testing.T, between func(t *testing.T, s redistest.Backend, held *lease.Lease)) {
	t.Helper()
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		first := dialMutex(t, s)
		l := hold(t, first)
		between(t, s, l)
		second := dialMutex(t, s)
		next := hold(t, second)
		require.Greater(t, next.Token(), l.Token())
		kit.Release(t, next)
		again := hold(t, second)
		require.Greater(t, again.Token(), next.Token())
		kit.Release(t, again)
		own := hold(t, first)
		require.Greater(t, own.Token(), again.Token())
		kit.Release(t, own)
	})
}

func TestTokensRiseOverARelease(t *testing.T) {
	rising(t, func(t *testing.T, _ redistest.Backend, held *lease.Lease) { kit.Release(t, held) })
}

func TestTokensRiseOverTheDeletionOfTheKey(t *testing.T) {
	rising(t, func(t *testing.T, s redistest.Backend, _ *lease.Lease) {
		lock, _, _ := keysOf(kit.Name(t))
		require.Equal(t, int64(1), s.Int("DEL", lock))
	})
}

func TestTokensRiseOverFLUSHALL(t *testing.T) {
	rising(t, func(t *testing.T, s redistest.Backend, _ *lease.Lease) { s.Do("FLUSHALL") })
}

func TestTokensRiseOverAnEmptyRestart(t *testing.T) {
	rising(t, func(t *testing.T, s redistest.Backend, _ *lease.Lease) { s.Restart() })
}

// The end of the lease is moved in Redis: as if the holder had not been heard of for as long.
func TestTokensRiseOverAnExpiry(t *testing.T) {
	rising(t, func(t *testing.T, s redistest.Backend, held *lease.Lease) {
		lock, _, _ := keysOf(kit.Name(t))
		s.Do("HSET", lock, "until", fmt.Sprint(s.Int("HGET", lock, "token")+1))
		require.NoError(t, held.Context().Err())
	})
}

func TestTokensRiseOverAnExpiryWithWaiters(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faults.NewProxy(t, s.Addr())
	cut := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.InitAddress = []string{p.Addr()} })
	l := hold(t, fairlock.New(cut, kit.Name(t), headwaiter.WithLease(time.Second)))
	m := dialMutex(t, s)
	c := begin(t.Context(), m)
	queued(t, m, 1)
	p.Freeze()
	next := c.Value(t)
	require.Error(t, l.Context().Err(), "two hold the lock")
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
}

// What a replica that is promoted has: an earlier state, without the latest tokens.
func TestTokensRiseOverTheReturnOfAnEarlierState(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := dialMutex(t, s)
	early := hold(t, m)
	lock, _, _ := keysOf(kit.Name(t))
	dump := s.Text("DUMP", lock)
	kit.Release(t, early)
	var token uint64
	for range 10 {
		l := hold(t, m)
		token = l.Token()
		kit.Release(t, l)
	}
	s.Do("RESTORE", lock, "60000", dump, "REPLACE")
	s.Do("HDEL", lock, "owner")
	l := hold(t, dialMutex(t, s))
	require.Greater(t, l.Token(), token)
	kit.Release(t, l)
}

// A clock behind the one that gave the last token: tokens go on from what the asking client has seen.
func TestTokensRiseWhereTheClockOfTheServerSteppedBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s)
		l := hold(t, m)
		s.Miniredis().SetTime(time.Now().Add(-time.Hour))
		kit.Release(t, l)
		for range 3 {
			synctime.Pass(time.Second) // The next answer is news of the clock.
			next := hold(t, m)
			require.Greater(t, next.Token(), l.Token())
			kit.Release(t, next)
			l = next
			s.Do("FLUSHALL")
		}
	})
}

// An ask without a floor says that no token is above the time by which it was sent. Where the server's clock has stepped
// back since by more than a token is believed to be ahead of it, one that could be believed must not be given again.
func TestAnAskThatWasSentADayAheadOfTheClockGetsATokenAboveAllThatCount(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		lock, queue, _ := keysOf(kit.Name(t))
		now := time.Now()
		s.Do("EVAL", lua.Fairlock.Ask.Source, "2", lock, queue, "a:1:x:1:10000:2000", lua.Try,
			strconv.FormatInt(now.Add(30*time.Hour).UnixMicro(), 10))
		require.Greater(t, s.Int("HGET", lock, "token"), now.Add(18*time.Hour).UnixMicro())
		require.Less(t, s.Int("HGET", lock, "token"), now.Add(25*time.Hour).UnixMicro())
	})
}
