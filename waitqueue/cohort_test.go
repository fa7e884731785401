package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/internal/synctime"
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
func TestAHoldWhoseAppointmentCameDuringItsReleaseIsRenewedOnceItIsPassedOn(t *testing.T) {
	const lasts = 3 * time.Second
	for name, meanwhile := range map[string]func(h *hold){
		"appointment": func(h *hold) { h.fired(time.Now()) },
		"answer": func(h *hold) {
			r := h.next(time.Now())
			r.answered(sending(), nil, context.DeadlineExceeded)
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
				synctest.Wait()
				h := holdOf(l)
				h.first.keeper.End() // Release begins with that.
				c.agenda.remove(&h.entry)
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
