package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// One of the names is lost when the release of all has begun: what is left to do is the release's.
func TestALossBesideTheReleaseOfSeveralNamesIsNoSecondRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		w := &whole{ctx: t.Context(), client: c.client}
		for _, name := range []string{"a", "b"} {
			q := c.Queue(lua.Fairlock, name, Terms{Lease: 3 * time.Second})
			l, err := q.Acquire(t.Context())
			require.NoError(t, err)
			h := l.Engine().(*share).hold
			w.parts = append(w.parts, &part{queue: q.binding, lease: l, wait: &wait{ticket: h.ticket, site: h.ticket.site}})
		}
		all := lease.New(t.Context(), lease.Terms{Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
		all.End()
		lost := w.parts[1].lease.Engine().(*share).hold
		lost.ticket.site.mu.Lock()
		lost.loseLocked(lease.ErrForced)
		lost.ticket.site.mu.Unlock()
		w.lost(all, w.parts[1].lease)
		require.ErrorIs(t, w.release(t.Context(), w.parts), lease.ErrForced)
		require.ErrorIs(t, context.Cause(w.parts[0].lease.Context()), lease.ErrReleased)
	})
}
