package permits

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// scene lets "a" hold, with a lease that is over or not, and the others wait.
func (p *player) scene(t *testing.T, over bool) (holder string, token uint64) {
	t.Helper()
	holder = ticket("a", 1, lua.Write, p.limit)
	if over {
		holder = "a:1:w:" + stage.Decimal(p.limit) + ":1:1"
	}
	token = p.must(t, p.asks(holder, lua.Try)).Token
	require.NoError(t, p.hear(1, true))
	require.NoError(t, p.hear(2, true))
	require.NoError(t, p.put([]lua.Arrival{
		{Ticket: ticket("b", 1, lua.Read, 1), Arrival: p.now - 10}, {Ticket: ticket("c", 1, lua.Write, p.limit), Arrival: p.now - 9},
	}))
	if over {
		p.host.Pass(2 * stage.Millisecond)
		p.now = p.host.Now()
		p.elapse()
	}
	return holder, token
}

// everything are requests of every script, from the holder and from others.
func (p *player) everything(holder string, token uint64) map[string]Request {
	b := lua.Arrival{Ticket: ticket("b", 1, lua.Read, 1), Arrival: p.now - 10}
	reader := ticket("d", 1, lua.Read, 1)
	return map[string]Request{
		"wait":         p.asks(reader, lua.Wait),
		"look":         p.asks(reader, lua.Look),
		"try":          p.asks(reader, lua.Try),
		"release":      End{Ticket: holder},
		"leave":        End{Ticket: b.Ticket},
		"renew":        Renew{Ticket: holder, Token: int64(token), Lease: 1000, Phase: lua.PhaseHeld, NotAfter: p.later()},
		"check":        p.looks("b", lua.Hears, b),
		"deaf check":   p.looks("b", lua.Deaf, b),
		"proven check": p.looks("b", lua.Proven, b),
		"mere look":    p.looks("d", lua.Hears),
		"force":        Force{Ticket: holder},
		"resize":       Resize{Permits: p.limit, Stated: p.limit, NotAfter: p.later()},
		"downgrade":    Downgrade{Ticket: holder, Token: int64(token), NotAfter: p.later()},
	}
}

// startOver forgets everything.
func (p *player) startOver(t *testing.T) {
	t.Helper()
	require.NoError(t, p.host.Remove(p.keys.All()...))
	_, err := p.host.Woken(p.keys)
	require.NoError(t, err)
	*p = *newPlayer(p.host, "bounds", p.locks, p.limit)
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	onBoth(t, true, 0, func(t *testing.T, p *player) {
		for _, over := range []bool{false, true} {
			for name := range p.everything("", 0) {
				for which, wrong := range p.keys.All() {
					holder, token := p.scene(t, over)
					r := p.everything(holder, token)[name]
					require.NoError(t, p.host.Remove(wrong))
					require.NoError(t, p.host.Do("SET", wrong, "text").Error())
					before := p.whole(t, which)
					_, err := p.run(r)
					sent, sentErr := p.host.Woken(p.keys)
					require.NoError(t, sentErr)
					if err != nil {
						require.Equal(t, before, p.whole(t, which), "%s, key %d: left half done by %v", name, which, err)
						require.Empty(t, sent, "%s, key %d", name, which)
					}
					require.False(t, which == 0 && err == nil, "%s: no error", name)
					p.startOver(t)
				}
			}
		}
	})
}

// whole is the text of the keys beside the one that is spoiled.
func (p *player) whole(t *testing.T, spoiled int) string {
	t.Helper()
	var text string
	for i, key := range p.keys.All() {
		if i == spoiled {
			continue
		}
		list := p.host.Do("ZRANGE", key, "0", "-1", "WITHSCORES")
		if i == 0 {
			list = p.host.Do("HGETALL", key)
		}
		text += list.String()
	}
	return text
}

// With full memory whatever frees works, to the grant of the next; what would only take is an error that
// leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldAdd(t *testing.T) {
	t.Parallel()
	server := stage.Serve(t, scripts...)
	p := newPlayer(server, "bounds", true, 0)
	refused := 0
	for _, over := range []bool{false, true} {
		for name := range p.everything("", 0) {
			holder, token := p.scene(t, over)
			r := p.everything(holder, token)[name]
			before := p.before.Text(p.keys)
			server.Server.Do("CONFIG", "SET", "maxmemory", "1")
			reply, err := p.run(r)
			server.Server.Do("CONFIG", "SET", "maxmemory", "0")
			state, stateErr := p.host.State(p.keys)
			require.NoError(t, stateErr)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", name)
				_, asks := r.(Ask)
				_, sizes := r.(Resize)
				require.True(t, asks || sizes, "%s: %v", name, err)
				require.Equal(t, before, state.Text(p.keys), name)
			} else if reply.Now != 0 {
				p.model.Expire(reply.Now)
				require.NoError(t, line.SameReply(r.Run(p.model, reply.Now), reply), name)
				require.Equal(t, p.model.State(reply.Now).Text(p.keys), state.Text(p.keys), name)
			}
			p.startOver(t)
		}
	}
	require.NotZero(t, refused, "memory was not full")
}

// Likewise where there is no lock yet: who asks for one leaves nothing; what would free something, or looks after what a
// server has forgotten, is answered.
func TestFullMemoryLeavesNothingOfWhatWouldBeNew(t *testing.T) {
	t.Parallel()
	server := stage.Serve(t, scripts...)
	for name := range newPlayer(server, "bounds", true, 0).everything("", 0) {
		p := newPlayer(server, "bounds", true, 0)
		r := p.everything(ticket("a", 1, lua.Write, p.limit), 1)[name]
		before := p.before.Text(p.keys)
		server.Server.Do("CONFIG", "SET", "maxmemory", "1")
		reply, err := p.run(r)
		server.Server.Do("CONFIG", "SET", "maxmemory", "0")
		state, stateErr := p.host.State(p.keys)
		require.NoError(t, stateErr)
		_, asks := r.(Ask)
		_, sizes := r.(Resize)
		if asks || sizes {
			require.ErrorContains(t, err, "OOM", name)
			require.Equal(t, before, state.Text(p.keys), name)
		} else {
			require.NoError(t, err, name)
			require.NoError(t, line.SameReply(r.Run(p.model, reply.Now), reply), name)
		}
		p.startOver(t)
	}
}
