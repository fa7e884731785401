package permits

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// happened is one script that ran, as seen from outside.
type happened struct {
	line.Happened
	request Request
}

// judge holds what servers do against the invariants, whatever the model says.
type judge struct {
	highest int64 // token of all grants
	lost    bool  // the lock key was lost since the last one
	gone    bool  // a key without which holds are forgotten was lost since they were last looked at

	did map[string]bool // by the last script, to know that histories reach it
}

// step judges one script.
func (j *judge) step(h happened) error {
	err := errors.Join(
		expiry(h), h.Numbered(guard, "limit", "stated", "born", "group"), h.adds(), j.tokens(h), h.capacity(), j.stays(h), h.order(), h.busy(), h.dropped(), h.messages(),
		h.answer(), h.untold(), h.untouched(), h.Placed(h.After[0].Number("used") > 0),
		h.Room(h.arrived()), j.counts(h), h.noticed(),
	)
	if h.sound() {
		j.gone = false
	}
	return err
}

// noticed: where somebody waits the lock says so, unless its hash is lost.
func (h *happened) noticed() error {
	if waiting := len(h.After[1].Members); waiting > 0 && h.After[0].Members["limit"] != "" && h.After[0].Members["high"] == "" {
		return fmt.Errorf("%d wait, and the lock does not say so", waiting)
	}
	return nil
}

// counts: the newest client's number counts, once it differs from the number of the newest before it; a resize counts
// until then. Nobody may change what was stated without a time, and a client that states a time is never refused.
func (j *judge) counts(h happened) error {
	j.did = map[string]bool{}
	was, is := func(field string) int64 { return h.Before[0].Number(field) }, func(field string) int64 { return h.After[0].Number(field) }
	want, stated := was("limit"), was("stated")
	fixed := stated != 0 && was("born") == 0
	var states, born int64
	switch r := h.request.(type) {
	case Ask:
		states, born = r.Limit, r.Born
	case Check:
		if len(r.Tickets) > 0 {
			states, born = r.Limit, r.Born
		}
	case Resize:
		if want = r.Permits; fixed {
			want = was("limit")
		}
	}
	if refused := h.Reply.Status == wire.Mismatch; refused && (born != 0 || !fixed) {
		return errors.New("refused for what it states, which may change")
	}
	believed := func(at int64) int64 {
		if at > h.Now {
			return 0
		}
		return at
	}
	if h.Reply.Status == wire.Late || was("limit") == 0 || is("limit") == 0 {
		return nil
	}
	switch newer := believed(born) > believed(was("born")); {
	case born == 0 && states != 0 && stated == 0:
		want, stated = states, states
	case newer && stated == 0:
		stated, j.did["the first number after a resize"] = states, true
	case newer && states == stated:
		j.did["a resize outlives a newer client"] = want != stated
	case newer:
		j.did["more by a newer client"], j.did["fewer by a newer client"] = states > want, states < want
		want, stated = states, states
	case states != 0 && stated != 0 && states != stated:
		j.did["an older client states another number"] = true
	}
	if is("limit") != want || is("stated") != stated {
		return fmt.Errorf("there are %d permits, %d were stated, and it should be %d and %d", is("limit"), is("stated"), want, stated)
	}
	return nil
}

// record is a hold as the keys of a server have it.
type record struct {
	permits, token, lease, since, until int64
	phase                               string
	least                               int64 // ms
}

// holdsOf reads the holds of a state: those with a record.
func holdsOf(s stage.State) map[string]record {
	holds := map[string]record{}
	for field, value := range s[0].Members {
		f := strings.SplitN(value, ":", 6)
		if len(f) != 6 || !strings.Contains(field, ":") {
			continue
		}
		h := record{until: s[3].Number(field), phase: f[3]}
		for i, n := range map[int]*int64{0: &h.permits, 1: &h.token, 2: &h.lease, 4: &h.since} {
			*n, _ = strconv.ParseInt(f[i], 10, 64)
		}
		_, _ = fmt.Sscanf(f[5], "~%d~", &h.least)
		holds[field] = h
	}
	return holds
}

// says is what a request says that matters to the queue.
func says(r Request) line.Says {
	switch r := r.(type) {
	case Ask:
		return line.Says{Caller: wire.TicketClient(r.Ticket), Floor: r.Floor, Uncounted: r.Uncounted, Ticket: r.Ticket, Bound: r.Bound}
	case End:
		return line.Says{Caller: wire.TicketClient(r.Ticket), Floor: r.Floor, Uncounted: r.Uncounted}
	case Check:
		return line.Says{Caller: r.Client, Floor: r.Floor, Uncounted: r.Uncounted, Tickets: r.Tickets, Bounds: r.Bounds}
	case Bury:
		return line.Says{Floor: r.Floor, Uncounted: r.Uncounted}
	case Force:
		return line.Says{Floor: r.Floor, Uncounted: r.Uncounted}
	case Resize:
		return line.Says{Floor: r.Floor, Uncounted: r.Uncounted}
	case Downgrade:
		return line.Says{Caller: wire.TicketClient(r.Ticket), Floor: r.Floor, Uncounted: r.Uncounted}
	}
	return line.Says{}
}

// sound reports whether the keys were there, and none without the others.
func (h *happened) sound() bool { return whole(h.After) }

func whole(s stage.State) bool {
	_, guarded := s[3].Members[guard]
	return guarded && s[0].Members["limit"] != ""
}

// fresh are the holds that the script granted.
func (h *happened) fresh() map[string]record {
	before, fresh := holdsOf(h.Before), map[string]record{}
	for ticket, r := range holdsOf(h.After) {
		if wire.Rests(ticket) {
			continue // Nobody has it.
		}
		if old, there := before[ticket]; !there || old.since != r.since || old.token != r.token {
			fresh[ticket] = r
		}
	}
	return fresh
}

// expiry: every key expires, and those of the holds not before them (I6).
func expiry(h happened) error {
	for i, key := range h.After {
		if key.Left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if token, left := h.After[0].Number("token"), h.After[0].Left; token != 0 && token < h.Now+line.ForgedAhead && left < token-h.Now+44*stage.Second {
		return fmt.Errorf("the lock key lives for %d µs, its token is ahead by %d", left, token-h.Now)
	}
	if !h.sound() {
		return nil
	}
	resized := h.After[0].Members["limit"] != h.After[0].Members["stated"]
	if left := h.After[0].Left; resized && h.request.Script() == lua.Resize.Plain() && h.Reply.Status == wire.Done && left < resizedFor-stage.Second {
		return fmt.Errorf("the limit that was set is forgotten in %d µs", left)
	}
	for ticket, r := range holdsOf(h.After) {
		if r.until-h.Now > r.lease {
			continue // The clock stepped back, and nobody has looked.
		}
		if left := min(h.After[0].Left, h.After[3].Left); left < r.until-h.Now+44*stage.Second {
			return fmt.Errorf("the keys live for %d µs, the hold of %s for %d", left, ticket, r.until-h.Now)
		}
	}
	return nil
}

// adds: the permits that are held are those of the holds, and each hold has an end.
func (h *happened) adds() error {
	if !h.sound() {
		return nil
	}
	var used int64
	holds := holdsOf(h.After)
	for ticket, r := range holds {
		used += r.permits
		if r.until == 0 {
			return fmt.Errorf("%s holds without an end", ticket)
		}
	}
	if said := h.After[0].Members["used"]; said != stage.Decimal(used) {
		return fmt.Errorf("%d permits are held, and the lock says %q", used, said)
	}
	if n := len(h.After[3].Members) - 1; n != len(holds) {
		return fmt.Errorf("%d holds, and %d ends of them", len(holds), n)
	}
	return nil
}

// tokens rise, but readers share one with readers that hold, and a grant lasts for what its ticket says (I2).
// Where the lock key is lost it is the time that makes them rise.
func (j *judge) tokens(h happened) error {
	given := map[int64]byte{}
	before, highest := holdsOf(h.Before), j.highest
	if j.lost {
		highest = 0
	}
	for ticket, r := range h.fresh() {
		t, _ := line.Read(ticket)
		rises := r.token > j.highest || j.lost && h.Now <= j.highest
		if kind, there := given[r.token]; there && (kind != wire.Read || t.Kind != wire.Read) {
			return fmt.Errorf("%s was given token %d, and so was another", ticket, r.token)
		}
		together := len(before) > 0 && h.Before[0].Number("group") == r.token
		for other, o := range before {
			was, _ := line.Read(other)
			together = together || was.Kind == wire.Read && o.token == r.token
		}
		shares := t.Kind == wire.Read && together && r.token >= j.highest
		forged := h.Floor >= h.Now+line.ForgedAhead
		if !shares && (!rises || r.token < h.Now) || r.token <= h.Floor && !forged && !(shares && r.token == h.Floor) {
			return fmt.Errorf("%s was given token %d after %d, floor %d, at %d", ticket, r.token, j.highest, h.Floor, h.Now)
		}
		given[r.token] = t.Kind
		highest = max(highest, r.token)
		lease := t.Lease
		if r.phase == "g" || r.phase == "r" {
			lease = min(lease, t.Grant)
		}
		if r.until != h.Now+lease || r.lease != lease {
			return fmt.Errorf("%s was granted at %d until %d, not for %d", ticket, h.Now, r.until, lease)
		}
		if ask, ok := h.request.(Ask); r.permits != t.Permits && !(ok && ask.Mode == wire.Drain) {
			return fmt.Errorf("%s was given %d permits", ticket, r.permits)
		}
	}
	if len(given) > 0 {
		j.lost, j.highest = false, highest
	}
	return nil
}

// capacity: a script that grants leaves no more held than there is, and no writer together with others (I1).
func (h *happened) capacity() error {
	if len(h.fresh()) == 0 {
		return nil
	}
	limit := h.After[0].Number("limit")
	var used int64
	holds := holdsOf(h.After)
	for ticket, r := range holds {
		used += r.permits
		if t, _ := line.Read(ticket); t.Kind == wire.Write && r.permits > 1 && len(holds) > 1 {
			return fmt.Errorf("%s writes together with %d others", ticket, len(holds)-1)
		}
	}
	if used > limit {
		return fmt.Errorf("%d permits are held of %d", used, limit)
	}
	return nil
}

// stays: a hold with time left stays until its client or an operator ends it, with its token (I1).
func (j *judge) stays(h happened) error {
	after := holdsOf(h.After)
	for ticket, r := range holdsOf(h.Before) {
		now, there := after[ticket]
		if j.gone || r.until <= h.Now || there && now.token == r.token {
			continue
		}
		if end, ok := h.request.(End); ok && end.Ticket == ticket && (end.Token == 0 || end.Token == r.token) {
			continue
		}
		if end, ok := h.request.(End); ok && resting(end.Ticket) == ticket && end.Token == 0 && !end.Rests {
			continue
		}
		if force, ok := h.request.(Force); ok && force.Ticket == ticket {
			continue
		}
		if bury, ok := h.request.(Bury); ok && bury.Client == wire.TicketClient(ticket) && !wire.Rests(ticket) {
			continue
		}
		return fmt.Errorf("%s held until %d, and does not at %d", ticket, r.until, h.Now)
	}
	return j.rests(h, after)
}

// rests: permits that were to stay taken do so, whatever becomes of their hold, unless nobody has used it, or it is released by
// force.
func (j *judge) rests(h happened, after map[string]record) error {
	end, ends := h.request.(End)
	force, forces := h.request.(Force)
	for ticket, r := range holdsOf(h.Before) {
		until := min(r.since, h.Now) + r.least*stage.Millisecond
		if now, there := after[ticket]; j.gone || r.least == 0 || until <= h.Now || there && now.token == r.token {
			continue
		}
		if ends && !end.Rests && end.Ticket == ticket || forces && force.Ticket == ticket {
			continue
		}
		if _, there := after[resting(ticket)]; !there {
			return fmt.Errorf("%s was to stay taken until %d, and is not at %d", ticket, until, h.Now)
		}
	}
	return nil
}

// toldOf is how the hold before one with a token ended, as a state has it; empty if it was released.
func toldOf(s stage.State, token int64) string {
	of, how, _ := strings.Cut(s[0].Members["previous"], ":")
	if of != stage.Decimal(token) {
		return ""
	}
	return how
}
