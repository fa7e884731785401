package barrier

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// most is the largest number of parties.
const most = barrier.MaxParties

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) wire.Tuple {
	t.Helper()
	return must.Got(p.send(r))(t)
}

func (p *player) later() int64 { return p.Now + 60*stage.Minute }

func ticket(client string, number uint64, lease time.Duration) string {
	return wire.Ticket{
		Client: client, Number: number, Kind: wire.Party, Permits: 1, Lease: lease, Grant: 2 * time.Second,
	}.String()
}

// long is a lease that does not run out during a test.
const long = 10 * time.Minute

// asks is the first attempt of a ticket.
func (p *player) asks(client string, number uint64) Ask {
	return Ask{
		Ticket: ticket(client, number, long), NotAfter: p.later(), Who: "who of " + client,
		Parties: p.parties, Lifetime: lifetimes[0],
	}
}

// after goes on when the server's time has gone on.
func (p *player) after(t *testing.T, micros int64) {
	t.Helper()
	for end := p.Server.Now() + micros; p.Server.Now() < end; {
		require.NoError(t, p.Pass(stage.Millisecond))
	}
	p.Now = p.Server.Now()
}

// meet lets everybody come.
func (p *player) meet(t *testing.T, number uint64) (generation int64) {
	t.Helper()
	var reply wire.Tuple
	for i := range p.parties {
		reply = p.must(t, p.asks(stage.ClientName(int(i)), number))
		require.EqualValues(t, p.parties-1-i, reply.Place)
	}
	require.Equal(t, wire.Granted, reply.Status)
	return reply.Arrival
}

// everything are requests of every script, of a that has come, of d that has not, and of c that may act.
func (p *player) everything() map[string]Request {
	a, c := ticket("a", 1, long), ticket("c", 1, long)
	acts := p.asks("d", 1)
	acts.Action = true
	again := p.asks("a", 1)
	again.Repeated, again.Since = true, p.Now
	generation := p.Model.Generation
	return map[string]Request{
		"come": p.asks("d", 1), "come to act": acts, "ask again": again,
		"check": Check{Client: "a", Mode: wire.Hears, NotAfter: p.later(), Tickets: []lua.Arrival{{Ticket: a, Arrival: generation}}},
		"leave": End{Ticket: a}, "leave without": End{Ticket: ticket("d", 7, time.Second)},
		"open":  Open{Ticket: c, Generation: generation, OK: true, NotAfter: p.later()},
		"fail":  Open{Ticket: c, Generation: generation, NotAfter: p.later()},
		"reset": Reset{},
	}
}

// situations of a barrier of three.
var situations = map[string]func(p *player, t *testing.T){
	"unset": func(*player, *testing.T) {},
	"fresh": func(p *player, t *testing.T) { p.meet(t, 5) },
	"one is missing": func(p *player, t *testing.T) {
		p.must(t, p.asks("a", 1))
		p.must(t, p.asks("b", 1))
	},
	"acting": func(p *player, t *testing.T) {
		p.must(t, p.asks("a", 1))
		p.must(t, p.asks("b", 1))
		c := p.asks("c", 1)
		c.Action = true
		require.Equal(t, wire.Acting, p.must(t, c).Status)
	},
	"broken": func(p *player, t *testing.T) {
		p.must(t, p.asks("a", 1))
		p.must(t, End{Ticket: p.asks("a", 1).Ticket})
	},
	"a party is dead": func(p *player, t *testing.T) {
		p.must(t, p.asks("a", 1))
		dead := p.asks("b", 1)
		dead.Ticket = ticket("b", 1, time.Millisecond)
		p.must(t, dead)
		p.after(t, 2*stage.Millisecond)
	},
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		for situation, set := range situations {
			for which := range keysOf(0).All() {
				for name := range newPlayer(s, keysOf(0), 3).everything() {
					p := newPlayer(s, keysOf(0), 3)
					set(p, t)
					r := p.everything()[name]
					what := fmt.Sprintf("%s, %s, key %d", situation, name, which)
					refused, changed, err := stage.Spoil(s, p.Keys, which, r.Script(), r.Args())
					require.NoError(t, err, what)
					require.False(t, refused != nil && changed, "%s: left half done by %v", what, refused)
					require.False(t, refused == nil && which <= Arrivals, "%s: no error", what)
					require.NoError(t, p.End())
				}
			}
		}
	})
}

// With full memory whoever has come is looked after and may leave, the barrier opens, breaks and is reset; to
// come is an error that leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldCome(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, scripts...)
	refused := 0
	for situation, set := range situations {
		for name := range newPlayer(s, keysOf(0), 3).everything() {
			p := newPlayer(s, keysOf(0), 3)
			set(p, t)
			r := p.everything()[name]
			s.Fill(true)
			_, err := p.send(r)
			s.Fill(false)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", situation+", "+name)
				require.IsType(t, Ask{}, r, situation)
				require.NoError(t, p.Compare(), situation+", "+name)
			}
			require.NoError(t, p.End())
		}
	}
	require.NotZero(t, refused, "memory was not full")
}

// An attempt that was long under way does not arrive a second time, in a generation that nobody expects it in.
func TestAnAttemptThatComesTwoGenerationsLateDoesNotCount(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0), 2)
		late := p.asks("a", 1) // Held up.
		again := late
		again.Repeated, again.Since = true, p.Now
		p.after(t, stage.Millisecond)
		require.Equal(t, wire.Waiting, p.must(t, again).Status)
		require.Equal(t, wire.Granted, p.must(t, p.asks("b", 1)).Status)
		p.meet(t, 2)
		p.meet(t, 3)
		require.Equal(t, []string{wire.StateForgotten}, p.must(t, late).States)
		require.Equal(t, []string{wire.StateForgotten}, p.must(t, again).States)
		require.Zero(t, p.Model.Arrived)
	})
}

func TestATicketThatEndedDoesNotArrive(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0), 2)
		ask := p.asks("a", 1)
		require.Equal(t, wire.Refused, p.must(t, End{Ticket: ask.Ticket}).Status)
		require.Equal(t, wire.Refused, p.must(t, ask).Status)
		require.Equal(t, wire.Waiting, p.must(t, p.asks("b", 1)).Status)
		ask.Repeated, ask.Since = true, p.Now
		require.Equal(t, wire.Refused, p.must(t, ask).Status)
	})
}

// After the server has lost everything, whoever does not know whether it has come is refused; who was never
// here before is not.
func TestWhoMayHaveComeBeforeTheKeysWereLostIsRefused(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0), 2)
		seen := p.meet(t, 1)
		p.after(t, stage.Millisecond)
		again := p.asks("a", 2)
		again.Repeated, again.Since, again.Seen = true, p.Now, seen
		p.after(t, stage.Millisecond)
		require.NoError(t, p.remove(0))
		require.Equal(t, wire.Refused, p.must(t, again).Status)
		require.Equal(t, wire.Waiting, p.must(t, p.asks("b", 2)).Status)
		require.Equal(t, wire.Refused, p.must(t, again).Status)
		stranger := p.asks("c", 2)
		stranger.Repeated, stranger.Since = true, again.Since
		require.Equal(t, wire.Granted, p.must(t, stranger).Status)
	})
}

func TestTheOutcomesOfTheLast64GenerationsAreKnown(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0), 1)
		first := p.meet(t, 1)
		looks := Check{Client: "a", NotAfter: p.later(), Tickets: []lua.Arrival{{Ticket: "a", Arrival: first}}}
		for i := range uint64(outcomes - 1) {
			p.meet(t, 2+i)
		}
		require.Equal(t, []string{wire.StateGranted}, p.must(t, looks).States)
		p.meet(t, 100)
		require.Equal(t, []string{wire.StateForgotten}, p.must(t, looks).States)
	})
}

// Whoever comes while the action runs belongs to the next generation.
func TestWhoComesWhileTheActionRunsIsToAskAgain(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0), 2)
		p.must(t, p.asks("a", 1))
		acts := p.asks("b", 1)
		acts.Action = true
		acting := p.must(t, acts)
		require.Equal(t, wire.Acting, acting.Status)
		require.Equal(t, wire.Busy, p.must(t, p.asks("c", 1)).Status)
		require.Equal(t, wire.Busy, p.must(t, p.asks("c", 1)).Status)
		opened := p.must(t, Open{Ticket: acts.Ticket, Generation: acting.Arrival, OK: true, NotAfter: p.later()})
		require.Equal(t, wire.Granted, opened.Status)
		next := p.must(t, p.asks("c", 1))
		require.Equal(t, wire.Waiting, next.Status)
		require.Equal(t, acting.Arrival+1, next.Arrival)
	})
}

// I7: thousands meet, and no script does more than a little for each of them.
func TestThousandsMeet(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, scripts...)
	k := keysOf(0)
	p := newPlayer(s, k, most)
	run := func(r Request) wire.Tuple { return must.Got(s.Run(k, r.Script(), r.Args()))(t) }
	var reply wire.Tuple
	looks := Check{Client: "a", Mode: wire.Hears, NotAfter: p.later()}
	for i := range uint64(most - 1) {
		ask := p.asks("a", i)
		reply = run(ask)
		looks.Tickets = append(looks.Tickets, lua.Arrival{Ticket: ask.Ticket, Arrival: reply.Arrival})
	}
	require.Equal(t, wire.Waiting, reply.Status)
	require.EqualValues(t, 1, reply.Place)
	// Leases that end in a day: as if the clock had been there, and stepped back.
	args := []string{"ZADD", k.All()[Leases]}
	for _, a := range looks.Tickets {
		args = append(args, stage.Decimal(reply.Now+24*60*stage.Minute), a.Ticket)
	}
	require.NoError(t, s.Do(args...).Error())
	s.Server.ResetStats()
	cut := run(looks)
	require.True(t, cut.Has(wire.Stepped))
	require.Len(t, cut.States, most-1)
	require.LessOrEqual(t, cut.Until, cut.Now+long.Microseconds())
	require.Less(t, commands(s), int64(4*most))
	s.Server.ResetStats()
	require.Equal(t, wire.Granted, run(p.asks("b", 1)).Status)
	require.Less(t, commands(s), int64(40), "the trip is one for all")
}

// commands is how many commands ran since the statistics were reset, those in scripts too.
func commands(s *stage.Standalone) (n int64) {
	for _, calls := range s.Server.CommandStats() {
		n += calls
	}
	return n
}
