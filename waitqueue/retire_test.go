package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// siteOf is the site that a client has for a queue; nil if there is none.
func siteOf(q Queue) *site {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	return q.client.sites[q.keys.Site]
}

// What has just been used, and has no ticket, is what the next call is about to need.
func TestASiteThatWasJustUsedIsNotRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		q.Subscribe()
		s := siteOf(q)
		synctime.Pass(c.opts.Linger - 1)
		q.Subscribe()
		c.retireLocked(s) // The tick that was due at the same moment.
		synctest.Wait()
		require.Same(t, s, siteOf(q))
		synctime.Pass(2 * c.opts.Linger)
		require.Nil(t, siteOf(q))
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
		old.endGhostLocked(a.id+":999:x:1:10000:2000", at) // As for a number of which an ask was not answered.
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
