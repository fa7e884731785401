package waitqueue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// ears hear what a test says.
type ears struct {
	conn.Ears
	hears bool
}

func (e *ears) Hears(conn.Subscriber) bool { return e.hears }

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
			require.Equal(t, want, s.hearsLocked())
		}
		deafen := func() {
			s.mu.Lock()
			s.trust.Heard = false
			s.mu.Unlock()
		}
		kept, own, other := s.ears, &ears{hears: true}, &ears{}
		s.mu.Lock()
		s.ears = own
		s.mu.Unlock()
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

		s.mu.Lock()
		s.ears = kept
		s.mu.Unlock()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// The age of a grant by message is known by the clock of its node. One that has never answered, as where a slot has just
// gone to it, may have sent the message long ago: it is asked.
func TestAGrantWhoseAgeIsNotKnownIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		a, b := dial(t, server), dial(t, server)
		held, err := queueOf(b, "name").Acquire(t.Context())
		require.NoError(t, err)
		got := acquire(t.Context(), queueOf(a, "name"))
		synctest.Wait()
		s := a.known(queueOf(a, "name").keys.Site)
		a.servers.Single().Clock = conn.Clock{}
		s.mu.Lock()
		require.Len(t, s.tickets, 1)
		var text string
		for text = range s.tickets {
		}
		s.mu.Unlock()
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
		l, err := q.Acquire(t.Context())
		require.NoError(t, err)
		h := q.shareOf(l).hold
		word := fmt.Sprintf("%c %s %s", lua.MessageForced, h.ticket.text, q.keys.Lock)
		go c.told(word)
		require.ErrorIs(t, h.conclude(t.Context(), &answer{Head: lua.Head{Status: lua.Refused}}), lease.ErrLost)
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
	})
}
