package waitqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// What a listener has decided under its lock it says without it: perhaps after another has confirmed the channel at the
// node where the slot has gone, or after its own next connection has. A site that took that for true would be deaf for
// good, as nobody subscribes for it any more.
func TestALateWordOfAListenerChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		a, b := dial(t, server), dial(t, server)
		q := queueOf(a, "late")
		held, err := queueOf(b, "late").Acquire(t.Context())
		require.NoError(t, err)
		got := acquire(t.Context(), q)
		synctest.Wait()
		a.mu.Lock()
		s := a.sites[q.keys.Site]
		a.mu.Unlock()
		hears := func(want bool) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, want, s.hears())
		}
		deafen := func() {
			s.mu.Lock()
			s.heard = false
			s.mu.Unlock()
		}
		own, other := s.ears, newListener(a.routes.only)
		state := func(to subState) {
			own.mu.Lock()
			own.channels[s.channel].state = to
			own.mu.Unlock()
		}
		hears(true)

		s.unheard(other)
		hears(true)
		s.unheard(own) // Of a connection before the one that it has.
		hears(true)
		state(subNone)
		s.unheard(own)
		hears(false)
		s.confirmed(own, 1) // Likewise.
		hears(false)
		state(subConfirmed)
		s.confirmed(own, 1)
		hears(true)

		deafen()
		other.channels[s.channel] = &subscription{site: s, want: true, state: subConfirmed}
		s.confirmed(other, 1)
		hears(false)
		s.confirmed(own, 1)
		hears(true)

		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}
