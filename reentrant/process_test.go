package reentrant_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

const (
	// rounds is how often what takes milliseconds is measured; the median counts.
	rounds = 5
	// backLimit is how long after the end of a dead holder's lease the next may hold.
	backLimit = 200 * time.Millisecond
)

func TestProcessesTakeTurnsAndDoNotEnterEachOthersHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := reentrant.New(kit.Dial(t, s), kit.Name(t))
	plan := crowd.Plan{Addr: s.Addr(), Kind: crowd.Reentrant, Names: []string{m.Name()}, Clients: 2, Waiters: 4, Lease: 10 * time.Second}
	mine := reentrant.Owner(t.Context(), "job")
	l := hold(t, mine, m)
	crowds := []*crowd.Crowd{crowd.Start(t, plan), crowd.Start(t, plan)}
	kit.Waiting(t, 16, m.Inspect)
	again := hold(t, mine, m)
	kit.Release(t, l)
	kit.Waiting(t, 16, m.Inspect)
	kit.Release(t, again)
	tokens := []uint64{l.Token()}
	for _, c := range crowds {
		for _, e := range c.Await(crowd.Held, 8, kit.Patience) {
			tokens = append(tokens, e.Token)
		}
		for _, e := range c.Await(crowd.Released, 8, kit.Patience) {
			require.Empty(t, e.Error)
		}
	}
	slices.Sort(tokens)
	require.Len(t, slices.Compact(tokens), 17, "each hold has its own token")
	kit.Free(t, m)
}

// Not parallel, as it measures milliseconds. The dead one had entered its hold several times.
func TestTheNextHoldsWhenTheLeaseOfADeadHolderEnds(t *testing.T) {
	s := redistest.Start(t)
	names := make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Reentrant, Names: names, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Entries: 3,
	})
	tokens := map[string]uint64{}
	for _, e := range victim.Await(crowd.Held, rounds, kit.Patience) {
		tokens[e.Name] = e.Token
	}
	client := kit.Dial(t, s)
	calls, begun := make([]*kit.Call[*lease.Lease], rounds), make([]time.Time, rounds)
	for i, name := range names {
		m := reentrant.New(client, name)
		entries(t, m, 4)
		begun[i] = time.Now()
		calls[i] = kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
	}
	victim.Kill()
	ends := make([]int64, rounds)
	for i, name := range names {
		require.False(t, calls[i].Returned())
		ends[i] = kit.Until(s, lockKey(name))
	}
	here, there := time.Now(), kit.ServerTime(s)
	spans := make([]time.Duration, rounds)
	for i, name := range names {
		l := calls[i].Value(t)
		require.Greater(t, l.Token(), tokens[name])
		require.GreaterOrEqual(t, s.Int("HGET", lockKey(name), "token"), ends[i], "granted before the lease was over")
		spans[i] = begun[i].Add(l.Waited()).Sub(here.Add(time.Duration(ends[i]-there) * time.Microsecond))
		require.Equal(t, 1, reentrant.New(client, name).HoldCount(l.Context()))
		entries(t, reentrant.New(client, name), 1)
		kit.Release(t, l)
	}
	t.Logf("from the end of a dead holder's lease to the next hold: %v", spans)
	require.Less(t, kit.Median(spans), backLimit)
}

func TestAProcessThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := reentrant.New(kit.Dial(t, s), kit.Name(t))
	stopped := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Reentrant, Names: []string{m.Name()}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Entries: 2,
	})
	stopped.Await(crowd.Held, 1, kit.Patience)
	c := kit.Lock(t.Context(), m.Lock)
	kit.Waiting(t, 1, m.Inspect)
	stopped.Watch()
	stopped.Stop()
	l := c.Value(t)
	stopped.Cont()
	require.True(t, stopped.Await(crowd.Looked, 1, kit.Patience)[0].Lost)
	stopped.Release()
	require.True(t, stopped.Await(crowd.Released, 1, kit.Patience)[0].Lost)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	kit.Free(t, m)
}
