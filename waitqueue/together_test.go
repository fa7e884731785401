package waitqueue

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// standing lets a client wait for a name that another holds for hours, as if it had asked and was heard for. It asks nothing.
func standing(t *testing.T, s *redistest.Embedded, c *Client, name string) *ticket {
	t.Helper()
	q := queueOf(c, name)
	call, err := q.begin(t.Context(), wire.Wait)
	require.NoError(t, err)
	w, at := call.ticket, call.entry
	arrival := time.Now().UnixMicro()
	now := fmt.Sprint(arrival)
	owner := wire.Ticket{Client: "other", Number: 1, Kind: wire.Exclusive, Permits: 1, Lease: 10 * time.Hour, Grant: time.Second}
	s.Do("HSET", q.keys.Lock, "owner", owner.String(), "token", now, "high", now)
	s.Do("ZADD", q.keys.Queue, now, w.Text)
	at.mu.Lock()
	at.lock.Want()
	at.lock.Confirm()
	at.mu.Unlock()
	x := at.begin()
	request, _ := at.lock.BeginAcquire(&x.Input, &w.Ticket, wire.Wait, x.Now)
	reply := wire.Reply{Status: wire.Waiting, Now: arrival, Arrival: arrival, Place: 1, Waiting: 1, Until: arrival + owner.Lease.Microseconds()}
	at.lock.OnAcquireReply(&x.Input, &request, core.Attempt{Sent: x.Now}, &reply, &core.Failure{}, nil)
	at.end(x)
	return w
}

// The looks of a client that are due at one tick go together: however many names it waits for, they are few requests.
func TestLooksAtManyNamesAreFewRequests(t *testing.T) {
	const names, lasts, perSecond = 10_000, 10, 50
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		s.Miniredis().ClockTTL(false) // Else each command sorts all keys.
		c, err := Dial(Options{Redis: s.Option(), Name: "test"})
		require.NoError(t, err)
		over, end := context.WithCancel(context.Background())
		end()
		defer func() { _ = c.Shutdown(over) }()
		for i := range names {
			standing(t, s, c, fmt.Sprint(i))
		}
		synctime.Pass(5*time.Second + time.Millisecond) // Between two ticks.
		s.ResetStats()
		before := c.Stats().Checks
		synctime.Pass(lasts * time.Second)
		sent := s.CommandStats()["evalsha"]
		require.LessOrEqual(t, sent, int64(lasts*perSecond))
		require.InDelta(t, c.Stats().Checks-before, sent, 2, "except for what is on its way at the ends")
		s.Kill()
	})
}

// What a look with others can't do, a check of the name does after it, as soon as ever: a holder that died is passed when its
// lease is over, and a grant whose message was lost is found by the next look. Meanwhile the looks keep all queues.
func TestNamesWithNewsAreCheckedAmongMany(t *testing.T) {
	const names, dead, lost = 100, 7, 8
	for _, p := range []*lua.Protocol{lua.Fairlock, lua.Semaphore} {
		t.Run(p.Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := redistest.Bubble(t)
				dial := func(dialer func() (net.Conn, error)) *Client {
					o := Options{Redis: s.Option(), Name: "test", GrantLease: 5 * time.Second}
					o.Redis.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return dialer() }
					c, err := Dial(o)
					require.NoError(t, err)
					t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
					return c
				}
				cut := faults.NewDialer(t, s.Dial)
				holder, dies, c := dial(s.Dial), dial(cut.Dial), dial(s.Dial)
				queue := func(c *Client, i int) Queue {
					q := c.Queue(p, fmt.Sprint(i), Terms{Lease: lease.DefaultLease, Shared: p.Several()})
					if p.Several() {
						return q.Says(nil, "1").For(wire.Permit, 1)
					}
					return q
				}
				var holds [names]*lease.Lease
				var waits [names]<-chan *lease.Lease
				for i := range names {
					of, err := holder, error(nil)
					if i == dead {
						of = dies
					}
					holds[i], err = queue(of, i).Acquire(t.Context())
					require.NoError(t, err)
					waits[i] = acquire(t.Context(), queue(c, i))
				}
				synctime.Pass(20 * time.Second)
				looks := c.Stats().Checks
				synctime.Pass(10 * time.Second)
				require.Less(t, c.Stats().Checks-looks, uint64(names*2), "they do not go together")
				for i := range names {
					require.Greater(t, s.Int("PTTL", queue(c, i).keys.Queue), int64(47_000), "the looks keep the queue")
				}

				cut.Refuse()
				cut.Cut()
				deadline := holds[dead].Deadline()
				s.DropPublish(1)
				require.NoError(t, holds[lost].Release(t.Context()))
				synctime.Pass(2500*time.Millisecond + 250*time.Millisecond) // And until the message counts as lost.
				require.Len(t, waits[lost], 1)
				require.EqualValues(t, 1, c.Stats().Missed)
				require.Empty(t, waits[dead])
				synctime.Pass(time.Until(deadline.Add(core.Margin(lease.DefaultLease) + 20*time.Millisecond)))
				require.Len(t, waits[dead], 1)
				for i, l := range holds {
					if i != dead && i != lost {
						require.Empty(t, waits[i])
						require.NoError(t, l.Release(t.Context()))
					}
					require.NoError(t, (<-waits[i]).Release(t.Context()))
				}
			})
		})
	}
}
