package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// situations are what a script may find, made of a holder "a" and of b, c and d that wait, d of them without
// a subscription.
var situations = []struct {
	name  string
	lease int64 // of the holder
	make  func(p *player, t *testing.T, lease int64)
}{
	{"held", 10 * second, (*player).line},
	{"over", millisecond, (*player).over},
	{"over, with a suspect", millisecond, func(p *player, t *testing.T, lease int64) {
		p.over(t, lease)
		p.must(t, p.asks("x", 1, wire.Try)) // The holder is a suspect now, and b owns for a millisecond.
		p.after(t, 2*millisecond)
	}},
	{"in transit", 10 * second, func(p *player, t *testing.T, lease int64) {
		p.line(t, lease)
		give := p.everything(lease)["give"]
		require.Equal(t, wire.Granted, p.must(t, give).Status)
	}},
	{"free", 10 * second, func(p *player, t *testing.T, lease int64) {
		p.line(t, lease)
		p.Muted = true
		p.must(t, End{Ticket: short("a", lease)})
		require.Empty(t, p.before.owner())
	}},
}

func (p *player) over(t *testing.T, lease int64) {
	t.Helper()
	p.line(t, lease)
	p.after(t, 2*lease)
}

// short is a ticket of a client whose grant lasts a millisecond.
func short(client string, lease int64) string {
	return fmt.Sprintf("%s:1:x:1:%d:1", client, lease/millisecond)
}

// line makes a queue: "a" holds for that long, the others wait.
func (p *player) line(t *testing.T, lease int64) {
	t.Helper()
	held := Ask{Ticket: short("a", lease), Mode: wire.Try, NotAfter: p.later(), Phase: wire.PhaseHeld}
	require.Equal(t, wire.Granted, p.must(t, held).Status)
	for i, client := range []string{"b", "c", "d"} {
		require.NoError(t, p.Hear(1+i, client != "d"))
		require.NoError(t, p.enqueue(short(client, 10*second), int64(i)))
	}
}

// enqueue puts a ticket into the queue by hand, because asks would find the lease over.
func (p *player) enqueue(ticket string, nth int64) error {
	return p.put([]lua.Arrival{{Ticket: ticket, Arrival: p.Now - 10 + nth}}, 2*minute)
}

// after goes on when the server's time has gone on.
func (p *player) after(t *testing.T, micros int64) {
	t.Helper()
	for end := p.server.Now() + micros; p.server.Now() < end; {
		p.server.Pass(millisecond)
	}
	p.Now = p.server.Now()
	p.Model.Expire(p.Now)
}

// moving is a hold of "a" in transit.
var moving = lua.Transit{Client: "a", Lease: time.Second, Secret: "secret"}

// everything are requests of every script, from the holder and from others.
func (p *player) everything(lease int64) map[string]Request {
	b := lua.Arrival{Ticket: short("b", 10*second), Arrival: p.Now - 10}
	return map[string]Request{
		"wait":         p.asks("e", 1, wire.Wait),
		"look":         p.asks("e", 1, wire.Look),
		"try":          p.asks("e", 1, wire.Try),
		"release":      End{Ticket: short("a", lease)},
		"leave":        End{Ticket: b.Ticket},
		"renew":        Renew{Ticket: short("a", lease), Token: p.Highest, Lease: 1000, Phase: wire.PhaseHeld, NotAfter: p.later()},
		"still":        Renew{Ticket: short("a", lease), Token: p.Highest, Lease: lease / millisecond, Phase: wire.PhaseHeld, NotAfter: p.later(), Still: true},
		"check":        p.looks("b", wire.Hears, b),
		"deaf check":   p.looks("b", wire.Deaf, b),
		"proven check": p.looks("b", wire.Proven, b),
		"mere look":    p.looks("e", wire.Hears),
		"force":        Force{},
		"give":         Move{From: short("a", lease), To: moving.Ticket(), Phase: wire.PhaseFinal, NotAfter: p.later()},
		"adopt":        Move{From: moving.Ticket(), To: short("e", lease), Secret: moving.Hex(), Phase: wire.PhaseHeld, NotAfter: p.later()},
	}
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		p.Model.History = 3
		for _, s := range situations {
			for which, wrong := range append(p.Keys.All(), p.Keys.History) {
				for name := range p.everything(0) {
					s.make(p, t, s.lease)
					r := p.everything(s.lease)[name]
					require.NoError(t, p.server.Remove(wrong))
					require.NoError(t, p.server.Do("SET", wrong, "text").Error())
					what := fmt.Sprintf("%s, %s, key %d", s.name, name, which)
					before := p.whole(t, what)
					_, err := p.server.run(p.Keys, p.Model.History, r)
					if after := p.whole(t, what); err != nil {
						require.Equal(t, before, after, "%s: left half done by %v", what, err)
					}
					sent, sentErr := p.server.Woken(p.Keys)
					require.NoError(t, sentErr)
					if err != nil {
						require.Empty(t, sent, what)
					}
					require.False(t, which == 0 && err == nil, "%s: no error", what)
					p.startOver(t)
				}
			}
		}
	})
}

// whole is the text of the keys; a key of another type has none.
func (p *player) whole(t *testing.T, what string) string {
	t.Helper()
	s, err := p.server.state(p.Keys)
	require.NoError(t, err, what)
	return s.text()
}

// startOver forgets everything.
func (p *player) startOver(t *testing.T) {
	t.Helper()
	require.NoError(t, p.server.Remove(append(p.Keys.All(), p.Keys.History)...))
	require.NoError(t, kit.Err(p.server.Woken(p.Keys)))
	fresh := newPlayer(p.server, p.Keys)
	fresh.Highest, fresh.Model.History = p.Highest, p.Model.History
	*p = *fresh
}

// With full memory whatever frees works, to the grant of the next; what would only take is an error that
// leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldAdd(t *testing.T) {
	t.Parallel()
	server, fill := startStandalone(t)
	p := newPlayer(server, keysOf(0))
	p.Model.History = 3
	refused := 0
	for _, s := range situations {
		for name := range p.everything(0) {
			s.make(p, t, s.lease)
			r := p.everything(s.lease)[name]
			what := s.name + ", " + name
			before := p.before.text()
			fill(true)
			trial := p.Model.Clone()
			trial.Mute = false
			reply, err := p.server.run(p.Keys, p.Model.History, r)
			fill(false)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", what)
				require.IsType(t, Ask{}, r, "%s: %v", what, err)
				state := kit.Got(p.server.state(p.Keys))(t)
				state.untimed() // As what was there before is.
				require.Equal(t, before, state.text(), what)
			} else {
				require.NoError(t, line.SameReply(r.Run(trial, reply.Now), reply), what)
				if want := expected(trial, reply.Now); reply.Now != 0 {
					state := kit.Got(p.server.state(p.Keys))(t)
					want.untimed()
					state.untimed()
					require.Equal(t, want.text(), state.text(), what)
				}
			}
			p.startOver(t)
		}
	}
	require.NotZero(t, refused, "memory was not full")
}

// The first hold of a script is written whole whatever its client knows: it makes way for the others when memory is full.
func TestTheFirstOfSeveralRenewalsProlongsItsKey(t *testing.T) {
	t.Parallel()
	server, fill := startStandalone(t)
	p := newPlayer(server, keysOf(0))
	p.line(t, 10*second)
	require.NoError(t, server.Do("HSET", p.Keys.Lock, "phase", wire.PhaseHeld, "until", stage.Decimal(p.Highest+10*second)).Error()) // As one that was renewed.
	left := func(first string) int64 {
		require.NoError(t, server.Do("PEXPIRE", p.Keys.Lock, "20000").Error())
		fill(true)
		_, _, not, err := lua.Fairlock.Renewals.DecodeRenewals(server.Call([]string{first, p.Keys.Lock}, lua.Fairlock.Renewals, []string{
			stage.Decimal(p.later()), "10000", "hs", other.ticket, other.token, short("a", 10*second), stage.Decimal(p.Highest),
		}), 2)
		fill(false)
		require.NoError(t, err)
		require.NotContains(t, not, 1)
		return kit.Got(server.Do("PTTL", p.Keys.Lock).AsInt64())(t)
	}
	require.Greater(t, left("nothing is there"), int64(50_000))
	require.LessOrEqual(t, left(other.key), int64(20_000))
}

// What a client knows of a hold's first renewal may have been lost in a failover: the hash says what was.
func TestAHoldWhoseFirstRenewalWasLostIsRenewedWhole(t *testing.T) {
	t.Parallel()
	server, _ := startStandalone(t)
	p := newPlayer(server, keysOf(0))
	p.line(t, 10*second)
	require.NoError(t, server.besides())
	require.NoError(t, server.Do("HSET", p.Keys.Lock, "phase", "granted").Error())
	require.NoError(t, server.Do("PEXPIRE", p.Keys.Lock, "20000").Error())
	_, _, not, err := lua.Fairlock.Renewals.DecodeRenewals(server.Call([]string{other.key, p.Keys.Lock}, lua.Fairlock.Renewals, []string{
		stage.Decimal(p.later()), "10000", "hs", other.ticket, other.token, short("a", 10*second), stage.Decimal(p.Highest),
	}), 2)
	require.NoError(t, err)
	require.Empty(t, not)
	require.Equal(t, wire.PhaseHeld, kit.Got(server.Do("HGET", p.Keys.Lock, "phase").ToString())(t))
	require.Greater(t, kit.Got(server.Do("PTTL", p.Keys.Lock).AsInt64())(t), int64(50_000))
}

// What somebody else wrote into the queue stops nobody for long.
func TestAMemberThatIsNoTicketIsDropped(t *testing.T) {
	onBoth(t, func(t *testing.T, p *player) {
		for _, uncounted := range []bool{false, true} {
			p.line(t, 10*second)
			require.NoError(t, p.enqueue("rubbish", -1))
			release := End{Ticket: short("a", 10*second), Uncounted: uncounted}
			require.Equal(t, wire.Done, p.must(t, release).Status)
			for reply := (wire.Tuple{Flags: wire.More}); reply.Has(wire.More) && p.before.owner() == ""; {
				reply = p.must(t, p.looks("e", wire.Hears))
			}
			require.Equal(t, short("b", 10*second), p.before.owner())
			p.startOver(t)
		}
	})
}

// A late ask may have queued a ticket too far back. The ticket comes to its place by a check, which a look with others
// leaves to it.
func TestALookWithOthersLeavesALaterPlaceToACheck(t *testing.T) {
	h, k := startEmbedded(t), keysOf(0)
	holder, waits := "a:1:x:1:10000:2000", "b:1:x:1:10000:2000"
	for _, ticket := range []string{holder, waits} {
		_, err := h.run(k, 0, Ask{Ticket: ticket, Mode: wire.Wait, NotAfter: h.Now(), Phase: wire.PhaseHeld})
		require.NoError(t, err)
	}
	arrival := h.Now()
	look := Check{Client: "b", Mode: wire.Hears, NotAfter: h.Now(), Tickets: []lua.Arrival{{Ticket: waits, Arrival: arrival}}, Together: true}
	reply, err := h.run(k, 0, look)
	require.NoError(t, err)
	require.Zero(t, reply.Waiting, "it needs no check")
	require.NoError(t, h.Do("ZADD", k.Queue, stage.Decimal(arrival+1), waits).Error())
	reply, err = h.run(k, 0, look)
	require.NoError(t, err)
	require.Equal(t, 1, reply.Waiting)
	all, err := h.state(k)
	require.NoError(t, err)
	require.Equal(t, map[string]string{waits: stage.Decimal(arrival)}, all.State[1].Members)
}
