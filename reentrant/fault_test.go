package reentrant_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/reentrant"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 20

// What was asked for again because its reply was lost counts once: the hold is over with its one release.
func TestAnAskWhoseReplyIsLostIsOneEntry(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		m, other := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		for range cuts {
			p.LoseReplies(1, kit.Runs(lua.Reentrant.Ask))
			l := hold(t, t.Context(), m)
			require.Equal(t, 1, m.HoldCount(l.Context()))
			again := hold(t, l.Context(), m)
			kit.Release(t, again)
			info, err := other.Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, l.Token(), info.Holder.Token)
			kit.Release(t, l)
			next, err := other.TryLock(t.Context())
			require.NoError(t, err, "one release freed it")
			kit.Release(t, next)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
	})
}

func TestAReleaseWhoseReplyIsLostIsOneRelease(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		m, other := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		for range cuts {
			outer := hold(t, t.Context(), m)
			inner := hold(t, outer.Context(), m)
			waiting := kit.Lock(t.Context(), other.Lock)
			kit.Waiting(t, 1, other.Inspect)
			kit.Release(t, outer)
			require.False(t, waiting.Returned())
			p.LoseReplies(1, kit.Runs(lua.Reentrant.End))
			kit.Release(t, inner)
			require.ErrorIs(t, inner.Release(t.Context()), lease.ErrReleased)
			next := waiting.Value(t)
			busy(t, m)
			kit.Release(t, next)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		kit.Free(t, other)
	})
}

// A lost reply to the ask makes the end one that is sent again later. That is no reason to keep the caller.
func TestAReleaseIsToldWithTheFirstAnswerToIt(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		m, other := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		p.LoseReplies(1, kit.Runs(lua.Reentrant.Ask))
		l := hold(t, t.Context(), m)
		p.LoseReplies(1, kit.Runs(lua.Reentrant.End))
		begun := time.Now()
		kit.Release(t, l)
		require.Less(t, time.Since(begun), 2*time.Second)
		replies, _ := p.Lost()
		require.Equal(t, 2, replies)
		kit.Free(t, other)
	})
}

// The number of entries is told as it is, not as it changes: a lost reply makes it no different.
func TestTheServerIsToldTheNumberOfEntriesThoughRepliesAreLost(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		m, other := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		leases := []*lease.Lease{hold(t, t.Context(), m)}
		for i := range 4 {
			p.LoseReplies(1, kit.Runs(lua.Reentrant.Renew))
			leases = append(leases, hold(t, leases[0].Context(), m))
			kit.LostReplies(t, p.Faults, i+1)
			entries(t, other, int64(len(leases)))
		}
		for len(leases) > 1 {
			kit.Release(t, leases[0]) // The one that began the hold comes first.
			leases = leases[1:]
			entries(t, other, int64(len(leases)))
		}
		require.NoError(t, leases[0].Context().Err())
		kit.Release(t, leases[0])
		kit.Free(t, other)
	})
}

func TestAHandOffWhoseMessageIsLostIsFoundByACheckAndCanBeEntered(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		near, far := locks(t, kit.Dial(t, s), kit.Dial(t, s, kit.Through(p)), headwaiter.WithLease(time.Second))
		outer := hold(t, t.Context(), near)
		inner := hold(t, outer.Context(), near)
		mine := reentrant.Owner(t.Context(), "job")
		calls := []*kit.Call[*lease.Lease]{kit.Lock(mine, far.Lock), kit.Lock(mine, far.Lock)}
		kit.Waiting(t, 2, near.Inspect)
		kit.Release(t, outer)
		p.LosePushes(1, kit.Notices(lua.MessageGrant))
		kit.Release(t, inner)
		first, second := calls[0].Value(t), calls[1].Value(t)
		require.Equal(t, first.Token(), second.Token())
		_, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		require.Equal(t, 2, far.HoldCount(mine))
		kit.Release(t, first)
		kit.Release(t, second)
		kit.Free(t, near)
	})
}

func TestAHoldOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(3*time.Second))
	outer := hold(t, t.Context(), m)
	waiting := kit.Lock(t.Context(), other.Lock)
	kit.Waiting(t, 1, m.Inspect)
	for n := range int64(3) {
		require.Positive(t, s.Int("CLIENT", "KILL", "TYPE", "normal"))
		s.Int("CLIENT", "KILL", "TYPE", "pubsub")
		defer kit.Release(t, hold(t, outer.Context(), m))
		kit.Eventually(t, "the server to know of all entries", func() bool {
			info, err := other.Inspect(t.Context()) // Whose connection may be the one that was killed.
			return err == nil && info.Holder.Entries == n+2
		})
	}
	require.NoError(t, outer.Context().Err())
	require.False(t, waiting.Returned())
	kit.Release(t, outer)
	require.False(t, waiting.Returned())
}

func TestUnusableNamesAndTimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		s.ResetStats()
		for _, bad := range []struct {
			m  *reentrant.Mutex
			is error
		}{
			{reentrant.New(c, ""), lease.ErrInvalid},
			{reentrant.New(c, "}x"), lease.ErrInvalid},
			{reentrant.New(c, "a\nb"), lease.ErrInvalid},
			{reentrant.New(c, strings.Repeat("x", lease.MaxName+1)), lease.ErrTooLarge},
			{reentrant.New(c, "n", headwaiter.WithLease(0)), lease.ErrInvalid},
			{reentrant.New(c, "n", headwaiter.WithMaxHold(-1)), lease.ErrInvalid},
			{reentrant.New(c, "n", headwaiter.WithPriority(math.MinInt)), lease.ErrTooLarge},
		} {
			ctx := reentrant.Owner(t.Context(), "job")
			_, err := bad.m.Lock(ctx)
			require.ErrorIs(t, err, bad.is)
			require.Regexp(t, `^reentrant: lock ".*": \P{C}*$`, err.Error())
			_, err = bad.m.TryLock(ctx)
			require.ErrorIs(t, err, bad.is)
			require.ErrorIs(t, bad.m.Do(ctx, nil), bad.is)
			require.Zero(t, bad.m.HoldCount(ctx))
		}
		require.Empty(t, kit.Scripts(s))
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

func TestACycleIsTwoScriptsHoweverOftenItEnters(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		kit.Release(t, hold(t, t.Context(), m))
		s.ResetStats()
		const cycles = 50
		for range cycles {
			outer := hold(t, t.Context(), m)
			for range 20 {
				kit.Release(t, hold(t, outer.Context(), m))
			}
			kit.Release(t, outer)
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))

		// In a long hold the server is told of the number, of many changes at once.
		outer := hold(t, t.Context(), m)
		kit.Release(t, hold(t, outer.Context(), m))
		synctime.Pass(time.Second) // The server learns the script.
		s.ResetStats()
		for range 1000 {
			kit.Release(t, hold(t, outer.Context(), m))
		}
		synctime.Pass(time.Second)
		require.Equal(t, map[string]int64{"evalsha": 1}, kit.Scripts(s))
		kit.Release(t, outer)
	})
}
