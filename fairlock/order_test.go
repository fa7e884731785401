package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestCallsOf32ClientsAreServedInTheOrderOfTheirArrival(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		first := dialMutex(t, s)
		held := hold(t, first)
		const clients = 32
		calls := make([]*call, clients)
		for i := range calls {
			calls[i] = begin(t.Context(), dialMutex(t, s))
			queued(t, first, i+1)
		}
		token := held.Token()
		release(t, held)
		for i, c := range calls {
			l := c.granted(t)
			require.Greater(t, l.Token(), token)
			token = l.Token()
			for j := i + 1; j < clients; j++ {
				require.False(t, calls[j].returned(), "call %d returned while call %d holds", j, i)
			}
			release(t, l)
		}
	})
}

func TestCallsOfOneClientAreServedInTheOrderOfTheirArrival(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		l := hold(t, m)
		calls := make([]*call, 16)
		for i := range calls {
			calls[i] = begin(t.Context(), m)
			queued(t, m, i+1)
		}
		for _, c := range calls {
			release(t, l)
			l = c.granted(t)
		}
		release(t, l)
	})
}

func TestATicketKeepsThePlaceOfItsFirstAskWhileItsClientSubscribes(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		// The second client has a subscription when it asks, the first has not. That is no advantage.
		first, second := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, first)
		warm := begin(t.Context(), second)
		queued(t, first, 1)
		release(t, l)
		l = warm.granted(t)

		lock, _, _ := keysOf(nameOf(t))
		high := s.Text("HGET", lock, "high")
		a := begin(t.Context(), first)
		eventually(t, "the first to be seen", func() bool { return s.Text("HGET", lock, "high") != high })
		b := begin(t.Context(), second)
		queued(t, first, 2)
		release(t, l)
		l = a.granted(t)
		require.False(t, b.returned())
		release(t, l)
		release(t, b.granted(t))
	})
}

func TestAPriorityOvertakesThoseThatCameLessThanAStepBefore(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		begun := func(priority int, n int) *call {
			c := begin(t.Context(), dialMutex(t, s, fairlock.WithPriority(priority)))
			queued(t, holder, n)
			return c
		}
		old := begun(0, 1)
		time.Sleep(waitqueue.PriorityStep + 100*time.Millisecond)
		young := begun(0, 2)
		time.Sleep(waitqueue.PriorityStep / 2)
		urgent := begun(1, 3)
		humble := begun(-1, 4)
		late := begun(0, 5)
		for _, c := range []*call{old, urgent, young, late, humble} {
			release(t, l)
			l = c.granted(t)
		}
		release(t, l)
	})
}
