package semaphore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

const (
	// rounds is how often what takes milliseconds is measured; the median counts.
	rounds = 5
	// backLimit is how long after the end of a dead holder's lease the next may hold.
	backLimit = 200 * time.Millisecond
)

// since is the server's time at which a hold began.
func since(t testing.TB, s *redistest.Server, key string, l *lease.Lease) int64 {
	t.Helper()
	for _, record := range s.List("HVALS", key) {
		// permits:token:lease:phase:since:who
		if f := strings.Split(record, ":"); len(f) > 5 && f[1] == fmt.Sprint(l.Token()) {
			at, err := strconv.ParseInt(f[4], 10, 64)
			require.NoError(t, err)
			return at
		}
	}
	t.Fatalf("nobody holds %s by token %d", key, l.Token())
	return 0
}

// process starts one whose clients take part in the semaphores of the given names.
func process(t testing.TB, s *redistest.Server, names []string, p crowd.Plan) *crowd.Crowd {
	t.Helper()
	p.Addr, p.Kind, p.Names = s.Addr(), crowd.Semaphore, names
	return crowd.Start(t, p)
}

func TestProcessesTakeTurnsAndNeverHoldMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), 3)
	plan := crowd.Plan{Clients: 2, Waiters: 10, Lease: 10 * time.Second, Permits: 3, N: 2}
	l := take(t, x, 2)
	crowds := []*crowd.Crowd{process(t, s, []string{x.Name()}, plan), process(t, s, []string{x.Name()}, plan)}
	kit.Waiting(t, 40, x.Inspect)
	refused(t, x, 1)
	available(t, x, 1)
	kit.Release(t, l)
	tokens := []uint64{l.Token()}
	for _, c := range crowds {
		for _, e := range c.Await(crowd.Held, 20, kit.Patience) {
			tokens = append(tokens, e.Token)
		}
		for _, e := range c.Await(crowd.Released, 20, kit.Patience) {
			require.Empty(t, e.Error)
		}
	}
	slices.Sort(tokens)
	require.Len(t, slices.Compact(tokens), 41, "each hold has its own token")
	unused(t, x)
	available(t, x, 3)
}

func TestAProcessWaitsForAReleaseInAnother(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), 4)
	plan := crowd.Plan{Clients: 1, Waiters: 1, Lease: 10 * time.Second, Keep: true, Permits: 4, N: 3}
	holder := process(t, s, []string{x.Name()}, plan)
	first := holder.Await(crowd.Held, 1, kit.Patience)[0]
	available(t, x, 1)
	waiter := process(t, s, []string{x.Name()}, plan)
	kit.Waiting(t, 1, x.Inspect)
	mine := ask(t.Context(), x, 1) // It fits, and waits: the order is kept between processes.
	kit.Waiting(t, 2, x.Inspect)
	holder.Release()
	second := waiter.Await(crowd.Held, 1, kit.Patience)[0]
	require.Greater(t, second.Token, first.Token)
	l := mine.Value(t)
	require.Greater(t, l.Token(), second.Token)
	kit.Release(t, l)
	waiter.Release()
	require.Empty(t, waiter.Await(crowd.Released, 1, kit.Patience)[0].Error)
	unused(t, x)

	// And states that there are more.
	other := process(t, s, []string{x.Name()}, crowd.Plan{Clients: 1, Waiters: 1, Lease: time.Second, Permits: 5})
	require.Contains(t, other.Await(crowd.Failed, 1, kit.Patience)[0].Error, "stated another limit")
}

// Not parallel, as it measures milliseconds. The dead one held 2 of 3 permits beside one that lives.
func TestThePermitsOfAKilledProcessComeBackWhenItsLeaseEnds(t *testing.T) {
	s := redistest.Start(t)
	client := kit.Dial(t, s)
	names := make([]string, rounds)
	living, waiting := make([]*lease.Lease, rounds), make([]*kit.Call[*lease.Lease], rounds)
	begun, all := make([]time.Time, rounds), make([]*semaphore.Semaphore, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
		all[i] = semaphore.New(client, names[i], 3)
		living[i] = take(t, all[i], 1)
	}
	victim := process(t, s, names, crowd.Plan{Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Permits: 3, N: 2})
	tokens := map[string]uint64{}
	for _, e := range victim.Await(crowd.Held, rounds, kit.Patience) {
		tokens[e.Name] = e.Token
	}
	for i, x := range all {
		begun[i] = time.Now()
		waiting[i] = ask(t.Context(), x, 2)
		kit.Waiting(t, 1, x.Inspect)
	}
	victim.Kill()
	ends := make([]int64, rounds)
	for i, x := range all {
		require.False(t, waiting[i].Returned())
		holders := s.List("ZRANGE", keyOf(x.Name())+":holders", "1", "1", "WITHSCORES")
		ends[i] = s.Int("ZSCORE", keyOf(x.Name())+":holders", holders[0])
	}
	here, there := time.Now(), kit.ServerTime(s)
	spans := make([]time.Duration, rounds)
	for i, x := range all {
		l := waiting[i].Value(t)
		require.Greater(t, l.Token(), tokens[x.Name()])
		require.GreaterOrEqual(t, since(t, s, keyOf(x.Name()), l), ends[i], "granted before the lease was over")
		end := here.Add(time.Duration(ends[i]-there) * time.Microsecond)
		spans[i] = begun[i].Add(l.Waited()).Sub(end)
		require.NoError(t, living[i].Context().Err(), "the hold beside it stands")
		available(t, x, 0)
		kit.Release(t, l)
		kit.Release(t, living[i])
		available(t, x, 3)
	}
	t.Logf("from the end of a killed holder's lease to the next hold: %v", spans)
	require.Less(t, kit.Median(spans), backLimit)
}

func TestKilledWaitersAreSkippedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), 4)
	next := semaphore.New(kit.Dial(t, s), kit.Name(t), 4)
	l := take(t, x, 4)
	victim := process(t, s, []string{x.Name()}, crowd.Plan{Clients: 20, Waiters: 10, Lease: 10 * time.Second, Permits: 4, N: 3})
	kit.Waiting(t, 200, x.Inspect)
	calls := []*kit.Call[*lease.Lease]{ask(t.Context(), next, 3), ask(t.Context(), next, 1)}
	kit.Waiting(t, 202, x.Inspect)
	victim.Kill()
	kit.Eventually(t, "the server to see that the connections are gone", func() bool {
		return len(s.List("PUBSUB", "CHANNELS", "*{*")) == 1
	})
	released := time.Now()
	kit.Release(t, l)
	for _, c := range calls {
		defer kit.Release(t, c.Value(t))
	}
	span := time.Since(released)
	t.Logf("from the release to the holds behind 200 killed waiters: %v", span)
	require.Less(t, span, time.Second, "not by a check")
	kit.Waiting(t, 0, x.Inspect)
}

func TestAProcessThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), 3)
	stopped := process(t, s, []string{x.Name()}, crowd.Plan{Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Permits: 3, N: 2})
	stopped.Await(crowd.Held, 1, kit.Patience)
	mine := take(t, x, 1)
	c := ask(t.Context(), x, 2)
	kit.Waiting(t, 1, x.Inspect)
	stopped.Watch()
	stopped.Stop()
	l := c.Value(t)
	stopped.Cont()
	require.True(t, stopped.Await(crowd.Looked, 1, kit.Patience)[0].Lost)
	stopped.Release()
	require.True(t, stopped.Await(crowd.Released, 1, kit.Patience)[0].Lost)
	available(t, x, 0)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	kit.Release(t, mine)
	unused(t, x)
}
