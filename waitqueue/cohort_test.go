package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cohortOf is the queue of a lock for calls that pass their hold on.
func cohortOf(c *Client, name string, lasts time.Duration, passes int) Queue {
	return c.Queue(lua.Fairlock, name, Terms{Lease: lasts, Cohort: passes})
}

// holdOf is the machinery's side of a lease.
func holdOf(l *lease.Lease) *hold { return l.Engine().(*share).hold }

// siteOf is the site that a client has for a queue; nil if there is none.
func siteOf(q Queue) *site {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	return q.client.sites[q.keys.Site]
}

// What falls into the moment between the end of a lease and the pass of its hold is made up for: the hold that was
// passed on is renewed, and lost when it cannot be.
func TestAHoldWhoseTimerCameDuringItsReleaseIsRenewedOnceItIsPassedOn(t *testing.T) {
	const lasts = 3 * time.Second
	for name, meanwhile := range map[string]func(h *hold){
		"timer": func(h *hold) { h.Fired(time.Now()) },
		"answer": func(h *hold) {
			r := h.next(time.Now())
			r.answered(conn.Sending(), nil, context.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := redistest.Bubble(t)
				c := dial(t, s)
				q := cohortOf(c, "name", lasts, 8)
				l, err := q.Acquire(t.Context())
				require.NoError(t, err)
				mate := acquire(t.Context(), q)
				synctime.Pass(time.Millisecond)
				h := holdOf(l)
				h.first.keeper.End() // Release begins with that.
				c.servers.Timers.Remove(&h.entry)
				meanwhile(h)
				require.NoError(t, l.Release(t.Context()))
				l = <-mate
				synctime.Pass(2 * lasts)
				require.NoError(t, context.Cause(l.Context()))
				require.Equal(t, int64(1), s.Int("HEXISTS", q.keys.Lock, "owner"))
				s.Kill()
				synctime.Pass(lasts)
				require.ErrorIs(t, context.Cause(l.Context()), lease.ErrExpired)
			})
		})
	}
}

// Between the look for its cohort and its ticket a call is nothing that the site knows of.
func TestASiteWhoseCohortWasJustFoundIsNotRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := cohortOf(c, "name", lease.DefaultLease, 8)
		_, err := c.cohort(q.binding)
		require.NoError(t, err)
		s := siteOf(q)
		synctime.Pass(c.opts.Linger - 1)
		co, err := c.cohort(q.binding)
		require.NoError(t, err)
		c.retireLocked(s) // The tick that was due at the same moment.
		synctest.Wait()
		require.Same(t, s, siteOf(q))
		co.mu.Lock()
		co.led = true // As the call has it next, long before its ticket.
		co.mu.Unlock()
		synctime.Pass(10 * c.opts.Linger)
		require.Same(t, s, siteOf(q))
		co.next()
		synctime.Pass(2 * c.opts.Linger)
		require.Nil(t, siteOf(q))
	})
}

// Calls that found their cohort, and slept until its site was retired, hold by the site that took its place.
func TestACohortWhoseSiteWasRetiredPassesItsHoldOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := cohortOf(c, "name", lease.DefaultLease, 8)
		co, err := c.cohort(q.binding)
		require.NoError(t, err)
		synctime.Pass(10 * c.opts.Linger)
		require.Nil(t, siteOf(q))
		l, err := co.obtain(t.Context())
		require.NoError(t, err)
		require.NotSame(t, co.site, holdOf(l).ticket.site)
		mate := make(chan *lease.Lease, 1)
		go func() {
			l, _ := co.obtain(t.Context())
			mate <- l
		}()
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
		next := <-mate
		require.Equal(t, l.Token()+1, next.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

// An end without a ticket is answered with a grant that its client has not confirmed. Nobody gives it back who does not
// know its ticket because his site was retired meanwhile.
func TestASiteIsNotRetiredBeforeTheEndOfWhatHasNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		a, b := dial(t, s), dial(t, s)
		qa, qb := queueOf(a, "name"), queueOf(b, "name")
		l, err := qa.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		old := siteOf(qa)
		at := time.Now().Add(1500 * time.Millisecond)
		old.mu.Lock()
		a.ends.endGhostLocked(old, a.id+":999:x:1:10000:2000", at) // As for a number of which an ask was not answered.
		old.mu.Unlock()
		synctime.Pass(5 * a.opts.Linger)
		l, err = qb.Acquire(t.Context())
		require.NoError(t, err)
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
		require.Nil(t, siteOf(qa))
	})
}

// A mate whose token the server's clock has not come to, for certain, goes by the queue: another might get a lower one from a
// server that has forgotten the lock.
func TestAPassTakesNoTokenThatTheClockHasNotComeTo(t *testing.T) {
	for since, passes := range map[time.Duration]int{0: 0, time.Microsecond: 0, 3 * time.Microsecond: 2, time.Millisecond: 3} {
		t.Run(since.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, redistest.Bubble(t))
				q := cohortOf(c, "name", 3*time.Second, MaxCohort)
				l, err := q.Acquire(t.Context())
				require.NoError(t, err)
				var mates []<-chan *lease.Lease
				for range 3 {
					mates = append(mates, acquire(t.Context(), q))
					synctest.Wait()
				}
				synctime.Pass(since)
				passed := 0
				for _, mate := range mates {
					asks, token := c.Stats().Asks, l.Token()
					require.NoError(t, l.Release(t.Context()))
					l = <-mate
					require.Greater(t, l.Token(), token)
					if asks == c.Stats().Asks {
						passed++
					}
				}
				require.Equal(t, passes, passed)
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}
