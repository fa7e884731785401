package waitqueue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

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
	plain := []string{text, lua.Look, a.NotAfter, "", "0", "0", "1", lua.PhaseHeld}
	require.Equal(t, plain, a.args)
	require.Equal(t, 3, a.light)
	a, text = ask(lua.Fairlock, limited)
	plain[0], plain[1], plain[2] = text, "look 3:", a.NotAfter
	require.Equal(t, plain, a.args)
	require.Equal(t, 3, a.light)

	a, text = ask(lua.Semaphore, DefaultTerms(), "5")
	plain = []string{text, lua.Look, a.NotAfter, "0", "0", c.highest(), "1", lua.PhaseHeld, c.who, "5"}
	require.Equal(t, plain, a.args)
	a, text = ask(lua.Semaphore, limited, "5")
	plain[0], plain[1], plain[2] = text, "look 3:", a.NotAfter
	require.Equal(t, plain, a.args)
	require.NoError(t, c.Close(t.Context()))
}
