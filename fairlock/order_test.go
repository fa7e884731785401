package fairlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestCallsOf32ClientsAreServedInTheOrderOfTheirArrival(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		first := dialMutex(t, s)
		held := hold(t, first)
		const clients = 32
		calls := make([]*call, clients)
		for i := range calls {
			calls[i] = begin(t.Context(), dialMutex(t, s))
			queued(t, first, i+1)
		}
		token := held.Token()
		kit.Release(t, held)
		for i, c := range calls {
			l := c.Value(t)
			require.Greater(t, l.Token(), token)
			token = l.Token()
			for j := i + 1; j < clients; j++ {
				require.False(t, calls[j].Returned(), "call %d returned while call %d holds", j, i)
			}
			kit.Release(t, l)
		}
	})
}

func TestCallsOfOneClientAreServedInTheOrderOfTheirArrival(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		l := hold(t, m)
		calls := make([]*call, 16)
		for i := range calls {
			calls[i] = begin(t.Context(), m)
			queued(t, m, i+1)
		}
		for _, c := range calls {
			kit.Release(t, l)
			l = c.Value(t)
		}
		kit.Release(t, l)
	})
}

func TestATicketKeepsThePlaceOfItsFirstAskWhileItsClientSubscribes(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		// The second client has a subscription when it asks, the first has not. That is no advantage.
		first, second := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, first)
		warm := begin(t.Context(), second)
		queued(t, first, 1)
		kit.Release(t, l)
		l = warm.Value(t)

		lock, _, _ := keysOf(kit.Name(t))
		high := s.Text("HGET", lock, "high")
		a := begin(t.Context(), first)
		kit.Eventually(t, "the first to be seen", func() bool { return s.Text("HGET", lock, "high") != high })
		b := begin(t.Context(), second)
		queued(t, first, 2)
		kit.Release(t, l)
		l = a.Value(t)
		require.False(t, b.Returned())
		kit.Release(t, l)
		kit.Release(t, b.Value(t))
	})
}

func TestAPriorityOvertakesThoseThatCameLessThanAStepBefore(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		begun := func(priority int, n int) *call {
			c := begin(t.Context(), dialMutex(t, s, headwaiter.WithPriority(priority)))
			queued(t, holder, n)
			return c
		}
		old := begun(0, 1)
		synctime.Pass(waitqueue.PriorityStep + 100*time.Millisecond)
		young := begun(0, 2)
		synctime.Pass(waitqueue.PriorityStep / 2)
		urgent := begun(1, 3)
		humble := begun(-1, 4)
		late := begun(0, 5)
		for _, c := range []*call{old, urgent, young, late, humble} {
			kit.Release(t, l)
			l = c.Value(t)
		}
		kit.Release(t, l)
	})
}

// A low priority comes to a lock that goes from hand to hand while its client subscribes, and then the usual one, which it
// lets pass.
func TestALowPriorityLetsOthersPassAlsoWhereItWasNotQueuedAtOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for try := 0; ; try++ {
			name := fmt.Sprint(kit.Name(t), try)
			busy := fairlock.New(kit.Dial(t, s), name)
			held := hold(t, busy)
			background := begin(t.Context(), fairlock.New(kit.Dial(t, s), name, headwaiter.WithPriority(-60)))
			var err error
			for err == nil && s.Int("ZCARD", lua.Fairlock.Keys("headwaiter", name).Queue) == 0 {
				kit.Release(t, held)
				held, err = busy.TryLock(t.Context())
			}
			if err != nil { // It came in between: once more.
				kit.Release(t, background.Value(t))
				continue
			}
			next := begin(t.Context(), fairlock.New(kit.Dial(t, s), name))
			queued(t, busy, 2)
			kit.Release(t, held)
			kit.Release(t, next.Value(t))
			kit.Release(t, background.Value(t))
			return
		}
	})
}
