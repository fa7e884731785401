package waitqueue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Whoever may publish can forge a message. What waits for an event is granted nothing, and no event is told of a lock.
func TestAMessageOfAnotherKindOfPrimitiveIsLeftOut(t *testing.T) {
	const known, unknown = "me:1:b:1:1000:1000", "me:2:b:1:1000:1000"
	for proto, texts := range map[*lua.Protocol][]string{
		lua.Countdown:  {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000", "X " + known + " 0", "W 7"},
		lua.Leadership: {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000"},
		lua.Fairlock:   {"O 5", "B 5", "O 6"},
	} {
		for _, text := range texts {
			c := &client{}
			s := &entry{client: c, id: "me", proto: proto}
			_, ok := s.heard(text)
			require.EqualValues(t, 1, c.stats.Forged.Load(), text)
			require.False(t, ok, text)
		}
	}
}

// subscribe makes the client subscribe to the name of a queue, before a call has to wait.
func subscribe(q Queue) {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	e := q.entryLocked()
	x := e.begin()
	e.lock.Listen(&x.Input)
	e.end(x)
}

// entryOf is what a client has of the name of a queue; nil if it has nothing.
func entryOf(q Queue) *lockEntry {
	e, _ := q.client.entryOf(q.keys.Entry).(*lockEntry)
	return e
}

// All clients that wait for a name look about 200 times a second together, and each about every other second if they
// are few. It is the clients that count, not their calls.
func TestLooksBecomeRarerWithTheNumberOfClientsThatWait(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, x := range []struct {
		what             string
		clients, tickets int // that wait ahead, and how many tickets each has
		every            time.Duration
	}{
		{"alone", 0, 0, 2 * time.Second},
		{"after one with many calls", 1, 2000, 2 * time.Second},
		{"after some", 200, 1, 2 * time.Second},
		{"in a crowd", 2000, 1, 10 * time.Second},
		{"in a large crowd", 6000, 1, 30 * time.Second},
	} {
		t.Run(x.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				holder, c := dial(t, s), dial(t, s)
				l := must.Got(queueOf(holder, "name").Acquire(t.Context()))(t)
				ahead := []string{"ZADD", queueOf(c, "name").keys.All()[1]}
				for i := range x.clients {
					for k := range x.tickets {
						ticket := wire.Ticket{
							Client: fmt.Sprintf("client%016d", i), Number: uint64(k + 1), Kind: wire.Exclusive, Permits: 1,
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
