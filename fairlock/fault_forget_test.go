package fairlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

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

func TestAServerThatRestartsEmptyHoldsUpNobody(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := crowdAt(t, s, kit.Name(t), 3*time.Second)
		s.Restart()
		c.told(t)
		c.emptied(t)
		kit.Free(t, dialMutex(t, s))
	})
}

func TestAServerThatIsAwayForALeaseHoldsUpNobody(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := crowdAt(t, s, kit.Name(t), time.Second)
		s.Kill()
		require.ErrorIs(t, kit.Lost(t, c.held), lease.ErrExpired)
		s.Restart()
		c.emptied(t)
		kit.Free(t, dialMutex(t, s))
	})
}

func TestAFlushedServerHoldsUpNobody(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := crowdAt(t, s, kit.Name(t), 3*time.Second)
		s.Do("FLUSHALL")
		c.told(t)
		c.emptied(t)
		kit.Free(t, dialMutex(t, s))
	})
}

func TestWaitersAndHoldersOutliveTheirConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := crowdAt(t, s, kit.Name(t), 3*time.Second)
	for range 5 {
		require.Positive(t, s.Int("CLIENT", "KILL", "TYPE", "normal"))
		s.Int("CLIENT", "KILL", "TYPE", "pubsub")
		until := number(t, s, c.name, "until")
		kit.Eventually(t, "a renewal", func() bool { return number(t, s, c.name, "until") > until })
	}
	require.NoError(t, c.held.Context().Err())
	require.False(t, c.first.Returned() || c.second.Returned())
	s.Int("CLIENT", "KILL", "TYPE", "normal")
	kit.Release(t, c.held)
	c.emptied(t)
	kit.Free(t, dialMutex(t, s))
}

func TestFlushedScriptsAreNotNoticed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t) + ":held"
		m := fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(3*time.Second))
		l := hold(t, m)
		until := number(t, s, name, "until")
		c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
		flushes := 0
		kit.Eventually(t, "a renewal, and progress between flushes", func() bool {
			s.Do("SCRIPT", "FLUSH")
			flushes++
			return flushes >= 100 && c.fewest(4) >= 10 && number(t, s, name, "until") > until
		})
		c.end(t)
		t.Logf("%d hand-offs and %d flushes", c.handed, flushes)
		holds(t, m, l)
		kit.Release(t, l)
		kit.Free(t, dialMutex(t, s))
	})
}

// subsets are the keys of a lock that a case deletes: l the lock, q the queue, s the suspects.
var subsets = []string{"l", "q", "s", "lq", "ls", "qs", "lqs"}

func TestAnyKeyMayBeDeletedWhileClientsWait(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
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
func suspectsAt(t *testing.T, s redistest.Backend, cases []string) []crowded {
	t.Helper()
	p := kit.Proxy(t, s)
	suspect, holder, waiter := kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), kit.Dial(t, s)
	all, former, next := make([]crowded, len(cases)), make([]*lease.Lease, len(cases)), make([]*call, len(cases))
	for i, x := range cases {
		all[i].name = kit.Name(t) + ":" + x
		former[i] = hold(t, fairlock.New(suspect, all[i].name, headwaiter.WithLease(time.Second)))
		next[i] = begin(t.Context(), fairlock.New(holder, all[i].name, headwaiter.WithLease(3*time.Second)))
		queued(t, fairlock.New(waiter, all[i].name), 1)
	}
	p.Refuse()
	p.Cut()
	for i := range all {
		c := &all[i]
		require.ErrorIs(t, kit.Lost(t, former[i]), lease.ErrExpired)
		c.held = next[i].Value(t)
		c.first = begin(t.Context(), fairlock.New(waiter, c.name))
		m := fairlock.New(holder, c.name)
		queued(t, m, 1)
		require.Equal(t, []string{suspect.ID()}, inspect(t, m).Suspects)
	}
	p.Heal()
	for i := range all {
		all[i].second = begin(t.Context(), fairlock.New(suspect, all[i].name))
	}
	return all
}

// A server takes over that has nothing, and whose clock is behind: those who waited come back, and then another comes.
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
	late := begin(t.Context(), last)
	queued(t, a, 3)
	kit.Release(t, first)
	kit.Release(t, waits[1].Value(t))
	kit.Release(t, waits[2].Value(t))
	kit.Release(t, late.Value(t))
}
