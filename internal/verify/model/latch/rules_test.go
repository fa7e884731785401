package latch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) lua.Tuple {
	t.Helper()
	reply, err := p.send(r)
	require.NoError(t, err)
	return reply
}

func (p *player) sets(id string, count int64) Set {
	return Set{ID: id, Count: count, Lifetime: lifetimes[0], NotAfter: p.later(), Repeats: 600000}
}

func (p *player) downs(id string) Down { return Down{ID: id, NotAfter: p.later(), Repeats: 600000} }

func (p *player) asks(seen int64) Ask {
	return Ask{Ticket: "a:1:b:1:10000:2000", Mode: lua.Look, NotAfter: p.later(), Seen: seen}
}

// early is an ask that may come before the latch is set.
func (p *player) early() Ask {
	r := p.asks(0)
	r.Early = lifetimes[0]
	return r
}

// everything are requests of every script.
func (p *player) everything() map[string]Request {
	return map[string]Request{
		"ask":        p.asks(0),
		"early ask":  p.early(),
		"check":      Check{Client: "a", Mode: lua.Hears, NotAfter: p.later(), Tickets: []lua.Arrival{{Ticket: "a", Arrival: 1}}},
		"set":        p.sets("a:9", 2),
		"set again":  p.sets("a:1", 1),
		"down":       p.downs("b:9"),
		"down again": p.downs("b:1"),
		"remove":     Remove{},
	}
}

var situations = map[string]func(p *player, t *testing.T){
	"unset":   func(*player, *testing.T) {},
	"awaited": func(p *player, t *testing.T) { p.must(t, p.early()) },
	"closed": func(p *player, t *testing.T) {
		p.must(t, p.sets("a:1", 3))
		p.must(t, p.downs("b:1"))
	},
	"at one": func(p *player, t *testing.T) {
		p.must(t, p.sets("a:1", 2))
		p.must(t, p.downs("b:1"))
	},
	"open": func(p *player, t *testing.T) {
		p.must(t, p.sets("a:1", 1))
		p.must(t, p.downs("b:1"))
	},
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		for situation, set := range situations {
			for which := range keysOf(0).All() {
				p := newPlayer(s, keysOf(0))
				for name, r := range p.everything() {
					p := newPlayer(s, keysOf(0))
					set(p, t)
					what := fmt.Sprintf("%s, %s, key %d", situation, name, which)
					refused, changed, err := stage.Spoil(s, p.Keys, which, r.Script(), r.Args())
					require.NoError(t, err, what)
					require.False(t, refused != nil && changed, "%s: left half done by %v", what, refused)
					require.False(t, refused == nil && which == 0, "%s: no error", what)
					require.NoError(t, p.End())
				}
			}
		}
	})
}

// With full memory whoever waits is answered and whoever counts down counts; only to set a latch is an error
// that leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldSet(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, scripts...)
	refused := 0
	for situation, set := range situations {
		for name := range newPlayer(s, keysOf(0)).everything() {
			p := newPlayer(s, keysOf(0))
			set(p, t)
			r := p.everything()[name]
			s.Fill(true)
			_, err := p.send(r)
			s.Fill(false)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", situation+", "+name)
				require.Contains(t, []string{"set", "set again", "early ask"}, name, situation)
				require.NoError(t, p.Compare(), situation+", "+name)
			}
			require.NoError(t, p.End())
		}
	}
	require.NotZero(t, refused, "memory was not full")
}

func TestTheLargestCountIsKeptInFull(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		const largest = 1<<53 - 1
		p := newPlayer(s, keysOf(0))
		require.EqualValues(t, largest, p.must(t, p.sets("a:1", largest)).Place)
		require.EqualValues(t, largest-1, p.must(t, p.downs("a:2")).Place)
		require.EqualValues(t, largest-2, p.must(t, p.downs("a:3")).Place)
		require.NoError(t, p.View(lua.Countdown.Inspect, 10, p.Model.View))
	})
}

// Waiters of a latch that was lost get an error, also when another one is set and opened.
func TestWhoSawALatchThatIsGoneDoesNotPassAnother(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		seen := p.must(t, p.sets("a:1", 1)).Arrival
		p.must(t, Remove{Generation: seen})
		s.Pass(stage.Millisecond)
		p.Now = s.Now()
		require.Equal(t, lua.Refused, p.must(t, p.asks(seen)).Status)
		p.must(t, p.sets("a:2", 1))
		p.must(t, p.downs("a:3"))
		reply := p.must(t, p.asks(seen))
		require.Equal(t, lua.Refused, reply.Status)
		require.Equal(t, []string{lua.StateForgotten}, reply.States)
		require.Equal(t, lua.Granted, p.must(t, p.asks(0)).Status)
	})
}

func TestWhoSawALatchThatWasOpenedPassesThoughItIsClosedAgain(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		seen := p.must(t, p.sets("a:1", 1)).Arrival
		p.must(t, p.downs("a:2"))
		p.must(t, p.sets("a:3", 7))
		require.Equal(t, lua.Granted, p.must(t, p.asks(seen)).Status)
		require.Equal(t, lua.Waiting, p.must(t, p.asks(0)).Status)
	})
}

// I7: what is forgotten at once is bounded.
func TestThousandsOfCountsAreForgottenBitByBit(t *testing.T) {
	t.Parallel()
	s := stage.Embed(t, scripts...)
	p := newPlayer(s, keysOf(0))
	p.must(t, p.sets("a:0", 10_000))
	const many = 150
	for i := range many {
		p.must(t, p.downs(fmt.Sprintf("a:%d", i+1)))
	}
	later := p.downs("a:1") // It lets the key live on.
	later.Repeats *= 3
	p.must(t, later)
	require.NoError(t, p.Pass(16*stage.Minute))
	p.judge.passed(p.Now, p.State)
	for left := many; left > 1; {
		before := len(p.State[1].Members)
		p.number++
		p.must(t, p.downs(fmt.Sprintf("b:%d", p.number)))
		gone := before + 1 - len(p.State[1].Members)
		require.Positive(t, gone)
		require.LessOrEqual(t, gone, 128)
		left -= gone
	}
}

// Whoever came before the latch was set waits for that setting, and for none behind it.
func TestWhoCameBeforeALatchWasSetPassesWithItsOpening(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		first := p.must(t, p.early())
		require.Equal(t, lua.Waiting, first.Status)
		s.Pass(stage.Millisecond)
		p.Now = s.Now()
		require.Equal(t, first.Arrival, p.must(t, p.early()).Arrival)
		require.Equal(t, lua.Unset, p.must(t, p.asks(0)).Status, "for others it is not set")
		require.Equal(t, lua.Unset, p.must(t, p.downs("a:1")).Status)
		require.NoError(t, p.View(lua.Countdown.Inspect, 10, p.Model.View))
		require.Equal(t, first.Arrival, p.must(t, p.sets("a:2", 1)).Arrival)
		require.Equal(t, lua.Waiting, p.must(t, p.asks(first.Arrival)).Status)
		p.must(t, p.downs("a:3"))
		require.Greater(t, p.must(t, p.sets("a:4", 1)).Arrival, first.Arrival)
		require.Equal(t, lua.Granted, p.must(t, p.asks(first.Arrival)).Status)
	})
}
