package waitqueue

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// pair is two clients of one server in a bubble, the first over a network with faults.
func pair(t *testing.T) (d *faults.Dialer, mine, theirs *Client) {
	t.Helper()
	s := redistest.Bubble(t)
	d = faults.NewDialer(t, s.Dial)
	dial := func(with func(*Options)) *Client {
		o := Options{Redis: s.Option()}
		with(&o)
		c := must.Got(Dial(o))(t)
		t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) })
		return c
	}
	return d, dial(func(o *Options) { o.Redis.DialCtxFn = d.DialCtx }), dial(func(*Options) {})
}

// A connection that is cut, or loses an answer, right after an Unlock costs a repetition, and no lease.
func TestNothingOfAnUnlockIsLostWithItsConnection(t *testing.T) {
	for name, fault := range map[string]func(*faults.Dialer){
		"cut": func(d *faults.Dialer) { d.Cut() },
		"no answer": func(d *faults.Dialer) {
			d.LoseReplies(1, func(words []string) bool { return len(words) > 1 && words[1] == lua.Fairlock.End.SHA })
		},
		"nothing arrives for a second": func(d *faults.Dialer) {
			d.Drop(faults.ToServer)
			time.AfterFunc(time.Second, d.Heal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, mine, theirs := pair(t)
				for range 20 {
					l := must.Got(benchQueue(mine, 0).Acquire(t.Context()))(t)
					if name == "cut" {
						l.Unlock()
						fault(d)
					} else {
						fault(d)
						l.Unlock()
					}
					unlocked := time.Now()
					next := must.Got(benchQueue(theirs, 0).Acquire(t.Context()))(t)
					require.Less(t, time.Since(unlocked), lease.DefaultLease/2)
					require.NoError(t, next.Release(t.Context()))
				}
				if name == "no answer" {
					replies, _ := d.Lost()
					require.Positive(t, replies)
				}
			})
		})
	}
}

// An ask takes along the end that it follows, so both are one round trip; and what it takes is sent once.
func TestAnAskTakesTheUnlockBeforeItAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, mine, _ := pair(t)
		q := benchQueue(mine, 0)
		for range 100 {
			must.Got(q.Try(t.Context()))(t).Unlock()
		}
		synctest.Wait()
		time.Sleep(linger) // Of the bubble.
		synctest.Wait()
		require.Equal(t, uint64(100), mine.Stats().ReleaseRequests)
		require.False(t, must.Got(q.Inspect(t.Context()))(t).Held)
		open, nodes := mine.ends.left()
		require.Zero(t, open)
		require.Zero(t, nodes)
	})
}

// Asks for one name set back the timer of what they take along, and of nothing else.
func TestAnUnlockIsNotPutOffByAsksForOtherNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, mine, theirs := pair(t)
		busy, other := benchQueue(mine, 0), benchQueue(mine, 1)
		for range 3 {
			must.Got(busy.Acquire(t.Context()))(t).Unlock()
		}
		l := must.Got(other.Acquire(t.Context()))(t)
		l.Unlock()
		unlocked := time.Now()
		for time.Since(unlocked) <= linger {
			must.Got(busy.Acquire(t.Context()))(t).Unlock()
			time.Sleep(linger / 8) // Of the bubble.
		}
		synctest.Wait()
		require.NoError(t, must.Err(benchQueue(theirs, 1).Try(t.Context())))
	})
}

const manyUnlocks = 1000

// Not parallel, because it counts goroutines.
func TestUnlocksWithoutAnAnswerCostNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, theirs := pair(t)
		leases := make([]*lease.Lease, manyUnlocks)
		for i := range leases {
			leases[i] = must.Got(benchQueue(mine, i).Acquire(t.Context()))(t)
		}
		d.Freeze()
		goroutines := runtime.NumGoroutine()
		for _, l := range leases {
			l.Unlock()
		}
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine(), goroutines+10)
		d.Heal()
		ended := func() int { open, _ := mine.ends.left(); return open }
		for began := time.Now(); ended() > 0 && time.Since(began) < lease.DefaultLease; {
			time.Sleep(100 * time.Millisecond) // Of the bubble.
		}
		require.Zero(t, ended(), "all are answered, or their leases over")
		for _, i := range []int{0, manyUnlocks / 2, manyUnlocks - 1} {
			require.NoError(t, must.Err(benchQueue(theirs, i).Try(t.Context())))
		}
		runtime.KeepAlive(leases)
	})
}

// A program that ends right after an Unlock, with Close deferred above, has given back.
func TestCloseWaitsForAnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, theirs := pair(t)
		l := must.Got(benchQueue(mine, 0).Acquire(t.Context()))(t)
		d.Delay(50 * time.Millisecond)
		l.Unlock()
		require.NoError(t, mine.Shutdown(t.Context()))
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
		require.NoError(t, must.Err(benchQueue(theirs, 0).Try(t.Context())))
	})
}

// primed lets the ends of a client linger.
func primed(t *testing.T, c *Client) {
	t.Helper()
	for range 3 {
		must.Got(benchQueue(c, 0).Acquire(t.Context()))(t).Unlock()
	}
}

// A call that waits for an end does not wait for it to linger.
func TestAnUnlockDoesNotLingerForACallForSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, mine, _ := pair(t)
		primed(t, mine)
		begun := time.Now()
		must.Got(benchQueue(mine, 1).Acquire(t.Context()))(t).Unlock()
		l := must.Got(TryAll(t.Context(), []Queue{benchQueue(mine, 1)}))(t)
		require.Less(t, time.Since(begun), linger)
		require.NoError(t, l.Release(t.Context()))
	})
}

// What is left of a hold after an Unlock for writing is known to the server before a later call of the client asks.
func TestACallFollowsAnUnlockForWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, _ := pair(t)
		q := mine.Queue(lua.RWLock, "rw", DefaultTerms()).Nested(Reenters).Says(nil, fmt.Sprint(wire.AllReaders))
		writes := must.Got(q.For(wire.Write, wire.AllReaders).Acquire(t.Context()))(t)
		reads := must.Got(q.For(wire.Read, 1).Acquire(writes.Context()))(t)
		d.Delay(10 * time.Millisecond)
		writes.Unlock()
		require.NoError(t, must.Got(q.For(wire.Read, 1).Try(t.Context()))(t).Release(t.Context()))
		require.NoError(t, reads.Release(t.Context()))
	})
}

// ears hear what a test says.
type ears struct {
	conn.Listener
	hears bool
}

func (e *ears) Subscribed(conn.Subscriber) bool { return e.hears }

// What a listener has decided under its lock it says without it: perhaps after another has confirmed the channel at the
// node where the slot has gone, or after its own next connection has. An entry that took that for true would be deaf for
// good, as nobody subscribes for it any more.
func TestALateWordOfAListenerChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.InBubble(t, func(t *testing.T, server *redistest.Embedded) {
		a, b := dial(t, server), dial(t, server)
		q := queueOf(a, "late")
		held := must.Got(queueOf(b, "late").Acquire(t.Context()))(t)
		got := acquire(t.Context(), q)
		synctest.Wait()
		s := entryOf(q)
		hears := func(want bool) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, want, s.lock.Subscribed())
		}
		deafen := func() {
			s.mu.Lock()
			s.lock.Drop()
			s.mu.Unlock()
		}
		listenAt := func(at conn.Listener) (before conn.Listener) {
			s.act.Lock()
			defer s.act.Unlock()
			before, s.listener = s.listener, at
			return before
		}
		own, other := &ears{hears: true}, &ears{}
		kept := listenAt(own)
		hears(true)

		s.Unheard(other)
		hears(true)
		s.Unheard(own) // Of a connection before the one that it has.
		hears(true)
		own.hears = false
		s.Unheard(own)
		hears(false)
		s.Confirmed(own, 1) // Likewise.
		hears(false)
		own.hears = true
		s.Confirmed(own, 1)
		hears(true)

		deafen()
		other.hears = true
		s.Confirmed(other, 1)
		hears(false)
		s.Confirmed(own, 1)
		hears(true)

		listenAt(kept)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// The age of a grant by message is known by the clock of its node. One that has never answered, as where a slot has just
// gone to it, may have sent the message long ago: it is asked.
func TestAGrantWhoseAgeIsNotKnownIsAskedFor(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, server *redistest.Embedded) {
		a, b := dial(t, server), dial(t, server)
		held := must.Got(queueOf(b, "name").Acquire(t.Context()))(t)
		got := acquire(t.Context(), queueOf(a, "name"))
		synctest.Wait()
		s := entryOf(queueOf(a, "name"))
		a.servers.Single().Clock = conn.Clock{}
		text := server.List("ZRANGE", s.keys.Queue, "0", "-1")[0]
		s.Message(fmt.Sprintf("G %s %d 0 2000", text, time.Now().Add(-time.Minute).UnixMicro()), time.Now())
		synctest.Wait()
		require.NotZero(t, a.Stats().Renewals, "the server is asked")
		require.Empty(t, got, "another holds")
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// A word that a hold was released by force comes when its release is answered. For the race detector.
func TestAReleaseIsAnsweredBesideAWordOfForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		l := must.Got(q.Acquire(t.Context()))(t)
		h := q.shareOf(l).hold
		word := fmt.Sprintf("%c %s %s", wire.MessageForced, h.ticket.Text, q.keys.Lock)
		h.first.takeOff(false)
		d := &owned{}
		h.ticket.entry.own(d, h.ticket, nil)
		go c.onMessage(word)
		a := h.ticket.entry.onReleaseReply(&d.sender, conn.Sending(), &wire.Reply{Status: wire.Refused}, nil)
		require.ErrorIs(t, h.conclude(t.Context(), &a), lease.ErrLost)
		synctest.Wait()
	})
}
