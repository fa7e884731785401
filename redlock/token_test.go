package redlock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Two quorums meet in one node, and it is another whose clock is ahead that gives the first its token.
func TestR6TokensRiseOverQuorumsWhoseClocksAreApart(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := redistest.NewClock(t)
			clock.Shift(ahead)
			all := append([]*redistest.Server{redistest.Start(t, redistest.WithClock(clock))}, servers(t, 4)...)
			options := []redlock.Option{headwaiter.WithLease(lasts), redlock.WithTimeout(timeout)}
			quorums := [][]int{{0, 1, 2}, {2, 3, 4}, {0, 1, 3}, {1, 2, 4}, {0, 3, 4}}
			var last uint64
			for _, quorum := range quorums {
				// One that knows of no token yet.
				m := mutex(t, dial(t, all), options...)
				kit.Eventually(t, "the holds before to be gone", func() bool {
					return all[quorum[0]].Text("HGET", keys(t).Lock, "owner") == ""
				})
				others(all, quorum, (*redistest.Server).Stop)
				l, err := m.Lock(soon(t))
				require.NoError(t, err)
				require.Greater(t, l.Token(), last, "by nodes %v", quorum)
				last = l.Token()
				for _, i := range quorum {
					token, err := strconv.ParseUint(all[i].Text("HGET", keys(t).Lock, "token"), 10, 64)
					require.NoError(t, err)
					require.Equal(t, last, token, "a quorum must know of a token before anybody holds by it")
				}
				kit.Release(t, l)
				others(all, quorum, (*redistest.Server).Cont)
				require.NoError(t, m.Wait(soon(t)))
				empty(t, all)
			}
		})
	}
}

// others does something to the nodes that are not in a quorum.
func others(all []*redistest.Server, quorum []int, do func(*redistest.Server)) {
	in := map[int]bool{}
	for _, i := range quorum {
		in[i] = true
	}
	for i, s := range all {
		if !in[i] {
			do(s)
		}
	}
}

// In the usual case the clocks agree, and a hold costs one request to each node, a release another.
func TestAnUncontendedHoldCostsTwoScriptsANode(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all))
	const times = 100
	turn := func() {
		l, err := m.Lock(soon(t))
		require.NoError(t, err)
		everywhere(t, m, all)
		kit.Release(t, l)
		require.NoError(t, m.Wait(soon(t)))
	}
	turn() // Scripts are made known.
	for _, s := range all {
		s.ResetStats()
	}
	for range times {
		turn()
	}
	for _, s := range all {
		// A few more where a machine that is busy lets the clocks look apart.
		n := s.CommandStats()["evalsha"]
		require.GreaterOrEqual(t, n, int64(2*times))
		require.LessOrEqual(t, n, int64(2*times+times/4))
	}
}

func TestATokenRisesOnlyForTheHoldThatItIsNamedBy(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		q := c.Queue(lua.Redlock, kit.Name(t), waitqueue.Terms{Lease: 2 * time.Second})
		l, err := q.Acquire(soon(t))
		require.NoError(t, err)
		raise := func(client string, from, to uint64) lua.Status {
			r, err := waitqueue.Call(soon(t), q, lua.Raise, 0, func(a waitqueue.Attempt) []string {
				return []string{client, strconv.FormatUint(from, 10), strconv.FormatUint(to, 10), a.NotAfter}
			})
			require.NoError(t, err)
			return r.Status
		}
		token := func() uint64 {
			n, err := strconv.ParseUint(s.Text("HGET", keys(t).Lock, "token"), 10, 64)
			require.NoError(t, err)
			return n
		}
		granted := l.Token()
		require.Equal(t, lua.Refused, raise("somebody", granted, granted+100))
		require.Equal(t, lua.Refused, raise(c.ID(), granted-1, granted+100))
		require.Equal(t, granted, token())
		require.Equal(t, lua.Granted, raise(c.ID(), granted, granted+100))
		require.Equal(t, lua.Granted, raise(c.ID(), granted, granted+100), "a second time")
		require.Equal(t, granted+100, token())
		require.Equal(t, lua.Refused, raise(c.ID(), granted, granted+150), "from where it is no more")
		require.Equal(t, lua.Granted, raise(c.ID(), granted+100, granted+150), "from where it has risen to")
		require.Equal(t, granted+150, token())
		before := l.Deadline()
		kit.Eventually(t, "a renewal of the hold whose token has risen", func() bool {
			require.NoError(t, l.Context().Err())
			return l.Deadline().After(before)
		})
		kit.Release(t, l)
		require.Equal(t, lua.Refused, raise(c.ID(), granted+150, granted+200), "of what is not held")
		next, err := q.Acquire(soon(t))
		require.NoError(t, err)
		require.Greater(t, next.Token(), granted+150)
		kit.Release(t, next)
	})
}

// An end tells how far the tokens that its client has seen are ahead. Where that of the hold has risen, that is no further.
func TestTheTokenAfterOneThatHasRisenIsTheNext(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		terms := waitqueue.Terms{Lease: 10 * time.Second}
		q, other := c.Queue(lua.Redlock, kit.Name(t), terms), kit.Dial(t, s).Queue(lua.Redlock, kit.Name(t), terms)
		l, err := q.Acquire(soon(t))
		require.NoError(t, err)
		next := kit.Lock(t.Context(), other.Acquire)
		kit.Waiting(t, 1, func(ctx context.Context) (lease.Info, error) { return q.Inspect(ctx) })
		risen := l.Token() + uint64((5 * time.Second).Microseconds())
		r, err := waitqueue.Call(soon(t), q, lua.Raise, 0, func(a waitqueue.Attempt) []string {
			return []string{c.ID(), strconv.FormatUint(l.Token(), 10), strconv.FormatUint(risen, 10), a.NotAfter}
		})
		require.NoError(t, err)
		require.Equal(t, lua.Granted, r.Status)
		waitqueue.Above(c, risen)
		kit.Release(t, l)
		l = next.Value(t)
		require.Equal(t, risen+1, l.Token())
		kit.Release(t, l)
	})
}

// A node whose clock is behind that of the others has the token that they have agreed on for as long as it is ahead of it.
func TestANodeKeepsATokenThatIsAheadOfItsClock(t *testing.T) {
	t.Parallel()
	ahead, behind := redistest.Mini(t), redistest.Mini(t)
	behind.Miniredis().SetTime(time.Now().Add(-time.Hour))
	for _, d := range []time.Duration{10 * time.Second, time.Minute} {
		m := redlock.New([]*headwaiter.Client{kit.Dial(t, ahead), kit.Dial(t, behind)}, kit.Name(t),
			redlock.WithoutSafeRestart(), headwaiter.WithLease(d))
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, m.Wait(t.Context()))
		require.Greater(t, behind.Int("PTTL", keys(t).Lock), (time.Hour - kit.Patience).Milliseconds())
	}
}

// The token of a vote that has been renewed is raised: its key still outlives its lease.
func TestARaisedVoteDoesNotOutliveItsKey(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, o := kit.Dial(t, s), kit.Dial(t, s)
		terms := waitqueue.Terms{Lease: 10 * time.Minute}
		q := c.Queue(lua.Redlock, kit.Name(t), terms)
		l, err := q.Acquire(t.Context())
		require.NoError(t, err)
		synctime.Pass(11 * time.Minute)
		r, err := waitqueue.Call(t.Context(), q, lua.Raise, 0, func(a waitqueue.Attempt) []string {
			return []string{c.ID(), strconv.FormatUint(l.Token(), 10), strconv.FormatInt(kit.ServerTime(s), 10), a.NotAfter}
		})
		require.NoError(t, err)
		require.Equal(t, lua.Granted, r.Status)
		require.Greater(t, time.Duration(s.Int("PTTL", keys(t).Lock))*time.Millisecond, time.Until(l.Deadline()))
		synctime.Pass(90 * time.Second)
		require.NoError(t, l.Context().Err())
		_, err = o.Queue(lua.Redlock, kit.Name(t), terms).Try(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, l)
	})
}
