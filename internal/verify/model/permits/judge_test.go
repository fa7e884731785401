package permits

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// happened is one script that ran, as seen from outside.
type happened struct {
	request        Request
	reply          lua.Tuple
	sent           []stage.Message
	now            int64
	before, after  stage.State
	hears          map[string]bool
	muted, blinded bool
	scan           *line.Scan // the cursor before it
}

// judge holds what servers do against the invariants, whatever the model says.
type judge struct {
	highest int64 // token of all grants
	lost    bool  // the lock key was lost since the last one
	gone    bool  // a key without which holds are forgotten was lost since they were last looked at
	resized bool  // since the lock key was lost
}

// step judges one script.
func (j *judge) step(h happened) error {
	err := errors.Join(
		expiry(h), numbers(h), h.adds(), j.tokens(h), h.capacity(), j.stays(h), h.order(), h.busy(), h.dropped(), h.messages(),
		h.answer(), h.untold(), h.untouched(), h.placed(), h.room(), j.welcome(h),
	)
	if h.sound() {
		j.gone = false
	}
	return err
}

// welcome sees that a resize takes nobody down: from then on it does not matter what a client states.
func (j *judge) welcome(h happened) error {
	if h.reply.Status == lua.Mismatch && j.resized {
		return errors.New("refused for what it states, though the lock was resized")
	}
	_, resizes := h.request.(Resize)
	j.resized = j.resized || resizes && h.reply.Status == lua.Done
	return nil
}

// record is a hold as the keys of a server have it.
type record struct {
	permits, token, lease, since, until int64
	phase                               string
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
		holds[field] = h
	}
	return holds
}

// queueOf reads the queue of a state.
func queueOf(s stage.State) []lua.Arrival {
	var queue []lua.Arrival
	for ticket := range s[1].Members {
		queue = append(queue, lua.Arrival{Ticket: ticket, Arrival: s[1].Number(ticket)})
	}
	slices.SortFunc(queue, line.Order)
	return queue
}

// caller is the client of a request, which is alive by definition (R5).
func (h *happened) caller() string {
	if c, ok := h.request.(Check); ok {
		return c.Client
	}
	switch h.request.(type) {
	case Ask, End, Downgrade:
		return lua.TicketClient(h.request.Args()[0])
	}
	return ""
}

// says are what a request says of the floor, and whether subscribers are counted.
func (h *happened) says() (floor int64, uncounted bool) {
	switch r := h.request.(type) {
	case Ask:
		return r.Floor, r.Uncounted
	case End:
		return r.Floor, r.Uncounted
	case Check:
		return r.Floor, r.Uncounted
	case Force:
		return r.Floor, r.Uncounted
	case Resize:
		return r.Floor, r.Uncounted
	case Downgrade:
		return r.Floor, r.Uncounted
	}
	return 0, false
}

// alive reports whether a client can be granted: it calls, or is no suspect and is heard for.
func (h *happened) alive(client string) bool {
	_, uncounted := h.says()
	return client == h.caller() || !h.suspect(client) && (h.hears[client] || uncounted || h.blinded)
}

func (h *happened) suspect(client string) bool {
	_, marked := h.after[2].Members[client]
	return marked && h.after[2].Number(client) <= h.now && h.after[0].Members["marked"] != ""
}

// sound reports whether the keys were there, and none without the others.
func (h *happened) sound() bool { return whole(h.after) }

func whole(s stage.State) bool {
	_, guarded := s[3].Members[guard]
	return guarded && s[0].Members["limit"] != ""
}

// fresh are the holds that the script granted.
func (h *happened) fresh() map[string]record {
	before, fresh := holdsOf(h.before), map[string]record{}
	for ticket, r := range holdsOf(h.after) {
		if old, there := before[ticket]; !there || old.since != r.since || old.token != r.token {
			fresh[ticket] = r
		}
	}
	return fresh
}

// expiry: every key expires, and those of the holds not before them (I6).
func expiry(h happened) error {
	for i, key := range h.after {
		if key.Left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if token, left := h.after[0].Number("token"), h.after[0].Left; token != 0 && token < h.now+line.ForgedAhead && left < token-h.now+44*stage.Second {
		return fmt.Errorf("the lock key lives for %d µs, its token is ahead by %d", left, token-h.now)
	}
	if !h.sound() {
		return nil
	}
	resized := h.after[0].Members["resized"] != ""
	if left := h.after[0].Left; resized && h.request.Script() == lua.Resize.Script && h.reply.Status == lua.Done && left < resizedFor-stage.Second {
		return fmt.Errorf("the limit that was set is forgotten in %d µs", left)
	}
	for ticket, r := range holdsOf(h.after) {
		if r.until-h.now > r.lease {
			continue // The clock stepped back, and nobody has looked.
		}
		if left := min(h.after[0].Left, h.after[3].Left); left < r.until-h.now+44*stage.Second {
			return fmt.Errorf("the keys live for %d µs, the hold of %s for %d", left, ticket, r.until-h.now)
		}
	}
	return nil
}

var (
	number = regexp.MustCompile(`^[1-9][0-9]*$`)
	cursor = regexp.MustCompile(`^[0-9]+:[1-9][0-9]*:[a-z0-9]*$`)
)

// numbers: what is stored is written in full.
func numbers(h happened) error {
	for _, field := range []string{"limit", "stated", "token", "group", "high", "mark", "kept", "marked", "resized"} {
		if value, ok := h.after[0].Members[field]; ok && !number.MatchString(value) {
			return fmt.Errorf("%s is stored as %q", field, value)
		}
	}
	if value, ok := h.after[0].Members["scan"]; ok && !cursor.MatchString(value) {
		return fmt.Errorf("scan is stored as %q", value)
	}
	for i, key := range h.after[1:] {
		for member, score := range key.Members {
			if !number.MatchString(score) && (i != 2 || member != guard) {
				return fmt.Errorf("%s has the score %q", member, score)
			}
		}
	}
	return nil
}

// adds: the permits that are held are those of the holds, each of which has an end.
func (h *happened) adds() error {
	if !h.sound() {
		return nil
	}
	var used int64
	holds := holdsOf(h.after)
	for ticket, r := range holds {
		used += r.permits
		if r.until == 0 {
			return fmt.Errorf("%s holds without an end", ticket)
		}
	}
	if said := h.after[0].Members["used"]; said != stage.Decimal(used) {
		return fmt.Errorf("%d permits are held, and the lock says %q", used, said)
	}
	if n := len(h.after[3].Members) - 1; n != len(holds) {
		return fmt.Errorf("%d holds, and %d ends of them", len(holds), n)
	}
	return nil
}

// tokens rise, but readers share one with readers that hold, and a grant lasts for what its ticket says (I2).
// Where the lock key is lost it is the time that makes them rise.
func (j *judge) tokens(h happened) error {
	floor, _ := h.says()
	given := map[int64]byte{}
	before, highest := holdsOf(h.before), j.highest
	if j.lost {
		highest = 0
	}
	for ticket, r := range h.fresh() {
		t, _ := line.Read(ticket)
		rises := r.token > j.highest || j.lost && h.now <= j.highest
		if kind, there := given[r.token]; there && (kind != lua.Read || t.Kind != lua.Read) {
			return fmt.Errorf("%s was given token %d, and so was another", ticket, r.token)
		}
		beside := len(before) > 0 && h.before[0].Number("group") == r.token
		for other, o := range before {
			was, _ := line.Read(other)
			beside = beside || was.Kind == lua.Read && o.token == r.token
		}
		shares := t.Kind == lua.Read && beside && r.token >= j.highest
		forged := floor >= h.now+line.ForgedAhead
		if !shares && (!rises || r.token < h.now) || r.token <= floor && !forged && !(shares && r.token == floor) {
			return fmt.Errorf("%s was given token %d after %d, floor %d, at %d", ticket, r.token, j.highest, floor, h.now)
		}
		given[r.token] = t.Kind
		highest = max(highest, r.token)
		lease := t.Lease
		if r.phase == "g" || r.phase == "r" {
			lease = min(lease, t.Grant)
		}
		if r.until != h.now+lease || r.lease != lease {
			return fmt.Errorf("%s was granted at %d until %d, not for %d", ticket, h.now, r.until, lease)
		}
		if ask, ok := h.request.(Ask); r.permits != t.Permits && !(ok && ask.Mode == lua.Drain) {
			return fmt.Errorf("%s was given %d permits", ticket, r.permits)
		}
	}
	if len(given) > 0 {
		j.lost, j.highest = false, highest
	}
	return nil
}

// capacity: a script that grants leaves no more held than there is, and no writer beside others (I1).
func (h *happened) capacity() error {
	if len(h.fresh()) == 0 {
		return nil
	}
	limit := h.after[0].Number("limit")
	var used int64
	holds := holdsOf(h.after)
	for ticket, r := range holds {
		used += r.permits
		if t, _ := line.Read(ticket); t.Kind == lua.Write && r.permits > 1 && len(holds) > 1 {
			return fmt.Errorf("%s writes beside %d others", ticket, len(holds)-1)
		}
	}
	if used > limit {
		return fmt.Errorf("%d permits are held of %d", used, limit)
	}
	return nil
}

// stays: a hold with time left stays until its client or an operator ends it, with its token (I1).
func (j *judge) stays(h happened) error {
	after := holdsOf(h.after)
	for ticket, r := range holdsOf(h.before) {
		now, there := after[ticket]
		if j.gone || r.until <= h.now || there && now.token == r.token {
			continue
		}
		if end, ok := h.request.(End); ok && end.Ticket == ticket && (end.Token == 0 || end.Token == r.token) {
			continue
		}
		if force, ok := h.request.(Force); ok && force.Ticket == ticket {
			continue
		}
		return fmt.Errorf("%s held until %d, and does not at %d", ticket, r.until, h.now)
	}
	return nil
}
