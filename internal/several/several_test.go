package several

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func queueOf(c *headwaiter.Client, name string) waitqueue.Queue {
	return c.Queue(lua.Fairlock, name, waitqueue.DefaultTerms())
}

// One of the names is lost when the release of all has begun: what is left to do is the release's.
func TestALossBesideTheReleaseOfSeveralNamesIsNoSecondRelease(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		w := &whole{ctx: t.Context()}
		for _, name := range []string{"a", "b"} {
			q := queueOf(c, name)
			w.parts = append(w.parts, &part{queue: q, lease: kit.Got(q.Acquire(t.Context()))(t)})
		}
		all := lease.New(t.Context(), lease.Terms{Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
		all.End()
		lost := w.parts[1].lease
		require.NoError(t, kit.Err(queueOf(kit.Dial(t, s), "b").ForceRelease(t.Context(), lost.Token())))
		require.ErrorIs(t, kit.Lost(t, lost), lease.ErrForced)
		w.lost(all, lost)
		require.NoError(t, w.parts[0].lease.Context().Err(), "it is the release's to give back")
		require.ErrorIs(t, w.release(t.Context(), w.parts), lease.ErrForced)
		require.ErrorIs(t, context.Cause(w.parts[0].lease.Context()), lease.ErrReleased)
	})
}

func TestANameThatIsThereTwiceIsNotWaitedForTwice(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		begun := time.Now()
		q := queueOf(kit.Dial(t, s), "name")
		require.ErrorIs(t, kit.Err(Acquire(t.Context(), []waitqueue.Queue{q, q}, 0)), lease.ErrInvalid)
		require.Equal(t, begun, time.Now())
	})
}
