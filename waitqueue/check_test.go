package waitqueue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// All clients that wait for a name look about 200 times a second together, and each at least every other second if they
// are few. It is the clients that count, not their calls.
func TestLooksBecomeRarerWithTheNumberOfClientsThatWait(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, x := range []struct {
		what             string
		clients, tickets int // that wait ahead, and how many tickets each has
		every            time.Duration
	}{
		{"alone", 0, 0, 2 * time.Second},
		{"behind one with many calls", 1, 2000, 2 * time.Second},
		{"behind some", 200, 1, 2 * time.Second},
		{"in a crowd", 2000, 1, 10 * time.Second},
		{"in a large crowd", 6000, 1, 30 * time.Second},
	} {
		t.Run(x.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := redistest.Bubble(t)
				holder, c := dial(t, s), dial(t, s)
				l, err := queueOf(holder, "name").Acquire(t.Context())
				require.NoError(t, err)
				ahead := []string{"ZADD", queueOf(c, "name").keys.All()[1]}
				for i := range x.clients {
					for k := range x.tickets {
						ticket := lua.Ticket{
							Client: fmt.Sprintf("client%016d", i), Number: uint64(k + 1), Kind: lua.Exclusive, Permits: 1,
							Lease: lease.DefaultLease, Grant: time.Second,
						}
						ahead = append(ahead, fmt.Sprint(len(ahead)), ticket.String())
					}
				}
				if x.clients > 0 {
					s.Do(ahead...)
				}
				next := acquire(t.Context(), queueOf(c, "name"))
				synctime.Pass(time.Minute)
				before := c.Stats().Checks
				synctime.Pass(lasts)
				looks := c.Stats().Checks - before
				// The number of clients is told by a sample of the queue.
				require.Less(t, looks, 2*uint64(lasts/x.every))
				require.Greater(t, looks, uint64(lasts/x.every)/2)
				s.Do("DEL", ahead[1])
				require.NoError(t, l.Release(t.Context()))
				require.NotNil(t, <-next)
			})
		})
	}
}

// A server that is back may have forgotten the newest of a client's tickets. The look that names all of them is repeated as
// that.
func TestALookAtAllTicketsThatFailsIsRepeatedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tickets, forgotten = checkBatch + checkBatch/2, checkBatch / 4
		s := redistest.Bubble(t)
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		c, err := Dial(Options{Redis: o, Name: "test"})
		require.NoError(t, err)
		defer func() { _ = c.Close(context.Background()) }()
		l, err := queueOf(dial(t, s), "name").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var calls []<-chan *lease.Lease
		for range tickets {
			calls = append(calls, acquire(ctx, queueOf(c, "name")))
			synctime.Pass(5 * time.Millisecond)
		}
		synctime.Pass(10 * time.Second)
		q := queueOf(c, "name")
		queue := q.keys.All()[1]
		require.EqualValues(t, tickets, s.Int("ZCARD", queue))

		s.Do("ZREMRANGEBYRANK", queue, fmt.Sprint(-forgotten), "-1")
		d.LoseReplies(1, func(words []string) bool { return len(words) > 1 && words[1] == lua.Fairlock.Check.SHA })
		at := c.known(q.keys.Site)
		at.mu.Lock()
		at.ears.Reconnect()
		at.mu.Unlock()
		synctime.Pass(time.Minute)
		lost, _ := d.Lost()
		require.Equal(t, 1, lost)
		require.EqualValues(t, tickets, s.Int("ZCARD", queue))
		cancel()
		for _, call := range calls {
			require.Nil(t, <-call)
		}
		require.NoError(t, l.Release(t.Context()))
	})
}

// Whether a call waits for what a lost answer may have told is seen when the look is due, once for all: there may be thousands
// that have no answer.
func TestWhatALostAnswerMayHaveToldIsLookedForOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		asks, waits := q.newTicket(t.Context()), q.newTicket(t.Context())
		for _, mine := range []*ticket{asks, waits} {
			_, err := c.register(q.binding, mine)
			require.NoError(t, err)
		}
		at := asks.site
		at.mu.Lock()
		asks.state, waits.state = asking, asking
		for range 3 {
			asks.inflight++
			at.landedLocked(asks, asks.text, conn.Sending(), errNoAnswer)
		}
		at.mu.Unlock()
		synctime.Pass(time.Second)
		require.Zero(t, c.Stats().Checks, "nobody waits")

		at.mu.Lock()
		asks.inflight++
		at.landedLocked(asks, asks.text, conn.Sending(), errNoAnswer)
		waits.state, waits.arrival = waiting, 1
		at.mu.Unlock()
		synctime.Pass(retry.LongestBackoff)
		require.NotZero(t, c.Stats().Checks)
		at.mu.Lock()
		at.endLocked(asks)
		at.endLocked(waits)
		at.mu.Unlock()
	})
}
