package fairlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// dead is how many wait that do not live any more.
const dead = 1000

// bury queues tickets of n clients that do not exist, as if all of them had died.
func bury(t testing.TB, s redistest.Backend, name string, n int) {
	t.Helper()
	_, queue, _ := keysOf(name)
	now := kit.ServerTime(s)
	args := []string{"ZADD", queue}
	for i := range n {
		ticket := wire.Ticket{
			Client: uuid.NewString(), Number: 1, Kind: wire.Exclusive, Permits: 1,
			Lease: 10 * time.Second, Grant: 2 * time.Second,
		}
		args = append(args, strconv.FormatInt(now-int64(n-i), 10), ticket.String())
	}
	require.EqualValues(t, n, s.Int(args...))
}

// No time passes for them, and no look: in a bubble the next holds before any timer runs.
func TestAThousandDeadClientsInFrontAreSkippedAtOnce(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, former, next *headwaiter.Client) {
		holder := fairlock.New(former, kit.Name(t))
		for i := range 3 {
			l := hold(t, holder)
			bury(t, s, kit.Name(t), dead)
			c := begin(t.Context(), fairlock.New(next, kit.Name(t)))
			queued(t, holder, dead+1)
			before := next.Stats().Checks
			kit.Release(t, l)
			synctest.Wait()
			require.True(t, c.Returned())
			require.Equal(t, before, next.Stats().Checks, "found by a look")
			require.Zero(t, inspect(t, holder).Waiting)
			require.EqualValues(t, (i+1)*dead, former.Stats().Skipped)
			kit.Release(t, c.Value(t))
		}
	})
}

func TestAStoppedProcessInFrontCostsOneGrantLeaseAndTakesItsTurnsLater(t *testing.T) {
	t.Parallel()
	const waiters = 100
	s := redistest.Start(t)
	holder, waiter := dialMutex(t, s), dialMutex(t, s)
	l := hold(t, holder)
	stopped := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: []string{kit.Name(t)}, Clients: 1, Waiters: waiters, Lease: 10 * time.Second,
	})
	queued(t, holder, waiters)
	c := begin(t.Context(), waiter)
	queued(t, holder, waiters+1)
	stopped.Stop()
	l = kit.Next(t, l, c)

	stopped.Cont()
	holds(t, waiter, l)
	kit.Release(t, l)
	stopped.Await(crowd.Held, waiters, kit.Patience)
	for _, e := range stopped.Await(crowd.Released, waiters, kit.Patience) {
		require.Empty(t, e.Error)
	}
	kit.Free(t, holder)
}

// rounds is how many holds of one process are looked at.
const rounds = 5

// A process that dies right after its Unlocks has released at once, or its lease ends: nobody waits for longer.
func TestAHolderThatDiesBehindItsUnlockCostsALeaseAtTheMost(t *testing.T) {
	s, names := redistest.Start(t), make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: names, Clients: 1, Waiters: 1, Lease: 2 * time.Second, Keep: true,
	})
	tokens := map[string]uint64{}
	for _, e := range victim.Await(crowd.Held, rounds, kit.Patience) {
		tokens[e.Name] = e.Token
	}
	client, calls := kit.Dial(t, s), make([]*call, rounds)
	for i, name := range names {
		m := fairlock.New(client, name)
		calls[i] = begin(t.Context(), m)
		queued(t, m, 1)
	}
	ends := make([]int64, rounds)
	for i, name := range names {
		ends[i] = number(t, s, name, "until")
	}
	victim.UnlockAndDie()
	early := 0
	for i, name := range names {
		l := calls[i].Value(t)
		require.Greater(t, l.Token(), tokens[name])
		// A renewal may have come after the end was read.
		late := time.Duration(number(t, s, name, "token")-ends[i]) * time.Microsecond
		require.Less(t, late, 2*time.Second+kit.Patience/4, "it costs more than a lease")
		if late < 0 {
			early++
		}
		kit.Release(t, l)
	}
	t.Logf("%d of %d were given back before the process died", early, rounds)
	for _, name := range names {
		require.False(t, inspect(t, fairlock.New(client, name)).Held)
	}
}

func TestTheLeaseOfADeadHolderIsNotCutByWhoeverAsks(t *testing.T) {
	s := kit.Start(t)
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: []string{kit.Name(t)}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true,
	})
	victim.Await(crowd.Held, 1, kit.Patience)
	waiter, asker := dialMutex(t, s), dialMutex(t, s)
	c := joins(t, 1, waiter, asker)
	victim.Kill()
	end := number(t, s, kit.Name(t), "until")
	for !c.Returned() {
		require.ErrorIs(t, kit.Err(asker.TryLock(t.Context())), lease.ErrBusy)
	}
	l := c.Value(t)
	require.GreaterOrEqual(t, number(t, s, kit.Name(t), "token"), end)
	kit.Release(t, l)
}

// crowded is a lock that one client holds and two wait for.
type crowded struct {
	name          string
	held          *lease.Lease
	first, second *call
}

// crowdAt makes one, with the given lease of the holder.
func crowdAt(t *testing.T, s redistest.Backend, name string, lasts time.Duration) crowded {
	t.Helper()
	holder := fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(lasts))
	c := crowded{name: name, held: hold(t, holder)}
	for i, x := range []**call{&c.first, &c.second} {
		*x = begin(t.Context(), fairlock.New(kit.Dial(t, s), name))
		queued(t, holder, i+1)
	}
	return c
}

// emptied waits until both waiters have had the lock, in whatever order, with tokens above the one before.
func (c crowded) emptied(t *testing.T) {
	t.Helper()
	token := c.held.Token()
	calls := []*call{c.first, c.second}
	for len(calls) > 0 {
		kit.Eventually(t, "the next waiter to hold", func() bool {
			for i, x := range calls {
				if x.Returned() {
					calls[0], calls[i] = calls[i], calls[0]
					return true
				}
			}
			return false
		})
		l := calls[0].Value(t)
		require.Greater(t, l.Token(), token)
		token = l.Token()
		kit.Release(t, l)
		calls = calls[1:]
	}
}

// told asserts that the holder was told that its hold is forgotten: before its deadline, at which it would
// have ended as expired.
func (c crowded) told(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, kit.Lost(t, c.held), lease.ErrForgotten)
	require.ErrorIs(t, c.held.Release(context.Background()), lease.ErrLost)
}

func TestAServerThatIsAwayForALeaseHoldsUpNobody(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := crowdAt(t, s, kit.Name(t), time.Second)
		s.Kill()
		require.ErrorIs(t, kit.Lost(t, c.held), lease.ErrExpired)
		s.Restart()
		c.emptied(t)
		kit.Free(t, dialMutex(t, s))
	})
}

// subsets are the keys of a lock that a case deletes: l the lock, q the queue, s the suspects.
var subsets = []string{"l", "q", "s", "lq", "ls", "qs", "lqs"}

func TestAnyKeyMayBeDeletedWhileClientsWait(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		all := suspectsAt(t, s, subsets)
		for i, c := range all {
			lock, queue, suspects := keysOf(c.name)
			for _, k := range subsets[i] {
				s.Do("DEL", map[rune]string{'l': lock, 'q': queue, 's': suspects}[k])
			}
			if !strings.Contains(subsets[i], "l") {
				kit.Release(t, c.held)
			}
		}
		client := kit.Dial(t, s)
		for i, c := range all {
			if strings.Contains(subsets[i], "l") {
				c.told(t)
			}
			c.emptied(t)
			kit.Free(t, fairlock.New(client, c.name))
		}
	})
}

// suspectsAt makes crowded locks where one of those that wait has let a lease run out, so that all keys
// are there.
func suspectsAt(t *testing.T, s *redistest.Embedded, cases []string) []crowded {
	t.Helper()
	d := faults.NewDialer(t, s.Dial)
	suspect, holder, waiter := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), kit.Dial(t, s)
	all, former, next := make([]crowded, len(cases)), make([]*lease.Lease, len(cases)), make([]*call, len(cases))
	for i, x := range cases {
		all[i].name = kit.Name(t) + ":" + x
		former[i] = hold(t, fairlock.New(suspect, all[i].name, headwaiter.WithLease(time.Second)))
		next[i] = begin(t.Context(), fairlock.New(holder, all[i].name, headwaiter.WithLease(3*time.Second)))
		queued(t, fairlock.New(waiter, all[i].name), 1)
	}
	d.Away()
	for i := range all {
		c := &all[i]
		require.ErrorIs(t, kit.Lost(t, former[i]), lease.ErrExpired)
		c.held = next[i].Value(t)
		c.first = begin(t.Context(), fairlock.New(waiter, c.name))
		m := fairlock.New(holder, c.name)
		queued(t, m, 1)
		require.Equal(t, []string{suspect.ID()}, inspect(t, m).Suspects)
	}
	d.Heal()
	for i := range all {
		all[i].second = begin(t.Context(), fairlock.New(suspect, all[i].name))
	}
	return all
}

// A server takes over that has no data, and whose clock is slow: the waiters come back, and then another call comes.
func TestWhoComesAfterAFailoverOvertakesNobody(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	s := redistest.Start(t, redistest.WithClock(clock))
	holder, a, last := fairlock.New(kit.Dial(t, s), kit.Name(t)), fairlock.New(kit.Dial(t, s), kit.Name(t)), fairlock.New(kit.Dial(t, s), kit.Name(t))
	hold(t, holder)
	var waits []*kit.Call[*lease.Lease]
	for i := range 3 {
		waits = append(waits, begin(t.Context(), a))
		queued(t, holder, i+1)
	}
	clock.Shift(-10 * time.Minute)
	s.Do("FLUSHALL")
	first := waits[0].Value(t)
	queued(t, a, 2)
	kit.PassOn(t, first, waits[1], waits[2], joins(t, 3, last, a))
}
