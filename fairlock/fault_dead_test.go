package fairlock_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
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
