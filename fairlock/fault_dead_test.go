package fairlock_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	dead = 1000
	// rounds is how often a span is measured where a bound in milliseconds holds. The median counts, because
	// one of them may be interrupted by whatever else the machine does.
	rounds = 5
	// deadLimit is what all the dead waiters together may cost.
	deadLimit = 100 * time.Millisecond
)

// bury queues tickets of so many clients that do not exist, as if all of them had died.
func bury(t testing.TB, s redistest.Backend, name string, n int) {
	t.Helper()
	_, queue, _ := keysOf(name)
	now := kit.ServerTime(s)
	args := []string{"ZADD", queue}
	for i := range n {
		ticket := lua.Ticket{
			Client: uuid.NewString(), Number: 1, Kind: lua.Exclusive, Permits: 1,
			Lease: 10 * time.Second, Grant: 2 * time.Second,
		}
		args = append(args, strconv.FormatInt(now-int64(n-i), 10), ticket.String())
	}
	require.EqualValues(t, n, s.Int(args...))
}

// Not parallel, as the other tests that measure milliseconds.
func TestAThousandDeadClientsInFrontAreSkippedAtOnce(t *testing.T) {
	s := redistest.Start(t)
	former, next := kit.Dial(t, s), kit.Dial(t, s)
	holder, waiter := fairlock.New(former, kit.Name(t)), fairlock.New(next, kit.Name(t))
	spans := make([]time.Duration, rounds)
	for i := range spans {
		l := hold(t, holder)
		bury(t, s, kit.Name(t), dead)
		c := begin(t.Context(), waiter)
		queued(t, holder, dead+1)
		released := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		spans[i] = time.Since(released)
		require.Zero(t, inspect(t, holder).Waiting)
		kit.Release(t, l)
	}
	t.Logf("from the release to the hold behind %d dead clients: %v", dead, spans)
	require.Less(t, kit.Median(spans), deadLimit)
	require.EqualValues(t, rounds*dead, former.Stats().Skipped+next.Stats().Skipped)
}

func TestAThousandKilledWaitersInFrontAreSkippedAtOnce(t *testing.T) {
	const clients = 100
	s := redistest.Start(t)
	holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
	names := make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	former, next := make([]*fairlock.Mutex, rounds), make([]*call, rounds)
	leases := make([]*lease.Lease, rounds)
	for i, name := range names {
		former[i] = fairlock.New(holder, name)
		leases[i] = hold(t, former[i])
	}
	victims := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: names, Clients: clients, Waiters: dead / clients, Lease: 10 * time.Second,
	})
	for i, name := range names {
		queued(t, former[i], dead)
		next[i] = begin(t.Context(), fairlock.New(waiter, name))
		queued(t, former[i], dead+1)
	}
	victims.Kill()
	kit.Eventually(t, "the server to see that the connections are gone", func() bool {
		return len(s.List("PUBSUB", "CHANNELS", "*{*")) == rounds
	})
	spans := make([]time.Duration, rounds)
	for i := range spans {
		released := time.Now()
		kit.Release(t, leases[i])
		l := next[i].Value(t)
		spans[i] = time.Since(released)
		kit.Release(t, l)
		kit.Free(t, former[i])
	}
	t.Logf("from the release to the hold behind %d killed waiters: %v", dead, spans)
	require.Less(t, kit.Median(spans), deadLimit)
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
	released := time.Now()
	kit.Release(t, l)
	l = c.Value(t)
	span := time.Since(released)
	t.Logf("from the release to the hold behind a stopped process: %v", span)
	require.Less(t, span, 5*time.Second)

	stopped.Cont()
	holds(t, waiter, l)
	kit.Release(t, l)
	stopped.Await(crowd.Held, waiters, kit.Patience)
	for _, e := range stopped.Await(crowd.Released, waiters, kit.Patience) {
		require.Empty(t, e.Error)
	}
	kit.Free(t, holder)
}
