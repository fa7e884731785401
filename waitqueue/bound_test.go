package waitqueue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// What is off sends what was sent before there was such a thing.
func TestACallWithoutABoundSaysNothingOfIt(t *testing.T) {
	b := DefaultTerms().bound(t.Context())
	require.Nil(t, b)
	require.Equal(t, []string{"ticket", "wait"}, b.args([]string{"ticket", "wait"}))
	require.Equal(t, "1700000000123456", b.behind(1700000000123456))
}

// An ask is what it always was, word for word, without an option; and goes without all keys.
func TestAnAskWithoutABoundIsWhatItAlwaysWas(t *testing.T) {
	c, err := Dial(Options{Redis: redistest.Mini(t).Option()})
	require.NoError(t, err)
	ask := func(p *lua.Protocol, terms Terms, extras ...string) (*ask, string) {
		q := c.Queue(p, "name", terms).Says(nil, extras...)
		tk := q.newTicket(t.Context())
		s, err := c.register(q.binding, tk)
		require.NoError(t, err)
		a := (&wait{ctx: t.Context(), ticket: tk, site: s, budget: conn.AttemptTime, mode: lua.Wait}).prepare(s.node())
		text := tk.text
		s.unsent(tk)
		s.finish(tk, true)
		return a, text
	}
	limited := DefaultTerms()
	limited.QueueLimit = 3

	a, text := ask(lua.Fairlock, DefaultTerms())
	plain := []string{text, lua.Look, a.NotAfter, c.highest(), "0", "0", "1", lua.PhaseHeld}
	require.Equal(t, plain, a.inFull(c.client))
	require.Equal(t, 3, a.light)
	a, text = ask(lua.Fairlock, limited)
	plain[0], plain[2] = text, a.NotAfter
	require.Equal(t, append(plain, "3:"), a.args)
	require.Zero(t, a.light)

	a, text = ask(lua.Semaphore, DefaultTerms(), "5")
	plain = []string{text, lua.Look, a.NotAfter, "0", "0", c.highest(), "1", lua.PhaseHeld, c.who, "5"}
	require.Equal(t, plain, a.args)
	a, text = ask(lua.Semaphore, limited, "5")
	plain[0], plain[2] = text, a.NotAfter
	require.Equal(t, append(plain, "3:"), a.args)
	require.NoError(t, c.Close(t.Context()))
}

func TestABoundSaysHowManyMayWaitAndWhatIsLeft(t *testing.T) {
	limited := Terms{QueueLimit: 3}.bound(t.Context())
	require.Equal(t, []string{"ticket", "3:"}, limited.args([]string{"ticket"}))
	require.Equal(t, "7:3:", limited.behind(7))

	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	require.Equal(t, "0:0", Terms{Admission: true}.bound(ctx).String(), "what is over leaves nothing, and not less")
	require.Equal(t, "2:", Terms{QueueLimit: 2}.bound(ctx).String(), "the deadline counts for admission alone")
}

func TestACheckTellsHowFullAQueueIs(t *testing.T) {
	var full *lease.QueueFullError
	require.ErrorAs(t, Terms{QueueLimit: 3}.bound(t.Context()).told("4 1000000", 1500000), &full)
	require.Equal(t, lease.QueueFullError{Waiting: 4, Oldest: 500 * time.Millisecond}, *full)
	require.ErrorIs(t, Terms{QueueLimit: 3}.bound(t.Context()).told("many", 0), lease.ErrQueueFull)
}
