package waitqueue

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
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
			s := &site{client: c, id: "me", proto: proto}
			_, ok := s.heard(text)
			require.EqualValues(t, 1, c.stats.Forged.Load(), text)
			require.False(t, ok, text)
		}
	}
}

// subscribe makes the client subscribe to the name of a queue, before a call has to wait.
func subscribe(q Queue) {
	c := q.client
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entryLocked(q.binding)
	x := e.begin()
	e.lock.Listen(&x.Input)
	e.end(x)
}

// entryOf is what a client has of the name of a queue; nil if it has nothing.
func entryOf(q Queue) *entry {
	e, _ := q.client.known(q.keys.Site).(*entry)
	return e
}

// What has just been used, and has no ticket, is what the next call is about to need.
func TestASiteThatWasJustUsedIsNotRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		subscribe(q)
		s := entryOf(q)
		synctime.Pass(c.opts.Linger - 1)
		subscribe(q)
		s.act.Lock()
		s.do(nil, &core.Effect{Do: core.Retire}) // The tick that was due at the same moment.
		s.act.Unlock()
		synctest.Wait()
		require.Same(t, s, entryOf(q))
		synctime.Pass(2 * c.opts.Linger)
		require.Nil(t, entryOf(q))
	})
}

// An end without a ticket is answered with a grant that its client has not confirmed. Nobody gives it back who does not
// know its ticket because his site was retired meanwhile.
func TestASiteIsNotRetiredBeforeTheEndOfWhatHasNoTicket(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dial(t, s), dial(t, s)
		qa, qb := queueOf(a, "name"), queueOf(b, "name")
		l := must.Got(qa.Acquire(t.Context()))(t)
		require.NoError(t, l.Release(t.Context()))
		old := entryOf(qa)
		at := time.Now().Add(1500 * time.Millisecond)
		lostUnderAnOldNumber(old, qa.binding, at)
		synctime.Pass(5 * a.opts.Linger)
		l = must.Got(qb.Acquire(t.Context()))(t)
		mine := acquire(t.Context(), qa)
		synctime.Pass(100 * time.Millisecond)
		next := acquire(t.Context(), qb)
		synctime.Pass(time.Until(at) - 10*time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
		l = <-mine
		synctime.Pass(time.Second)
		require.Zero(t, a.Stats().GivenBack)
		require.Empty(t, next)
		require.NoError(t, context.Cause(l.Context()))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, (<-next).Release(t.Context()))
		synctime.Pass(10 * time.Second)
		require.Nil(t, entryOf(qa))
	})
}

// lostUnderAnOldNumber has a request go without an answer until a time, whose ticket has another number since.
func lostUnderAnOldNumber(e *entry, q *binding, until time.Time) {
	ticket := q.newTicket(context.Background())
	ticket.entry = e
	f := failure(io.EOF)
	x := e.begin()
	e.lock.Register(&x.Input, &ticket.Ticket)
	request, _ := e.lock.BeginAcquire(&x.Input, &ticket.Ticket, wire.Wait, x.Now)
	request.Text = q.client.id() + ":999:x:1:10000:2000"
	e.lock.OnAcquireReply(&x.Input, &request, core.Attempt{Sent: x.Now, Expires: until}, &wire.Reply{}, &f, nil)
	e.lock.Finish(&x.Input, &ticket.Ticket)
	e.end(x)
}

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

// A server that is back may have forgotten the newest of a client's tickets. The look that names all of them is repeated as
// that.
func TestALookAtAllTicketsThatFailsIsRepeatedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tickets, forgotten = 150, 25 // A check names 100.
		s := redistest.Bubble(t)
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		c := must.Got(Dial(Options{Redis: o, Name: "test"}))(t)
		defer func() { _ = c.Shutdown(context.Background()) }()
		l := must.Got(queueOf(dial(t, s), "name").Acquire(t.Context()))(t)
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
		at := entryOf(q)
		at.act.Lock()
		at.listener.Reconnect()
		at.act.Unlock()
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
