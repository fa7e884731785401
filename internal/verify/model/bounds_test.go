package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// onBoth runs a case on an embedded server and on a real one. What is sent is also held against the model
// and the invariants.
func onBoth(t *testing.T, run func(t *testing.T, p *player)) {
	t.Parallel()
	kit.Parallel(t, "miniredis", func(t *testing.T) { run(t, newPlayer(startEmbedded(t), keysOf(0))) })
	kit.Parallel(t, "redis", func(t *testing.T) {
		s, _ := startStandalone(t)
		run(t, newPlayer(s, keysOf(0)))
	})
}

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) wire.Tuple {
	t.Helper()
	return kit.Got(p.send(r))(t)
}

// queued puts silent tickets into the queue, whose grants would last 20 ms.
func (p *player) queued(t *testing.T, size int, single bool) {
	t.Helper()
	p.server.Pass(int64(size)) // So that all arrive after the present tickets.
	p.Now = p.server.Now()
	require.NoError(t, p.crowd(step{Size: size, Single: single, Grant: 20}))
}

// later is a not-after that does not come.
func (p *player) later() int64 { return p.Now + 60*minute }

// ticket is one of a client, with a lease of ten seconds and a first one of two.
func ticket(client string, number uint64) string {
	return wire.Ticket{
		Client: client, Number: number, Kind: wire.Exclusive, Permits: 1, Lease: 10 * time.Second, Grant: 2 * time.Second,
	}.String()
}

func (p *player) asks(client string, number uint64, mode string) Ask {
	return Ask{Ticket: ticket(client, number), Mode: mode, NotAfter: p.later(), Phase: wire.PhaseHeld}
}

func (p *player) looks(client, mode string, tickets ...lua.Arrival) Check {
	return Check{Client: client, Mode: mode, NotAfter: p.later(), Tickets: tickets}
}

// held lets a client hold the lock that is not heard of again, until lapse.
func (p *player) held(t *testing.T) {
	t.Helper()
	require.Equal(t, wire.Granted, p.must(t, p.asks("holder", 1, wire.Try)).Status)
}

// wait lets a client wait at the end of the queue.
func (p *player) wait(t *testing.T, client string, hears bool) Ask {
	t.Helper()
	require.NoError(t, p.Hear(int(client[0]-'a'), hears))
	ask := p.asks(client, 2, wire.Wait)
	reply := p.must(t, ask)
	require.Equal(t, wire.Waiting, reply.Status)
	ask.Arrival = reply.Arrival
	return ask
}

// lapse makes the lock free without that anybody looked: with its key goes the hold.
func (p *player) lapse(t *testing.T) {
	t.Helper()
	require.NoError(t, p.remove(2))
}

// cut lets a client look, and finds that the work was cut at its bound.
func (p *player) cut(t *testing.T) {
	t.Helper()
	reply := p.must(t, p.looks("b", wire.Hears))
	require.True(t, reply.Has(wire.More))
	require.NotEmpty(t, p.before.lock()["scan"])
}

func TestALiveTicketIsReachedBehindThousandsOfSilentOnes(t *testing.T) {
	for name, single := range map[string]bool{"of distinct clients": false, "of one client": true} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, p *player) {
				p.held(t)
				p.queued(t, 3000, single)
				waiter := p.wait(t, "a", true)
				p.lapse(t)
				passes, removed := 0, 0
				for {
					reply := p.must(t, p.looks("b", wire.Hears))
					passes++
					removed += reply.Skipped
					require.LessOrEqual(t, reply.Skipped, line.Drops)
					if !reply.Has(wire.More) {
						require.True(t, reply.Has(wire.Handed))
						break
					}
					require.Less(t, passes, 10, "passes go on without end")
				}
				require.Equal(t, 3000, removed)
				require.Greater(t, passes, 3000/line.Looks)
				require.Equal(t, waiter.Ticket, p.before.owner())
			})
		})
	}
}

func TestNobodyIsDroppedForAGrantLeaseWhereAllAreSilent(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.queued(t, 3000, false)
		var mark int64
		for number := uint64(1); ; number++ {
			reply := p.must(t, p.asks("a", number, wire.Try))
			if reply.Status == wire.Granted {
				break
			}
			if mark == 0 && reply.Until != 0 {
				mark = reply.Until
				require.Equal(t, reply.Now+20*millisecond, mark)
			}
			if reply.Now < mark || mark == 0 {
				require.Len(t, p.before.State[1].Members, 3000)
			}
			p.server.Pass(millisecond)
		}
		require.NotZero(t, mark, "the lock was granted without a mark")
		require.Empty(t, p.before.State[1].Members)
	})
}

func TestADeadProcessWithThousandsOfTicketsCostsNoGrantLease(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.queued(t, 3000, true)
		for number := uint64(1); ; number++ {
			reply := p.must(t, p.asks("a", number, wire.Try))
			if reply.Status == wire.Granted {
				break
			}
			require.True(t, reply.Has(wire.More))
			require.Zero(t, reply.Until, "one silent client is no sign of lost subscriptions")
			require.Less(t, number, uint64(10), "passes go on without end")
		}
	})
}

// buried queues two thousand silent tickets and a live one after them, and lets a look be cut.
func (p *player) buried(t *testing.T) Ask {
	t.Helper()
	p.queued(t, 2000, false)
	waiter := p.wait(t, "a", true)
	p.lapse(t)
	p.cut(t)
	return waiter
}

func TestATicketThatComesBackByACheckIsNotPassedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		waiter := p.buried(t)
		first := lua.Arrival{Ticket: ticket("c", 9), Arrival: waiter.Arrival - 2*second}
		reply := p.must(t, p.looks("c", wire.Hears, first))
		require.Equal(t, []string{wire.StateGranted}, reply.States)
		require.Zero(t, reply.Skipped)
	})
}

func TestATicketThatComesBackByAnAskIsNotPassedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		waiter := p.buried(t)
		require.NoError(t, p.Hear(2, true))
		ask := p.asks("c", 9, wire.Wait)
		ask.Arrival = waiter.Arrival - 2*second
		reply := p.must(t, ask)
		require.Equal(t, wire.Waiting, reply.Status)
		require.Zero(t, reply.Place)
		reply = p.must(t, p.looks("b", wire.Hears))
		require.True(t, reply.Has(wire.Handed))
		require.Zero(t, reply.Skipped)
		require.Equal(t, ask.Ticket, p.before.owner())
	})
}

func TestATicketWhoseClientCallsIsNotPassedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		p.queued(t, 10, false)
		silent := p.wait(t, "c", false)
		p.buried(t)
		silent.NotAfter = p.later()
		reply := p.must(t, silent)
		require.Equal(t, wire.Granted, reply.Status, "R5: whoever calls is alive")
		require.Equal(t, 10, reply.Skipped)
	})
}

// What others do meanwhile never lets a key end that only now and then is prolonged: the judge sees to it at each step.
func TestAKeyOutlivesAHoldOfWhichOnlyTheEndIsWritten(t *testing.T) {
	t.Parallel()
	p := newPlayer(startEmbedded(t), keysOf(0))
	p.line(t, 10*second)
	var kept int64
	whole := 0
	for i := range 60 {
		require.NoError(t, p.step(step{Op: line.OpPass, Micros: 3300 * millisecond}))
		r := Renew{Ticket: short("a", 10*second), Token: p.before.number("token"), Lease: 10_000, Phase: wire.PhaseHeld, NotAfter: p.Now}
		r.Still = p.Now+10*second+lua.Least.Microseconds() <= kept
		reply := p.must(t, r)
		require.Equal(t, wire.Granted, reply.Status)
		if !r.Still {
			kept = reply.Until + lua.Spare.Microseconds()
			whole++
		}
		other := ticket("e", 1)
		p.must(t, []Request{
			p.asks("e", 1, wire.Wait), End{Ticket: other}, p.looks("b", wire.Hears), p.asks("e", 1, wire.Try), End{Ticket: short("b", 10*second)},
			p.looks("e", wire.Deaf), Force{Token: 1}, End{Ticket: short("c", 10*second)}, End{Ticket: short("d", 10*second)},
		}[i%9])
	}
	require.Equal(t, 12, whole, "of 60")
}

// The keys lived for a token that the clock was behind by days, which counts for a day at the most.
func TestAnAskCutsKeysAfterAStepOfTheClock(t *testing.T) {
	t.Parallel()
	p := newPlayer(startEmbedded(t), keysOf(0))
	p.must(t, p.asks("a", 1, wire.Try))
	p.must(t, End{Ticket: ticket("a", 1)})
	require.NoError(t, p.step(step{Op: line.OpClock, Micros: -48 * 60 * minute}))
	require.Equal(t, wire.Granted, p.must(t, p.asks("b", 1, wire.Try)).Status)
	require.Less(t, p.before.State[0].Left, int64(25*60*minute))
}

// The server's clock has stepped back since the arrivals were given.
func TestOfThoseWhoBringLaterArrivalsNoneIsOvertaken(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		require.NoError(t, p.Hear(0, true))
		first := lua.Arrival{Ticket: ticket("a", 2), Arrival: p.Now + 30*second}
		next := lua.Arrival{Ticket: ticket("a", 3), Arrival: first.Arrival + 1}
		p.must(t, p.looks("a", wire.Hears, first, next))
		late := p.must(t, p.asks("b", 2, wire.Wait))
		require.Greater(t, late.Arrival, next.Arrival)
		require.EqualValues(t, 3, late.Place)
	})
}

// An arrival ahead of the clock may also come from a low priority.
func TestALowPriorityLetsOthersPass(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		require.NoError(t, p.Hear(0, true))
		low := lua.Arrival{Ticket: ticket("a", 2), Arrival: p.Now + 30*second}
		looks := p.looks("a", wire.Hears, low)
		looks.Heads = map[string]int64{low.Ticket: -30 * second}
		p.must(t, looks)
		usual := p.must(t, p.asks("b", 2, wire.Wait))
		require.Less(t, usual.Arrival, low.Arrival)
		require.EqualValues(t, 1, usual.Place)
	})
}

// The first look, for the second ticket, finds one waiter dead. Its result also serves the later tickets, with those that
// were let in.
func TestOneLookServesAllTicketsOfACheck(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.held(t)
		p.wait(t, "b", true)
		p.wait(t, "c", true)
		require.NoError(t, p.Hear(int('c'-'a'), false))
		check := p.looks("a", wire.Hears)
		check.Bounds = map[string]line.Bound{}
		for n := range uint64(5) {
			a := lua.Arrival{Ticket: ticket("a", n+1), Arrival: p.Now + 100 + int64(n)}
			check.Tickets, check.Bounds[a.Ticket] = append(check.Tickets, a), line.Bound{Limit: 3}
		}
		reply := p.must(t, check)
		require.Equal(t, 1, reply.Skipped)
		for i, want := range []string{"again 2", "again 3", "full 3 ", "full 3 ", "full 3 "} {
			require.Contains(t, reply.States[i], want, "as many others wait as it says")
		}
	})
}
