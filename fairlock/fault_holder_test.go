package fairlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestTheNextHoldsWhenTheLeaseOfADeadHolderEnds(t *testing.T) {
	const limit = 200 * time.Millisecond
	s := redistest.Start(t)
	names := make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: names, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true,
	})
	tokens := map[string]uint64{}
	for _, e := range victim.Await(crowd.Held, rounds, kit.Patience) {
		tokens[e.Name] = e.Token
	}
	client := kit.Dial(t, s)
	calls, begun := make([]*call, rounds), make([]time.Time, rounds)
	for i, name := range names {
		m := fairlock.New(client, name)
		begun[i] = time.Now()
		calls[i] = begin(t.Context(), m)
		queued(t, m, 1)
	}
	victim.Kill()
	ends := make([]int64, rounds)
	for i, name := range names {
		require.False(t, calls[i].Returned())
		ends[i] = number(t, s, name, "until")
	}
	here, there := time.Now(), kit.ServerTime(s)
	spans := make([]time.Duration, rounds)
	for i, name := range names {
		l := calls[i].Value(t)
		require.Greater(t, l.Token(), tokens[name])
		require.GreaterOrEqual(t, number(t, s, name, "token"), ends[i], "granted before the lease was over")
		end := here.Add(time.Duration(ends[i]-there) * time.Microsecond)
		spans[i] = begun[i].Add(l.Waited()).Sub(end)
	}
	t.Logf("from the end of a dead holder's lease to the next hold: %v", spans)
	require.Less(t, kit.Median(spans), limit)
}

// A process that dies right behind its Unlocks has given back at once, or its lease ends: nobody waits for longer.
func TestAHolderThatDiesBehindItsUnlockCostsALeaseAtTheMost(t *testing.T) {
	s := redistest.Start(t)
	names := make([]string, rounds)
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
	client := kit.Dial(t, s)
	calls := make([]*call, rounds)
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
		// A renewal may have come behind the look at the end.
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
	t.Parallel()
	s := redistest.Start(t)
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: []string{kit.Name(t)}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true,
	})
	victim.Await(crowd.Held, 1, kit.Patience)
	waiter, asker := dialMutex(t, s), dialMutex(t, s)
	c := begin(t.Context(), waiter)
	queued(t, asker, 1)
	victim.Kill()
	end := number(t, s, kit.Name(t), "until")
	for !c.Returned() {
		_, err := asker.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
	}
	l := c.Value(t)
	require.GreaterOrEqual(t, number(t, s, kit.Name(t), "token"), end)
	kit.Release(t, l)
}

func TestAHolderThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := kit.Dial(t, s)
	m := fairlock.New(client, kit.Name(t))
	stopped := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Names: []string{kit.Name(t)}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true,
	})
	former := stopped.Await(crowd.Held, 1, kit.Patience)[0]
	c := begin(t.Context(), m)
	queued(t, m, 1)
	stopped.Watch()
	stopped.Stop()
	l := c.Value(t)
	require.Greater(t, l.Token(), former.Token)

	stopped.Cont()
	looked := stopped.Await(crowd.Looked, 1, kit.Patience)[0]
	require.True(t, looked.Lost, "%+v", looked)
	stopped.Release()
	released := stopped.Await(crowd.Released, 1, kit.Patience)[0]
	require.True(t, released.Lost, "%+v", released)
	require.Equal(t, client.ID(), inspect(t, m).Holder.Client)
	holds(t, m, l)
	kit.Release(t, l)
	kit.Free(t, m)
}
