package redlock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// force takes the vote of a node away.
func force(t *testing.T, c *headwaiter.Client, name string) {
	t.Helper()
	require.NoError(t, kit.Err((*waitqueue.Client)(c).Queue(lua.Redlock, name, waitqueue.DefaultTerms()).ForceRelease(soon(t), 0)))
}

func TestAHoldLastsAsLongAsAMajorityStandsForIt(t *testing.T) {
	t.Parallel()
	const lasts = 2 * time.Second
	all := servers(t, 5)
	m := mutex(t, dial(t, all), headwaiter.WithLease(lasts))
	l := kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	all[0].Kill()
	all[1].Stop()
	for end := l.Deadline().Add(2 * lasts); l.Deadline().Before(end); {
		kit.Eventually(t, "the hold to be renewed", func() bool {
			require.NoError(t, l.Context().Err())
			return time.Until(l.Deadline()) > lasts/2
		})
		before := l.Deadline()
		kit.Eventually(t, "its end to move", func() bool { return l.Deadline().After(before) })
	}
	all[2].Kill()
	deadline := l.Deadline()
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
	require.Less(t, time.Now(), deadline.Add(lasts), "a bare majority is gone with its first node")
	require.ErrorIs(t, l.Release(soon(t)), lease.ErrLost)
	for _, s := range all[3:] {
		kit.Eventually(t, "what is left to be given back", func() bool { return voter(t, s) == "" })
	}
	all[1].Cont()
}

func TestAHoldEndsBeforeItsDeadlineWhenAllNodesAreSilent(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(2*time.Second))
	l := kit.Got(m.Lock(soon(t)))(t)
	for _, s := range all {
		s.Stop()
	}
	kit.Await(t, l.Context().Done(), "the hold to end")
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
	require.Less(t, time.Until(l.Deadline()), 20*time.Millisecond, "it was certain for longer")
	for _, s := range all {
		s.Cont()
	}
}

func TestVotesTakenByForceAreLostAndTheRestIsGivenBack(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	clients := dial(t, all)
	m := mutex(t, clients, headwaiter.WithLease(3*time.Second))
	l := kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	admin := dial(t, all)
	force(t, admin[0], m.Name())
	force(t, admin[1], m.Name())
	before := l.Deadline()
	kit.Eventually(t, "a renewal with three votes", func() bool { return l.Deadline().After(before) })
	require.NoError(t, l.Context().Err())
	force(t, admin[2], m.Name())
	kit.Fails(t, kit.Lost(t, l), lease.ErrForced, "2 of 5 nodes are left")
	empty(t, all)
}

// All nodes are restarted without their data, one after the other, while it is held. Each has its vote again before
// the next goes.
func TestAHoldOutlivesTheRestartOfAllNodesInTurn(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	const lasts = 2 * time.Second
	m := redlock.New(dial(t, all), kit.Name(t), headwaiter.WithLease(lasts))
	kit.Release(t, kit.Got(m.Lock(soon(t)))(t)) // When they have run for a lease.
	var l *lease.Lease
	kit.Eventually(t, "the lock to be free", func() bool { // What holds by a try asks again too.
		var err error
		l, err = m.TryLock(soon(t))
		return err == nil
	})
	everywhere(t, m, all)
	for _, s := range all {
		s.Restart()
		kit.Eventually(t, "the node to be old enough, and to vote again", func() bool {
			require.NoError(t, context.Cause(l.Context()))
			// It was renewed again, well after the node had run for a lease.
			held, since := s.Int("HEXISTS", keys(t).Lock, "owner") == 1, s.Int("EXISTS", lua.MarkKey("headwaiter", 0, false)) == 1
			return held && since && time.UnixMicro(kit.Until(s, keys(t).Lock)).Add(-lasts).
				After(time.UnixMilli(s.Int("HGET", lua.MarkKey("headwaiter", 0, false), "since")).Add(lasts+300*time.Millisecond))
		})
	}
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	empty(t, all)
}

// What a try finds busy at one node is no hold, so the node is asked again: a bare majority outlasts nothing.
func TestAHoldByATryGetsTheOtherVotesToo(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	clients := dial(t, all)
	m := mutex(t, clients, headwaiter.WithLease(lasts))
	split := kit.Got((*waitqueue.Client)(dial(t, all)[1]).Queue(lua.Redlock, kit.Name(t), waitqueue.DefaultTerms()).Acquire(soon(t)))(t)
	held := kit.Got(m.TryLock(soon(t)))(t)
	kit.Release(t, split)
	kit.Eventually(t, "the vote of the node that was busy", func() bool {
		return strings.HasPrefix(all[1].Text("HGET", keys(t).Lock, "owner"), clients[1].ID())
	})
	kit.Release(t, held)
	empty(t, all)
}

func TestATryAtNodesThatHaveJustStartedSaysSo(t *testing.T) {
	t.Parallel()
	m := redlock.New(dial(t, servers(t, 3)), kit.Name(t), headwaiter.WithLease(time.Minute))
	kit.Fails(t, kit.Err(m.TryLock(soon(t))), lease.ErrBusy, lease.ErrRestarted, `of 3 nodes: busy: the server has restarted`)
}

func TestAMaximumHoldEndsIt(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithMaxHold(300*time.Millisecond))
	require.ErrorIs(t, kit.Lost(t, kit.Got(m.Lock(soon(t)))(t)), lease.ErrMaxHold)
	empty(t, all)
}

func TestAHoldWhoseWorkStallsEndsOnTime(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute), headwaiter.WithMaxStall(2*time.Second))
	l := kit.Got(m.Lock(soon(t)))(t)
	time.Sleep(200 * time.Millisecond) // A step of the work.
	l.Progress()
	moved := time.Now()
	kit.Await(t, l.Context().Done(), "the loss")
	require.GreaterOrEqual(t, time.Since(moved), 2*time.Second)
	require.Less(t, time.Since(moved), 8*time.Second, "the lease has its next look only after ten")
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
	empty(t, all)
}

func TestOneAndSevenNodes(t *testing.T) {
	for _, n := range []int{1, 2, 4, 7} {
		kit.Parallel(t, string(rune('0'+n)), func(t *testing.T) {
			all := servers(t, n)
			a, b := mutex(t, dial(t, all)), mutex(t, dial(t, all))
			l := kit.Got(a.Lock(soon(t)))(t)
			require.ErrorIs(t, kit.Err(b.TryLock(soon(t))), lease.ErrBusy)
			next := kit.Lock(soon(t), b.Lock)
			queued(t, all, 1)
			second := kit.Next(t, l, next)
			kit.Release(t, second)
		})
	}
}

func TestAnEmbeddedServerIsANodeToo(t *testing.T) {
	t.Parallel()
	m := redlock.New([]*headwaiter.Client{kit.Dial(t, redistest.Mini(t))}, "a", redlock.WithoutSafeRestart())
	kit.Release(t, kit.Got(m.Lock(soon(t)))(t))
}

// Two quorums meet in one node, and it is another whose clock is ahead that gives the first its token.
func TestR6TokensRiseOverQuorumsWhoseClocksAreApart(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		kit.Parallel(t, name, func(t *testing.T) {
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
					return voter(t, all[quorum[0]]) == ""
				})
				others(all, quorum, (*redistest.Server).Stop)
				l := kit.Got(m.Lock(soon(t)))(t)
				require.Greater(t, l.Token(), last, "by nodes %v", quorum)
				last = l.Token()
				for _, i := range quorum {
					token := kit.Got(strconv.ParseUint(all[i].Text("HGET", keys(t).Lock, "token"), 10, 64))(t)
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
	scripts := func() (each []int64) {
		for _, s := range all {
			s.ResetStats()
		}
		l := kit.Got(m.Lock(soon(t)))(t)
		everywhere(t, m, all)
		kit.Release(t, l)
		require.NoError(t, m.Wait(soon(t)))
		for _, s := range all {
			each = append(each, s.CommandStats()["evalsha"])
		}
		return each
	}
	scripts() // They are made known.
	// A busy machine lets the clocks look apart, and a vote come late: such a hold costs more, and another one does not.
	kit.Eventually(t, "a hold that costs two scripts a node", func() bool {
		each := scripts()
		for _, n := range each {
			require.GreaterOrEqual(t, n, int64(2))
		}
		return slices.Equal(each, []int64{2, 2, 2})
	})
}

// raised asks a node to raise the token of a client's vote.
func raised(t *testing.T, q waitqueue.Queue, client string, from, to uint64) wire.Status {
	t.Helper()
	r, err := waitqueue.Call(soon(t), q, lua.Raise, 0, func(a waitqueue.Attempt) []string {
		return []string{client, strconv.FormatUint(from, 10), strconv.FormatUint(to, 10), a.NotAfter}
	})
	require.NoError(t, err)
	return r.Status
}

func TestATokenRisesOnlyForTheHoldThatItIsNamedBy(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		q := (*waitqueue.Client)(c).Queue(lua.Redlock, kit.Name(t), waitqueue.Terms{Lease: 2 * time.Second})
		l := kit.Got(q.Acquire(soon(t)))(t)
		raise := func(client string, from, to uint64) wire.Status { return raised(t, q, client, from, to) }
		token := func() uint64 { return kit.Got(strconv.ParseUint(s.Text("HGET", keys(t).Lock, "token"), 10, 64))(t) }
		granted := l.Token()
		require.Equal(t, wire.Refused, raise("somebody", granted, granted+100))
		require.Equal(t, wire.Refused, raise(c.ID(), granted-1, granted+100))
		require.Equal(t, granted, token())
		require.Equal(t, wire.Granted, raise(c.ID(), granted, granted+100))
		require.Equal(t, wire.Granted, raise(c.ID(), granted, granted+100), "a second time")
		require.Equal(t, granted+100, token())
		require.Equal(t, wire.Refused, raise(c.ID(), granted, granted+150), "from where it is no more")
		require.Equal(t, wire.Granted, raise(c.ID(), granted+100, granted+150), "from where it has risen to")
		require.Equal(t, granted+150, token())
		before := l.Deadline()
		kit.Eventually(t, "a renewal of the hold whose token has risen", func() bool {
			require.NoError(t, l.Context().Err())
			return l.Deadline().After(before)
		})
		kit.Release(t, l)
		require.Equal(t, wire.Refused, raise(c.ID(), granted+150, granted+200), "of what is not held")
		next := kit.Got(q.Acquire(soon(t)))(t)
		require.Greater(t, next.Token(), granted+150)
		kit.Release(t, next)
	})
}

// An end tells how far the tokens that its client has seen are ahead. Where the hold's token has risen, it is no further.
func TestTheTokenAfterOneThatHasRisenIsTheNext(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		terms := waitqueue.Terms{Lease: 10 * time.Second}
		q, other := (*waitqueue.Client)(c).Queue(lua.Redlock, kit.Name(t), terms), (*waitqueue.Client)(kit.Dial(t, s)).Queue(lua.Redlock, kit.Name(t), terms)
		l := kit.Got(q.Acquire(soon(t)))(t)
		next := kit.Joins(t, 1, other.Acquire, func(ctx context.Context) (lease.Info, error) { return q.Inspect(ctx) })
		risen := l.Token() + uint64((5 * time.Second).Microseconds())
		require.Equal(t, wire.Granted, raised(t, q, c.ID(), l.Token(), risen))
		waitqueue.Above((*waitqueue.Client)(c), risen)
		l = kit.Next(t, l, next)
		require.Equal(t, risen+1, l.Token())
		kit.Release(t, l)
	})
}

// A node whose clock is slow keeps the token that the others have agreed on for as long as the token is ahead of its clock.
func TestANodeKeepsATokenThatIsAheadOfItsClock(t *testing.T) {
	t.Parallel()
	ahead, behind := redistest.Mini(t), redistest.Mini(t)
	behind.Miniredis().SetTime(time.Now().Add(-time.Hour))
	for _, d := range []time.Duration{10 * time.Second, time.Minute} {
		m := redlock.New([]*headwaiter.Client{kit.Dial(t, ahead), kit.Dial(t, behind)}, kit.Name(t),
			redlock.WithoutSafeRestart(), headwaiter.WithLease(d))
		require.NoError(t, kit.Got(m.Lock(t.Context()))(t).Release(t.Context()))
		require.NoError(t, m.Wait(t.Context()))
		require.Greater(t, behind.Int("PTTL", keys(t).Lock), (time.Hour - kit.Patience).Milliseconds())
	}
}

// The token of a vote that has been renewed is raised: its key still outlives its lease.
func TestARaisedVoteDoesNotOutliveItsKey(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, c, o *headwaiter.Client) {
		terms := waitqueue.Terms{Lease: 10 * time.Minute}
		q := (*waitqueue.Client)(c).Queue(lua.Redlock, kit.Name(t), terms)
		l := kit.Got(q.Acquire(t.Context()))(t)
		synctime.Pass(11 * time.Minute)
		require.Equal(t, wire.Granted, raised(t, q, c.ID(), l.Token(), uint64(kit.ServerTime(s))))
		require.Greater(t, time.Duration(s.Int("PTTL", keys(t).Lock))*time.Millisecond, time.Until(l.Deadline()))
		synctime.Pass(90 * time.Second)
		require.NoError(t, l.Context().Err())
		require.ErrorIs(t, kit.Err((*waitqueue.Client)(o).Queue(lua.Redlock, kit.Name(t), terms).Try(t.Context())), lease.ErrBusy)
		kit.Release(t, l)
	})
}
