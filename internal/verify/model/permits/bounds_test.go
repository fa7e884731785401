package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// onBoth runs a case on an embedded server and on a real one. What is sent is also held against the model
// and the invariants.
func onBoth(t *testing.T, locks bool, limit int64, run func(t *testing.T, p *player)) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		run(t, newPlayer(stage.Embed(t, scripts...), "bounds", locks, limit))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		run(t, newPlayer(stage.Serve(t, scripts...), "bounds", locks, limit))
	})
}

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) wire.Tuple {
	t.Helper()
	return must.Got(p.send(r))(t)
}

// later is a not-after that does not come.
func (p *player) later() int64 { return p.Now + 60*stage.Minute }

// ticket is one with a lease of ten seconds and a first one of two.
func ticket(client string, number int, kind byte, permits int64) string {
	return fmt.Sprintf("%s:%d:%c:%d:10000:2000", client, number, kind, permits)
}

func (p *player) asks(ticket, mode string) Ask {
	return Ask{Ticket: ticket, Mode: mode, NotAfter: p.later(), Phase: wire.PhaseHeld, Who: "who", Limit: p.limit, Born: p.born}
}

func (p *player) looks(client, mode string, tickets ...lua.Arrival) Check {
	return Check{Client: client, Mode: mode, NotAfter: p.later(), Tickets: tickets, Limit: p.limit, Born: p.born}
}

// holds lets a ticket hold.
func (p *player) holds(t *testing.T, ticket string) wire.Tuple {
	t.Helper()
	reply := p.must(t, p.asks(ticket, wire.Try))
	require.Equal(t, wire.Granted, reply.Status)
	return reply
}

// waits queues a ticket whose client hears.
func (p *player) waits(t *testing.T, client int, ticket string) wire.Tuple {
	t.Helper()
	require.NoError(t, p.Hear(client, true))
	reply := p.must(t, p.asks(ticket, wire.Wait))
	require.Equal(t, wire.Waiting, reply.Status)
	return reply
}

// A writer's release lets all waiting readers in, 256 a script, with few messages, none of them long.
func TestHundredsOfReadersAreLetInByFewScripts(t *testing.T) {
	onBoth(t, true, 0, func(t *testing.T, p *player) {
		writer := ticket("d", 1, wire.Write, p.limit)
		p.holds(t, writer)
		require.NoError(t, p.Hear(0, true))
		require.NoError(t, p.Hear(1, true))
		var readers []lua.Arrival
		for i := range 600 {
			reader := ticket(stage.ClientName(i/300), 1e18+i, wire.Read, 1)
			readers = append(readers, lua.Arrival{Ticket: reader, Arrival: p.Now - 1000 + int64(i)})
		}
		require.NoError(t, p.put(readers))
		reply := p.must(t, End{Ticket: writer})
		require.True(t, reply.Has(wire.More) && reply.Has(wire.Handed))
		require.Equal(t, "256", p.State[0].Members["used"])
		for reply.Has(wire.More) {
			reply = p.must(t, p.looks("d", wire.Hears))
		}
		require.Equal(t, "600", p.State[0].Members["used"])
		require.Equal(t, p.State[0].Members["token"], p.State[0].Members["group"], "one token for all")
		last := p.waits(t, 3, ticket("d", 2, wire.Write, p.limit))
		require.EqualValues(t, 1, last.Place, "the holders count as one")
	})
}

// Leases that run out together are ended 128 a script.
func TestHundredsOfLeasesRunOutTogether(t *testing.T) {
	onBoth(t, false, 300, func(t *testing.T, p *player) {
		require.NoError(t, p.Hear(1, true))
		for i := range 300 {
			ask := p.asks(fmt.Sprintf("%s:%d:p:1:1:1", stage.ClientName(i%2), i), wire.Try)
			if i%3 == 0 {
				ask.Phase = wire.PhaseFinal
			}
			if reply := p.must(t, ask); !p.Host.Frozen() && reply.Status == wire.Busy {
				break
			}
		}
		p.Host.Pass(2 * stage.Millisecond)
		stage.Tick(p.Host, &p.Now)
		expired := 0
		for more := true; more; {
			reply := p.must(t, p.looks("d", wire.Hears))
			more = reply.Has(wire.More)
			expired += reply.Expired
			require.LessOrEqual(t, reply.Expired, mostLapses)
		}
		require.Equal(t, "0", p.State[0].Members["used"])
		if p.Host.Frozen() {
			require.Equal(t, 300, expired)
		}
		p.holds(t, ticket("d", 1, wire.Permit, 300))
	})
}

// A lock that the server has forgotten is made anew by whoever looks first.
func TestALookMakesAForgottenSemaphoreAnew(t *testing.T) {
	onBoth(t, false, 2, func(t *testing.T, p *player) {
		p.holds(t, ticket("d", 1, wire.Permit, 2))
		first, second := ticket("a", 1, wire.Permit, 2), ticket("b", 1, wire.Permit, 1)
		at, next := p.waits(t, 0, first), p.waits(t, 1, second)
		require.NoError(t, p.remove(0))
		reply := p.must(t, p.looks("b", wire.Hears, lua.Arrival{Ticket: second, Arrival: next.Arrival}))
		require.Equal(t, []string{wire.StateGranted}, reply.States, "nobody else is known yet")
		reply = p.must(t, p.looks("a", wire.Hears, lua.Arrival{Ticket: first, Arrival: at.Arrival}))
		require.Equal(t, []string{"again 1"}, reply.States)
		require.Equal(t, "2", p.State[0].Members["limit"])
	})
}

func TestCountsAreExactUpToTheLargest(t *testing.T) {
	const most = 1<<53 - 1
	onBoth(t, false, most, func(t *testing.T, p *player) {
		large, small := ticket("a", 1, wire.Permit, most-1), ticket("a", 2, wire.Permit, 1)
		p.holds(t, large)
		p.holds(t, small)
		require.Equal(t, stage.Decimal(most), p.State[0].Members["used"])
		p.waits(t, 1, ticket("b", 1, wire.Permit, 2))
		require.Equal(t, wire.Done, p.must(t, End{Ticket: small}).Status)
		require.Equal(t, stage.Decimal(most-1), p.State[0].Members["used"], "1 is free, not 2")
		require.Equal(t, wire.Done, p.must(t, End{Ticket: large}).Status)
		require.Equal(t, "2", p.State[0].Members["used"])
		drained := p.must(t, p.asks(ticket("c", 1, wire.Permit, 0), wire.Drain))
		require.Equal(t, wire.Granted, drained.Status)
		require.EqualValues(t, most-2, drained.Place)
	})
}

// A lock made smaller has less than nothing free; who asks for too much is told by message, or by a look.
func TestAfterAResizeTooMuchIsRefused(t *testing.T) {
	onBoth(t, false, 5, func(t *testing.T, p *player) {
		holder := ticket("d", 1, wire.Permit, 5)
		p.holds(t, holder)
		tickets := []string{ticket("a", 1, wire.Permit, 4), ticket("b", 1, wire.Permit, 3), ticket("c", 1, wire.Permit, 2)}
		var arrivals []lua.Arrival
		for i, x := range tickets {
			arrivals = append(arrivals, lua.Arrival{Ticket: x, Arrival: p.waits(t, i, x).Arrival})
		}
		p.must(t, Resize{Permits: 2})
		require.Equal(t, []string{"excess 2"}, p.must(t, p.looks("b", wire.Hears, arrivals[1])).States)
		require.Equal(t, wire.Done, p.must(t, End{Ticket: holder}).Status)
		require.Equal(t, 1, p.Seen["message X"])
		require.Equal(t, "2", p.State[0].Members["used"])
		require.Equal(t, wire.Done, p.must(t, Resize{Permits: 9}).Status)
	})
}

// A number without a time cannot change.
func TestANumberThatCannotChangeIsNot(t *testing.T) {
	onBoth(t, false, 5, func(t *testing.T, p *player) {
		p.born = 0
		p.holds(t, ticket("a", 1, wire.Permit, 1))
		require.Equal(t, wire.Mismatch, p.must(t, Resize{Permits: 2}).Status)
		p.limit = 4
		require.Equal(t, wire.Mismatch, p.must(t, p.asks(ticket("b", 1, wire.Permit, 1), wire.Try)).Status)
		require.Equal(t, "5", p.State[0].Members["limit"])
	})
}

// A time that is ahead of the server's clock, which has stepped back, would keep the number of all who come later from counting.
func TestATimeAheadOfTheClockIsNotBelieved(t *testing.T) {
	onBoth(t, false, 5, func(t *testing.T, p *player) {
		made := p.born
		p.born = p.Now + 60*stage.Minute
		p.holds(t, ticket("a", 1, wire.Permit, 1))
		p.born, p.limit = made, 4
		p.holds(t, ticket("b", 1, wire.Permit, 1))
		require.Equal(t, "4", p.State[0].Members["limit"])
		p.born, p.limit = p.Now+60*stage.Minute, 3
		p.holds(t, ticket("c", 1, wire.Permit, 1))
		require.Equal(t, "4", p.State[0].Members["limit"], "it has another for oldest")
	})
}

// What somebody else wrote into the queue stops nobody for long.
func TestAMemberThatIsNoTicketIsDropped(t *testing.T) {
	onBoth(t, false, 2, func(t *testing.T, p *player) {
		holder := ticket("d", 1, wire.Permit, 2)
		p.holds(t, holder)
		require.NoError(t, p.put([]lua.Arrival{{Ticket: "rubbish", Arrival: p.Now - 1000}}))
		waiter := p.waits(t, 0, ticket("a", 1, wire.Permit, 1))
		reply := p.must(t, End{Ticket: holder, Uncounted: true})
		require.True(t, reply.Has(wire.More))
		reply = p.must(t, p.looks("d", wire.Hears))
		require.True(t, reply.Has(wire.Handed), "%v", waiter)
	})
}

// A renewal for ten seconds leaves the life of keys that another has prolonged for fifteen minutes.
func TestARenewalDoesNotShortenWhatAnotherHasProlonged(t *testing.T) {
	onBoth(t, false, 2, func(t *testing.T, p *player) {
		long, short := "a:1:p:1:900000:2000", ticket("b", 1, 'p', 1)
		a, b := p.holds(t, long), p.holds(t, short)
		renew := func(ticket string, token uint64, ms int64) {
			require.Equal(t, wire.Granted, p.must(t, Renew{
				Ticket: ticket, Token: int64(token), Lease: ms, Phase: wire.PhaseHeld, Who: "w", NotAfter: p.later(),
			}).Status)
		}
		for range 4 { // On a real server nothing passes: there the last one tells.
			p.Host.Pass(5 * stage.Second)
			stage.Tick(p.Host, &p.Now)
			renew(long, a.Token, 900000)
			renew(short, b.Token, 10000)
		}
		renew(long, a.Token, 960000)
		renew(short, b.Token, 10000)
	})
}

// A master that has become a replica refuses the first write, and before that nobody may have been told of anything.
func TestAReplicaTellsNobody(t *testing.T) {
	t.Parallel()
	server := stage.Serve(t, scripts...)
	p := newPlayer(server, "bounds", false, 1)
	for _, waits := range []string{ticket("b", 1, wire.Permit, 1), "b:1:r:1:10000:2000"} { // The second is not usual.
		for _, short := range []bool{true, false} {
			holder := ticket("a", 1, wire.Permit, 1)
			p.holds(t, holder)
			require.NoError(t, p.Hear(1, true))
			require.NoError(t, p.put([]lua.Arrival{{Ticket: waits, Arrival: p.Now - 10}}))
			server.Server.Do("REPLICAOF", "127.0.0.1", "1")
			_, err := p.run(End{Ticket: holder, FastPath: short})
			require.ErrorContains(t, err, "READONLY")
			require.Empty(t, must.Got(p.Host.Woken(p.Keys))(t))
			server.Server.Do("REPLICAOF", "NO", "ONE")
			p.startOver(t)
		}
	}
}

// A look that goes with others does not keep a head that nobody hears for, where some permits are free.
func TestALookWithOthersFindsAHeadThatIsDead(t *testing.T) {
	onBoth(t, false, 3, func(t *testing.T, p *player) {
		p.holds(t, ticket("a", 1, 'p', 2))
		p.waits(t, 1, ticket("b", 1, 'p', 2))
		behind := ticket("c", 1, 'p', 2)
		look := p.looks("c", wire.Hears, lua.Arrival{Ticket: behind, Arrival: p.waits(t, 2, behind).Arrival})
		look.Together = true
		require.NotEmpty(t, p.must(t, look).States)
		require.NotZero(t, p.Seen["looked together"], "while the head hears there is nothing to do")
		require.NoError(t, p.Hear(1, false))
		look.NotAfter = p.later()
		p.must(t, look)
		require.Equal(t, 1, p.Seen["looked together"])
	})
}
