package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// messages: what is published is what happened, to the client it happened to.
func (h *happened) messages() error {
	var grants, wanted int
	for _, s := range h.Sent {
		m, err := wire.ParseMessage(s.Text)
		if err != nil {
			return err
		}
		ticket := m.Ticket
		if m.Kind == wire.MessageWanted {
			ticket = h.before.owner()
		}
		if len(m.Grants) == 1 {
			ticket = m.Grants[0].Ticket
		}
		if s.Client != wire.TicketClient(ticket) {
			return fmt.Errorf("%q was sent to %s", s.Text, s.Client)
		}
		switch m.Kind {
		case wire.MessageGrant:
			grants++
			want := wire.Grant{
				Ticket: h.after.owner(), Token: uint64(h.after.number("token")), At: h.Now, Until: h.after.number("until"), Before: h.after.told(),
			}
			if m.Grants[0] != want {
				return fmt.Errorf("%q was sent for the grant %v", s.Text, want)
			}
		case wire.MessageSuspect:
			if ticket != h.before.owner() || h.after.lock()["lapsed"] != ticket || !h.Suspect(s.Client) {
				return fmt.Errorf("%q was sent, and the client is no suspect", s.Text)
			}
		case wire.MessageLook:
			at, marked := h.Mark(s.Client)
			lapsed := h.before.lock()["phase"] == granted && h.Reply.Expired > 0
			if lua.InTransit(h.after.owner()) && len(h.After[1].Members) > 0 && ticket == line.QueueOf(h.After)[0].Ticket && !lapsed {
				continue // The head is told that a hold is in transit.
			}
			end, ends := h.request.(End)
			if _, buries := h.request.(Bury); (buries || ends && end.Rests) && h.freed() && wire.Rests(h.after.owner()) && ticket == line.QueueOf(h.After)[0].Ticket {
				continue // Or that the name rests.
			}
			if b, ok := h.request.(Bury); ok && b.Client == s.Client && lapsed {
				continue // It was called, and then found dead.
			}
			if !marked || at != h.Now+line.AnswerTime || !lapsed {
				return fmt.Errorf("%q was sent, though the client is not marked for %d, or no grant lapsed", s.Text, h.Now+line.AnswerTime)
			}
		case wire.MessageForced:
			if _, buries := h.request.(Bury); h.after.lock()["forced"] != ticket && !(buries && h.after.lock()["died"] == s.Client) {
				return fmt.Errorf("%q was sent, and forced was %q", s.Text, h.after.lock()["forced"])
			}
		case wire.MessageWanted:
			if !h.before.wants() || h.after.owner() != ticket || m.Token != uint64(h.after.number("token")) || len(h.fresh()) == 0 && !h.deaf() {
				return fmt.Errorf("%q was sent, and nobody is to be told, or nobody has come", s.Text)
			}
			wanted++
		default:
			return fmt.Errorf("%q was sent", s.Text)
		}
	}
	if stays := h.held() && h.after.owner() == h.before.owner(); wanted > 1 || stays && h.before.wants() && len(h.fresh()) > 0 && (wanted == 0 && !h.Muted || h.after.wants()) {
		return fmt.Errorf("%v came, and the holder was told %d times", h.fresh(), wanted)
	}
	ask, _ := h.request.(Ask)
	owner := h.after.owner()
	if h.Reply.Expired > 0 && !strings.HasPrefix(h.before.lock()["phase"], wire.PhaseFinal) && !h.Muted {
		client := wire.TicketClient(h.before.owner())
		told := client == h.Caller && h.Reply.Has(wire.Suspected)
		if !told && !slices.Contains(h.Sent, stage.Message{Client: client, Text: "S " + h.before.owner()}) {
			return fmt.Errorf("%s is a suspect and was not told", client)
		}
	}
	if want := h.granted() && owner != ask.Ticket && wire.TicketClient(owner) != h.Caller; want != (grants == 1) {
		return fmt.Errorf("%d messages of a grant to %s", grants, owner)
	}
	return nil
}

// deaf reports whether a check has named tickets that do not stay in the queue: their client waits all the same (R10).
func (h *happened) deaf() bool {
	_, check := h.request.(Check)
	return check && slices.Contains(h.Reply.States, wire.StateGone)
}

// fresh are the tickets that have come into the queue.
func (h *happened) fresh() (came []string) {
	for ticket := range h.After[1].Members {
		if _, was := h.Before[1].Members[ticket]; !was {
			came = append(came, ticket)
		}
	}
	return came
}

// told: a renewal by a holder that wants to know tells it that somebody waits, or lets it be told by a message.
func (h *happened) told() error {
	r, ok := h.request.(Renew)
	wanted := h.Reply.Has(wire.Wanted)
	switch {
	case !ok || !r.Wants || h.Reply.Status != wire.Granted:
		if wanted {
			return fmt.Errorf("told that somebody waits, unasked")
		}
		return nil
	case wanted && len(h.After[1].Members) == 0:
		return fmt.Errorf("told that somebody waits, and nobody does")
	case wanted == h.after.wants():
		return fmt.Errorf("told %t that somebody waits, and the message is to come %t", wanted, h.after.wants())
	case !wanted && !r.Marked && len(h.After[1].Members) > 0:
		return fmt.Errorf("not told that somebody waits")
	}
	return nil
}

// answer: what the reply says of grants is so, and is of the caller.
func (h *happened) answer() error {
	token, until := uint64(h.after.number("token")), h.after.number("until")
	for _, g := range h.Reply.Grants {
		want := wire.Grant{Ticket: h.after.owner(), Token: token, At: h.Now, Until: until, Before: h.after.told()}
		if g != want || wire.TicketClient(g.Ticket) != h.Caller {
			return fmt.Errorf("reports the grant %v, there is %v", g, want)
		}
	}
	if h.granted() && wire.TicketClient(h.after.owner()) == h.Caller && len(h.Reply.Grants) == 0 {
		if ask, ok := h.request.(Ask); (!ok || ask.Ticket != h.after.owner()) && !h.moved() {
			return fmt.Errorf("granted %s and did not tell", h.after.owner())
		}
	}
	if h.Reply.Status != wire.Granted {
		return nil
	}
	if h.Reply.Token != token || h.Reply.Until != until {
		return fmt.Errorf("granted %d until %d, the lock says %d until %d", h.Reply.Token, h.Reply.Until, token, until)
	}
	if left := until - h.Now; left > h.after.lease() {
		return fmt.Errorf("granted for %d µs, more than the lease of %d", left, h.after.lease())
	}
	return nil
}

// arrived reports whether an arrival was given. Where the hash was lost, the next grant says that the queue is not empty.
func (h *happened) arrived() bool {
	return h.before.lock()["high"] != h.after.lock()["high"] && h.after.lock()["high"] != "1"
}

// untouched: what is late, and a renewal or a try that is refused, leaves no trace.
func (h *happened) untouched() error {
	ask, asks := h.request.(Ask)
	_, renews := h.request.(Renew)
	tried := asks && h.Reply.Status == wire.Busy
	if tried {
		if slices.Contains(h.fresh(), ask.Ticket) {
			return fmt.Errorf("the try is queued")
		}
		if h.arrived() {
			return fmt.Errorf("the try took an arrival")
		}
	}
	left := h.before.number("until") - h.Now
	quiet := tried && h.held() && left <= h.before.lease()
	if h.Reply.Status != wire.Late && !(renews && h.Reply.Status == wire.Refused) && !quiet {
		return nil
	}
	before := h.before
	if quiet && before.calmed(h.after) {
		before = before.calm()
	}
	if b, a := before.text(), h.after.text(); b != a {
		return fmt.Errorf("refused, but the keys changed from\n%s", b)
	}
	return nil
}

// names reports whether a repeated request tells again of a grant to a ticket: an end of any of its client, a
// check of those that it names. For the others the next check will.
func names(r Request, ticket string) bool {
	if c, ok := r.(Check); ok {
		return slices.ContainsFunc(c.Tickets, func(a lua.Arrival) bool { return a.Ticket == ticket })
	}
	_, ok := r.(End)
	return ok
}

// unsettled reports whether there is more to do than the request did.
func unsettled(r wire.Tuple) bool { return r.Has(wire.More) || r.Has(wire.Unwoken) }

// sameTwice: a request that is sent twice has the effect of one (I8).
func sameTwice(r Request, one, two wire.Tuple, first, second state) error {
	if force, ok := r.(Force); ok && force.Token == 0 {
		return nil // It says itself that it is not safe to repeat.
	} else if ok && one.Status == wire.Refused && int64(one.Token) == force.Token {
		return nil // Within one µs after the lock key was lost a token can come again.
	}
	if _, ok := r.(Bury); ok {
		return nil // As of a release by force: the first may grant what was queued behind the dead.
	}
	if unsettled(one) || unsettled(two) {
		return nil
	}
	ask, asks := r.(Ask)
	if m, moves := r.(Move); moves && one.Status != two.Status {
		if len(one.Grants) > 0 && one.Grants[0].Ticket == m.From {
			return nil // The first has granted what the second finds.
		}
		return fmt.Errorf("answers %s, at first %s", stage.ReplyText(two), stage.ReplyText(one))
	}
	if ask.Bound != nil && (one.Flags^two.Flags)&wire.Uncounted != 0 {
		return nil // The dead count where subscribers cannot be counted.
	}
	if c, ok := r.(Check); ok && c.Mode == wire.Proven && one.Expired > 0 {
		return nil // The second proof is taken for one of what the first has found out.
	}
	if asks && one.Status == wire.Waiting && first.owner() == "" {
		return nil // During a mark (R6), and now that it is queued itself its client is alive.
	}
	free := []string{"kept", "looked"}
	if asks && ask.Arrival == 0 {
		free = append(free, "high") // An arrival is used up each time, also where the ticket has one in the queue.
		if one.Place < 0 {
			one.Arrival = two.Arrival
		}
	}
	if len(first.State[1].Members)+len(second.State[1].Members) == 0 {
		// The key of the queue was lost. What a pass over it had left means nothing, and may go the second time.
		free = append(free, "scan", "mark")
	}
	first.State, second.State = slices.Clone(first.State), slices.Clone(second.State)
	first.State[0].Members, second.State[0].Members = maps.Clone(first.lock()), maps.Clone(second.lock())
	if first.calmed(second) {
		first = first.calm() // What is usual does not look after suspects.
	}
	for _, field := range free {
		delete(first.lock(), field)
		delete(second.lock(), field)
	}
	if a, b := first.text(), second.text(); a != b {
		return fmt.Errorf("  the keys hold\n%s\n  after once\n%s", b, a)
	}
	if len(one.Grants) > 0 && names(r, one.Grants[0].Ticket) && !slices.Equal(one.Grants, two.Grants) {
		return fmt.Errorf("reports the grants %v, at first %v", two.Grants, one.Grants)
	}
	if one.Token != two.Token && two.Token != 0 && one.Token != 0 {
		return fmt.Errorf("token %d, at first %d", two.Token, one.Token)
	}
	if asks && one.Before() != two.Before() && one.Before() != wire.UnknownBefore {
		return fmt.Errorf("tells %q of the hold before, at first %q", two.Before(), one.Before())
	}
	if asks && (one.Status != two.Status || one.Until != two.Until || one.Place != two.Place || one.Arrival != two.Arrival) {
		return fmt.Errorf("answers\n  %s, at first\n  %s", stage.ReplyText(two), stage.ReplyText(one))
	}
	if _, ok := r.(Check); ok {
		for i, state := range one.States {
			state, place, _ := strings.Cut(state, " ")
			now := map[string]string{wire.StateGranted: wire.StateEarlier, wire.StateAgain: wire.StateQueued}[state]
			if now == "" {
				now = state
			}
			if now == wire.StateGone && strings.HasPrefix(two.States[i], wire.StateFull) {
				continue // It was queued, which its client did not know.
			}
			if strings.TrimSpace(now+" "+place) != two.States[i] {
				return fmt.Errorf("states %v, at first %v", two.States, one.States)
			}
		}
	}
	return nil
}
