package permits

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// untold: the clients that are to be told when somebody waits have been, when somebody does.
func (h *happened) untold() error {
	if clients := h.After[0].Members["wants"]; clients != "" && len(h.Before[1].Members) == 0 && len(h.After[1].Members) > 0 {
		return fmt.Errorf("somebody waits, and these have not been told: %s", clients)
	}
	return nil
}

// messages: what is published is what happened, to the client it happened to, and one message to each, of grants mostTold in one.
func (h *happened) messages() error {
	fresh, before, after := h.fresh(), holdsOf(h.Before), holdsOf(h.After)
	told, kinds := map[string]bool{}, map[string]bool{}
	for _, s := range h.Sent {
		m, err := wire.ParseMessage(s.Text)
		if err != nil {
			return err
		}
		if m.Kind != wire.MessageGrant && m.Kind != wire.MessageWanted && s.Client != wire.TicketClient(m.Ticket) {
			return fmt.Errorf("%q was sent to %s", s.Text, s.Client)
		}
		if once := s.Client + s.Text[:1]; m.Kind != wire.MessageExcess && kinds[once] {
			return fmt.Errorf("%q was sent, the second of its kind to %s", s.Text, s.Client)
		}
		kinds[s.Client+s.Text[:1]] = len(m.Grants) != mostTold
		_, held := before[m.Ticket]
		_, holds := after[m.Ticket]
		switch m.Kind {
		case wire.MessageGrant:
			for _, g := range m.Grants {
				r, ok := fresh[g.Ticket]
				if want := (wire.Grant{Ticket: g.Ticket, Token: uint64(r.token), At: h.Now, Until: r.until, Before: toldOf(h.After, r.token)}); !ok || g != want ||
					s.Client != wire.TicketClient(g.Ticket) || r.phase != "g" {
					return fmt.Errorf("%q was sent to %s for the grant %v", s.Text, s.Client, want)
				}
				told[g.Ticket] = true
			}
		case wire.MessageSuspect:
			if !held || holds || !h.Suspect(s.Client) {
				return fmt.Errorf("%q was sent, and the client is no suspect", s.Text)
			}
		case wire.MessageLook:
			end, ends := h.request.(End)
			if _, buries := h.request.(Bury); (buries || ends && end.Rests) && len(line.QueueOf(h.After)) > 0 && line.QueueOf(h.After)[0].Ticket == m.Ticket {
				continue // The head is told that permits rest.
			}
			if b, ok := h.request.(Bury); ok && b.Client == s.Client && h.Reply.Expired > 0 {
				continue // It was called, and then found dead.
			}
			if h.After[2].Number(s.Client) != h.Now+line.AnswerTime || h.Reply.Expired == 0 {
				return fmt.Errorf("%q was sent, though nothing lapsed, or the client is not marked for %d", s.Text, h.Now+line.AnswerTime)
			}
		case wire.MessageForced:
			if h.After[0].Members["forced"] != m.Ticket && h.After[0].Members["died"] != s.Client || holds {
				return fmt.Errorf("%q was sent, and forced was %q", s.Text, h.After[0].Members["forced"])
			}
		case wire.MessageExcess:
			t, _ := line.Read(m.Ticket)
			if _, queued := h.After[1].Members[m.Ticket]; queued || t.Permits <= m.Limit || m.Limit != h.After[0].Number("limit") {
				return fmt.Errorf("%q was sent", s.Text)
			}
		case wire.MessageWanted:
			listed := slices.Contains(strings.Fields(h.Before[0].Members["wants"]), s.Client)
			if !listed || m.Token > uint64(h.After[0].Number("token")) || h.After[0].Members["wants"] != "" {
				return fmt.Errorf("%q was sent to %s, which is not to be told, or again", s.Text, s.Client)
			}
		default:
			return fmt.Errorf("%q was sent", s.Text)
		}
	}
	ask, _ := h.request.(Ask)
	for ticket := range fresh {
		if want := ticket != ask.Ticket && wire.TicketClient(ticket) != h.Caller; want != told[ticket] {
			return fmt.Errorf("%s was granted, and its client was told by message: %t", ticket, told[ticket])
		}
	}
	return h.suspected(before, after)
}

// suspected: whose lease ran out is a suspect and is told, unless it was not to renew.
func (h *happened) suspected(before, after map[string]record) error {
	if h.Reply.Expired == 0 {
		return nil
	}
	for ticket, r := range before {
		client := wire.TicketClient(ticket)
		end, ended := h.request.(End)
		if _, there := after[ticket]; there || r.until > h.Now || r.phase == "f" || ended && end.Ticket == ticket {
			continue
		}
		tells := func(m stage.Message) bool { return m.Client == client && strings.HasPrefix(m.Text, "S ") }
		told := client == h.Caller && h.Reply.Has(wire.Suspected) || slices.ContainsFunc(h.Sent, tells)
		if !h.Suspect(client) || !told && !h.Muted {
			return fmt.Errorf("%s is over, and its client is a suspect: %t, and was told: %t", ticket, h.Suspect(client), told)
		}
	}
	return nil
}

// answer: what the reply says of grants is so, and is of the caller.
func (h *happened) answer() error {
	after := holdsOf(h.After)
	told := map[string]bool{}
	for _, g := range h.Reply.Grants {
		r, ok := after[g.Ticket]
		want := wire.Grant{Ticket: g.Ticket, Token: uint64(r.token), At: h.Now, Until: r.until, Before: toldOf(h.After, r.token)}
		if !ok || g != want || wire.TicketClient(g.Ticket) != h.Caller || told[g.Ticket] {
			return fmt.Errorf("reports the grant %v, there is %v", g, want)
		}
		told[g.Ticket] = true
	}
	ask, asks := h.request.(Ask)
	for ticket := range h.fresh() {
		if wire.TicketClient(ticket) == h.Caller && !told[ticket] && ticket != ask.Ticket {
			return fmt.Errorf("granted %s and did not tell", ticket)
		}
	}
	if asks && h.Reply.Status != wire.Granted && h.Reply.Status != wire.Late {
		if r, holds := after[ask.Ticket]; holds && h.Reply.Status != wire.Mismatch {
			return fmt.Errorf("%s holds until %d and is told %d", ask.Ticket, r.until, h.Reply.Status)
		}
	}
	if h.Reply.Status != wire.Granted {
		return nil
	}
	ticket := h.request.Args()[0]
	r, ok := after[ticket]
	if !ok || h.Reply.Token != uint64(r.token) || h.Reply.Until != r.until {
		return fmt.Errorf("granted %d until %d, the lock says %d until %d", h.Reply.Token, h.Reply.Until, r.token, r.until)
	}
	if left := r.until - h.Now; left > r.lease || left <= 0 {
		return fmt.Errorf("granted for %d µs, with a lease of %d", left, r.lease)
	}
	if asks && ask.Mode == wire.Drain && int64(h.Reply.Place) != r.permits {
		return fmt.Errorf("drained %d, and %d are held", h.Reply.Place, r.permits)
	}
	return nil
}

// untouched: what is late, and a renewal that is refused or another limit that is stated, leaves no trace; a try
// none of its ticket.
func (h *happened) untouched() error {
	ask, asks := h.request.(Ask)
	_, renews := h.request.(Renew)
	if asks && (h.Reply.Status == wire.Busy || h.Reply.Status == wire.Excess) {
		_, was := h.Before[1].Members[ask.Ticket]
		if _, is := h.After[1].Members[ask.Ticket]; is && (!was || h.Reply.Status == wire.Excess) {
			return fmt.Errorf("%s is queued", ask.Ticket)
		}
		if h.arrived() {
			return fmt.Errorf("%s took an arrival", ask.Ticket)
		}
	}
	if h.Reply.Status != wire.Late && h.Reply.Status != wire.Mismatch && !(renews && h.Reply.Status == wire.Refused) {
		return nil
	}
	for i := range h.After {
		if !maps.Equal(h.Before[i].Members, h.After[i].Members) {
			return fmt.Errorf("refused, but key %d changed from\n%v", i, h.Before[i].Members)
		}
	}
	return nil
}

// names reports whether a repeated request tells again of a grant to a ticket: a check of those that it names.
// For the others the next check will.
func names(r Request, ticket string) bool {
	c, ok := r.(Check)
	return ok && slices.ContainsFunc(c.Tickets, func(a lua.Arrival) bool { return a.Ticket == ticket })
}

// sameTwice: a request that is sent twice has the effect of one (I8).
func sameTwice(k lua.Keys, r Request, one, two wire.Tuple, first, second stage.State) error {
	const unsettled = wire.More | wire.Unwoken
	if (one.Flags|two.Flags)&unsettled != 0 {
		return nil
	}
	if _, ok := r.(Bury); ok {
		return nil // As of a release by force.
	}
	if _, ok := r.(Force); ok && one.Status == wire.Refused {
		return nil // It says itself that the first may grant what the second frees.
	}
	if two.Expired > 0 || (one.Flags^two.Flags)&(wire.Stepped|wire.Uncounted) != 0 {
		return nil // What is granted at once, or queued in a usual case, does not look after other holds.
	}
	if one.Flags&two.Flags&wire.Stepped != 0 {
		return nil // The first one frees what ended last, and the second cuts a lease that ended before that.
	}
	ask, asks := r.(Ask)
	if c, ok := r.(Check); ok && c.Mode == wire.Proven && one.Expired > 0 {
		return nil // The second proof is taken for one of what the first has found out.
	}
	if first[0].Number("mark") != 0 || len(one.Grants) > 0 && len(first[1].Members) > 0 {
		return nil // During a mark (R6), or with silent clients left to the next pass.
	}
	free := []string{"kept", "forced", "looked"}
	if asks && ask.Arrival == 0 {
		free = append(free, "high") // An arrival is used up each time, also where the ticket has one in the queue.
		if one.Place < 0 {
			one.Arrival = two.Arrival
		}
	}
	a, b := slices.Clone(first), slices.Clone(second)
	a[0].Members, b[0].Members = maps.Clone(a[0].Members), maps.Clone(b[0].Members)
	if a[0].Members["marked"] != "" && b[0].Members["marked"] == "" { // What is usual does not look after suspects.
		free = append(free, "marked")
		a[2].Members = b[2].Members
	}
	for _, field := range free {
		delete(a[0].Members, field)
		delete(b[0].Members, field)
	}
	if a, b := a.Text(k), b.Text(k); a != b {
		return fmt.Errorf("  the keys hold\n%s\n  after once\n%s", b, a)
	}
	for _, g := range one.Grants {
		if names(r, g.Ticket) && !slices.Contains(two.Grants, g) {
			return fmt.Errorf("reports the grants %v, at first %v", two.Grants, one.Grants)
		}
	}
	if asks && (one.Status != two.Status || one.Until != two.Until || one.Place != two.Place || one.Arrival != two.Arrival ||
		one.Token != two.Token) {
		return fmt.Errorf("answers\n  %s, at first\n  %s", stage.ReplyText(two), stage.ReplyText(one))
	}
	if _, ok := r.(Check); ok {
		for i, state := range one.States {
			kind, place, _ := strings.Cut(state, " ")
			if kind == wire.StateAgain {
				state = wire.StateQueued + " " + place
			}
			if kind == wire.StateGone && strings.HasPrefix(two.States[i], wire.StateFull) {
				continue // It was queued, which its client did not know.
			}
			if state != two.States[i] {
				return fmt.Errorf("states %v, at first %v", two.States, one.States)
			}
		}
	}
	return nil
}

// arrived reports whether an arrival was given. Where the hash was lost, the next grant says that the queue is not empty.
func (h *happened) arrived() bool {
	high := h.After[0].Members["high"]
	return high != h.Before[0].Members["high"] && high != "1"
}

// scene lets "a" hold, with a lease that is over or not, and the others wait.
func (p *player) scene(t *testing.T, over bool) (holder string, token uint64) {
	t.Helper()
	holder = ticket("a", 1, wire.Write, p.limit)
	if over {
		holder = "a:1:w:" + stage.Decimal(p.limit) + ":1:1"
	}
	token = p.must(t, p.asks(holder, wire.Try)).Token
	require.NoError(t, p.Hear(1, true))
	require.NoError(t, p.Hear(2, true))
	require.NoError(t, p.put([]lua.Arrival{
		{Ticket: ticket("b", 1, wire.Read, 1), Arrival: p.Now - 10}, {Ticket: ticket("c", 1, wire.Write, p.limit), Arrival: p.Now - 9},
	}))
	if over {
		p.Host.Pass(2 * stage.Millisecond)
		p.Now = p.Host.Now()
		p.elapse()
	}
	return holder, token
}

// everything are requests of every script, from the holder and from others.
func (p *player) everything(holder string, token uint64) map[string]Request {
	b := lua.Arrival{Ticket: ticket("b", 1, wire.Read, 1), Arrival: p.Now - 10}
	reader := ticket("d", 1, wire.Read, 1)
	return map[string]Request{
		"wait":         p.asks(reader, wire.Wait),
		"look":         p.asks(reader, wire.Look),
		"try":          p.asks(reader, wire.Try),
		"release":      End{Ticket: holder},
		"leave":        End{Ticket: b.Ticket},
		"renew":        Renew{Ticket: holder, Token: int64(token), Lease: 1000, Phase: wire.PhaseHeld, NotAfter: p.later()},
		"check":        p.looks("b", wire.Hears, b),
		"deaf check":   p.looks("b", wire.Deaf, b),
		"proven check": p.looks("b", wire.Proven, b),
		"mere look":    p.looks("d", wire.Hears),
		"force":        Force{Ticket: holder},
		"resize":       Resize{Permits: p.limit},
		"downgrade":    Downgrade{Ticket: holder, Token: int64(token), NotAfter: p.later()},
	}
}

// startOver forgets everything.
func (p *player) startOver(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Host.Remove(p.Keys.All()...))
	require.NoError(t, must.Err(p.Host.Woken(p.Keys)))
	*p = *newPlayer(p.Host, "bounds", p.locks, p.limit)
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	onBoth(t, true, 0, func(t *testing.T, p *player) {
		for _, over := range []bool{false, true} {
			for name := range p.everything("", 0) {
				for which, wrong := range p.Keys.All() {
					holder, token := p.scene(t, over)
					r := p.everything(holder, token)[name]
					require.NoError(t, p.Host.Remove(wrong))
					require.NoError(t, p.Host.Do("SET", wrong, "text").Error())
					before := p.whole(t, which)
					_, err := p.run(r)
					sent, sentErr := p.Host.Woken(p.Keys)
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

// whole is the text of the keys, without the one that is spoiled.
func (p *player) whole(t *testing.T, spoiled int) string {
	t.Helper()
	var text string
	for i, key := range p.Keys.All() {
		if i == spoiled {
			continue
		}
		list := p.Host.Do("ZRANGE", key, "0", "-1", "WITHSCORES")
		if i == 0 {
			list = p.Host.Do("HGETALL", key)
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
			before := p.State.Text(p.Keys)
			server.Server.Do("CONFIG", "SET", "maxmemory", "1")
			reply, err := p.run(r)
			server.Server.Do("CONFIG", "SET", "maxmemory", "0")
			state, stateErr := p.Host.State(p.Keys)
			require.NoError(t, stateErr)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", name)
				_, asks := r.(Ask)
				_, sizes := r.(Resize)
				require.True(t, asks || sizes, "%s: %v", name, err)
				require.Equal(t, before, state.Text(p.Keys), name)
			} else if reply.Now != 0 {
				p.Model.Expire(reply.Now)
				require.NoError(t, line.SameReply(r.Run(p.Model, reply.Now), reply), name)
				require.Equal(t, p.Model.State(reply.Now).Text(p.Keys), state.Text(p.Keys), name)
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
		r := p.everything(ticket("a", 1, wire.Write, p.limit), 1)[name]
		before := p.State.Text(p.Keys)
		server.Server.Do("CONFIG", "SET", "maxmemory", "1")
		reply, err := p.run(r)
		server.Server.Do("CONFIG", "SET", "maxmemory", "0")
		state, stateErr := p.Host.State(p.Keys)
		require.NoError(t, stateErr)
		_, asks := r.(Ask)
		_, sizes := r.(Resize)
		if asks || sizes {
			require.ErrorContains(t, err, "OOM", name)
			require.Equal(t, before, state.Text(p.Keys), name)
		} else {
			require.NoError(t, err, name)
			require.NoError(t, line.SameReply(r.Run(p.Model, reply.Now), reply), name)
		}
		p.startOver(t)
	}
}

// Permits that are free, and that the head could have, go to it by a check, which a look with others leaves to it.
func TestALookWithOthersLeavesFreePermitsToACheck(t *testing.T) {
	h, k := stage.Embed(t, scripts...), lua.Semaphore.Keys("model", "free")
	ask := Ask{Ticket: "a:1:p:1:10000:2000", Mode: wire.Wait, NotAfter: h.Now(), Phase: wire.PhaseHeld, Who: "who", Limit: 2}
	_, err := ask.Script().Tuple(h.Call(k.All(), ask.Script(), ask.Args()))
	require.NoError(t, err)
	require.NoError(t, h.Do("HSET", k.Lock, "high", stage.Decimal(h.Now())).Error())
	for permits, calm := range map[string]bool{"2": true, "1": false} {
		waits := lua.Arrival{Ticket: "b:1:p:" + permits + ":10000:2000", Arrival: h.Now()}
		require.NoError(t, h.Remove(k.Queue))
		require.NoError(t, h.Do("ZADD", k.Queue, stage.Decimal(waits.Arrival), waits.Ticket).Error())
		_, ok, err := stage.Together(h, k, lua.Semaphore.Checks, h.Now(), "b", true, []lua.Arrival{waits})
		require.NoError(t, err)
		require.Equal(t, calm, ok, permits)
	}
}
