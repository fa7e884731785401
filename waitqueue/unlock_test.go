package waitqueue

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
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
		c, err := Dial(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
		return c
	}
	return d, dial(func(o *Options) { o.Redis.DialCtxFn = d.DialCtx }), dial(func(*Options) {})
}

// What is cut, or loses its answer, right behind an Unlock costs a repetition, and no lease.
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
					l, err := benchQueue(mine, 0).Acquire(t.Context())
					require.NoError(t, err)
					if name == "cut" {
						l.Unlock()
						fault(d)
					} else {
						fault(d)
						l.Unlock()
					}
					unlocked := time.Now()
					next, err := benchQueue(theirs, 0).Acquire(t.Context())
					require.NoError(t, err)
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
			l, err := q.Try(t.Context())
			require.NoError(t, err)
			l.Unlock()
		}
		synctest.Wait()
		time.Sleep(outbox.Linger) // Of the bubble.
		synctest.Wait()
		require.Equal(t, uint64(100), mine.Stats().Ends)
		info, err := q.Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, info.Held)
		open, nodes := mine.ends.Open()
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
			l, err := busy.Acquire(t.Context())
			require.NoError(t, err)
			l.Unlock()
		}
		l, err := other.Acquire(t.Context())
		require.NoError(t, err)
		l.Unlock()
		unlocked := time.Now()
		for time.Since(unlocked) <= outbox.Linger {
			l, err := busy.Acquire(t.Context())
			require.NoError(t, err)
			l.Unlock()
			time.Sleep(outbox.Linger / 8) // Of the bubble.
		}
		synctest.Wait()
		_, err = benchQueue(theirs, 1).Try(t.Context())
		require.NoError(t, err)
	})
}

const (
	manyUnlocks = 10_000
	// unlockRoom is how many bytes an Unlock keeps beyond its hold, until it is answered or the lease is over.
	unlockRoom = 1024
)

// Not parallel, because it counts goroutines and memory.
func TestUnlocksWithoutAnAnswerCostARecordEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, theirs := pair(t)
		leases := make([]*lease.Lease, manyUnlocks)
		for i := range leases {
			var err error
			leases[i], err = benchQueue(mine, i).Acquire(t.Context())
			require.NoError(t, err)
		}
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		d.Freeze()
		goroutines, before := runtime.NumGoroutine(), heap()
		for _, l := range leases {
			l.Unlock()
		}
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine(), goroutines+10)
		require.Less(t, (heap()-before)/manyUnlocks, int64(unlockRoom))
		d.Heal()
		ended := func() int { open, _ := mine.ends.Open(); return open }
		for began := time.Now(); ended() > 0 && time.Since(began) < lease.DefaultLease; {
			time.Sleep(100 * time.Millisecond) // Of the bubble.
		}
		require.Zero(t, ended(), "all are answered, or their leases over")
		for _, i := range []int{0, manyUnlocks / 2, manyUnlocks - 1} {
			_, err := benchQueue(theirs, i).Try(t.Context())
			require.NoError(t, err)
		}
		runtime.KeepAlive(leases)
	})
}

// What a lease is over of that a server does not answer is not sent for ever.
func TestAnUnlockIsGivenUpWhenItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, _ := pair(t)
		l, err := benchQueue(mine, 0).Acquire(t.Context())
		require.NoError(t, err)
		d.Drop(faults.ToServer)
		defer d.Heal()
		l.Unlock()
		site := mine.sites[benchQueue(mine, 0).keys.Site]
		require.True(t, site.unsettled())
		time.Sleep(lease.DefaultLease + 10*time.Second) // Of the bubble.
		require.False(t, site.unsettled(), fmt.Sprint(mine.Stats()))
	})
}

// A program that ends right behind an Unlock, with Close deferred above, has given back.
func TestCloseWaitsForAnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, theirs := pair(t)
		l, err := benchQueue(mine, 0).Acquire(t.Context())
		require.NoError(t, err)
		d.Delay(50 * time.Millisecond)
		l.Unlock()
		require.NoError(t, mine.Close(t.Context()))
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
		_, err = benchQueue(theirs, 0).Try(t.Context())
		require.NoError(t, err)
	})
}

// primed lets the ends of a client linger.
func primed(t *testing.T, c *Client) {
	t.Helper()
	for range 3 {
		l, err := benchQueue(c, 0).Acquire(t.Context())
		require.NoError(t, err)
		l.Unlock()
	}
}

// The end of a hold for which a call of the same client waits is sent at once.
func TestAnUnlockDoesNotLingerWhereACallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, mine, _ := pair(t)
		q := benchQueue(mine, 1)
		primed(t, mine)
		l, err := q.Acquire(t.Context())
		require.NoError(t, err)
		begun, got := time.Now(), make(chan *lease.Lease)
		go func() {
			next, err := q.Acquire(t.Context())
			require.NoError(t, err)
			got <- next
		}()
		synctest.Wait()
		l.Unlock()
		next := <-got
		require.Less(t, time.Since(begun), outbox.Linger)
		require.NoError(t, next.Release(t.Context()))
	})
}

// A call that waits for an end does not wait for it to linger.
func TestAnUnlockDoesNotLingerForACallForSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, mine, _ := pair(t)
		primed(t, mine)
		begun := time.Now()
		l, err := benchQueue(mine, 1).Acquire(t.Context())
		require.NoError(t, err)
		l.Unlock()
		c, err := benchQueue(mine, 1).Claim(t.Context(), true)
		require.NoError(t, err)
		require.NoError(t, c.Enter(time.Now()))
		refused, err := AskAll(t.Context(), []*Claim{c}, false, func() {})
		require.NoError(t, err)
		require.False(t, refused)
		require.Less(t, time.Since(begun), outbox.Linger)
		c.Leave(nil)
	})
}

// What is left of a hold after an Unlock for writing is known to the server before a later call of the client asks.
func TestACallFollowsAnUnlockForWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, mine, _ := pair(t)
		q := mine.Queue(lua.RWLock, "rw", DefaultTerms()).Nested(Reenters).Says(nil, fmt.Sprint(lua.AllReaders))
		writes, err := q.For(lua.Write, lua.AllReaders).Acquire(t.Context())
		require.NoError(t, err)
		reads, err := q.For(lua.Read, 1).Acquire(writes.Context())
		require.NoError(t, err)
		d.Delay(10 * time.Millisecond)
		writes.Unlock()
		other, err := q.For(lua.Read, 1).Try(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.Release(t.Context()))
		require.NoError(t, reads.Release(t.Context()))
	})
}
