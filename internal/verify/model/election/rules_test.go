package election

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// host is a server for histories.
func host(s stage.Server) stage.Host { return s.(stage.Host) }

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) wire.Tuple {
	t.Helper()
	return kit.Got(p.send(r))(t)
}

func (p *player) later() int64 { return p.Now + 60*stage.Minute }

func ticketOf(client string) string { return client + ":1:x:1:10000:2000" }

func (p *player) asks(client string) Request {
	return Plain{model.Ask{Ticket: ticketOf(client), Mode: wire.Wait, NotAfter: p.later(), Phase: wire.PhaseHeld}}
}

func (p *player) proclaims(client string, token, number int64, value string) Proclaim {
	return Proclaim{Ticket: ticketOf(client), Token: token, Number: number, Who: "who", NotAfter: p.later(), Value: value}
}

// situations are states of an election with what the requests of each script would change.
var situations = map[string]func(p *player, t *testing.T){
	"nobody": func(*player, *testing.T) {},
	"leads": func(p *player, t *testing.T) {
		p.must(t, p.proclaims("a", int64(p.must(t, p.asks("a")).Token), 1, "v"))
	},
	"leads, and one waits": func(p *player, t *testing.T) {
		p.must(t, p.proclaims("a", int64(p.must(t, p.asks("a")).Token), 1, "v"))
		p.must(t, p.asks("b"))
	},
}

func (p *player) everything() map[string]Request {
	return map[string]Request{
		"end": End{model.End{Ticket: ticketOf("a")}}, "force": Force{},
		"proclaim": p.proclaims("a", p.Model.Lock.Token, 9, "w"),
		"leader":   Leader{}, "watch": Watch{Seen: 1}, "look": Look{Seen: []int64{1}},
	}
}

func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		refusals := 0
		for situation, set := range situations {
			for which := range lua.Election.Keys("model", "0").All() {
				for _, name := range []string{"end", "force", "proclaim", "leader", "watch", "look"} {
					p := newPlayer(host(s), "0")
					set(p, t)
					require.NoError(t, kit.Err(host(s).Woken(p.heed)))
					r := p.everything()[name]
					what := fmt.Sprintf("%s, %s, key %d", situation, name, which)
					require.NoError(t, s.Remove(p.Keys.All()[which]))
					require.NoError(t, s.Do("SET", p.Keys.All()[which], "text").Error())
					before := kit.Got(s.State(p.Keys))(t)
					_, refused := r.Script().Tuple(host(s).Call(p.Keys.All(), r.Script(), r.Args()))
					after := kit.Got(s.State(p.Keys))(t)
					sent := kit.Got(host(s).Woken(p.heed))(t)
					if refused != nil {
						refusals++
						require.Empty(t, sent, what)
						require.Equal(t, before.Text(p.Keys), after.Text(p.Keys), "%s: left half done by %v", what, refused)
					}
					require.False(t, refused == nil && which == 0, "%s: no error", what)
					require.NoError(t, s.Remove(p.Keys.All()...))
				}
			}
		}
		require.Greater(t, refusals, 18)
	})
}

// With full memory a leader can resign and be forced out, and who observes is answered; nothing can be proclaimed.
func TestFullMemoryStopsOnlyProclamations(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, scripts...)
	for _, name := range []string{"end", "force", "proclaim", "leader", "watch", "look"} {
		p := newPlayer(s, name)
		situations["leads"](p, t)
		r := p.everything()[name]
		s.Fill(true)
		_, err := p.send(r)
		s.Fill(false)
		if name == "proclaim" {
			require.ErrorContains(t, err, "OOM")
			require.NoError(t, p.Compare(), "and nothing is changed")
			continue
		}
		require.NoError(t, err, name)
	}
}

// A request that was sent before another, and is repeated after it, does not take its value back.
func TestARepeatedProclamationDoesNotUndoALaterOne(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(host(s), "0")
		situations["leads"](p, t)
		token := p.Model.Lock.Token
		first := p.proclaims("a", token, 2, "first")
		p.must(t, first)
		p.must(t, p.proclaims("a", token, 3, "second"))
		revision := p.Model.Revision
		reply := p.must(t, first)
		require.Equal(t, wire.Done, reply.Status)
		require.Equal(t, revision, reply.Arrival)
		require.Equal(t, "second", p.must(t, Leader{}).States[0])
		// The numbers are those of one hold: the next leader begins anew.
		p.must(t, End{model.End{Ticket: ticketOf("a")}})
		next := int64(p.must(t, p.asks("b")).Token)
		require.Greater(t, next, token)
		require.Equal(t, wire.Unset, p.must(t, Leader{}).Status, "it has proclaimed nothing yet")
		p.must(t, p.proclaims("b", next, 1, "third"))
		require.Equal(t, wire.Refused, p.must(t, p.proclaims("a", token, 99, "late")).Status)
		require.Equal(t, "third", p.must(t, Leader{}).States[0])
	})
}
