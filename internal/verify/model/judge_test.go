package model

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
	before, after  state
	hears          map[string]bool
	muted, blinded bool
	scan           *line.Scan // the cursor before it
	back           int64      // by how much the clock is behind the latest time of an earlier script
}

// judge holds what servers do against the invariants, whatever the model says.
type judge struct {
	highest int64 // token of all grants
	lost    bool  // the lock key was deleted since the last one
	latest  int64 // time of all scripts
}

// deleted notes that keys were deleted.
func (j *judge) deleted(lock bool) { j.lost = j.lost || lock }

// step judges one script.
func (j *judge) step(h happened) error {
	j.latest = max(j.latest, h.now)
	h.back = j.latest - h.now
	j.spent(h)
	return errors.Join(
		expiry(h), numbers(h), noticed(h), j.grant(h), h.owners(), h.order(), h.dropped(), h.messages(), h.answer(),
		h.untouched(), h.rests(), h.placed(), h.room(), h.forgotten(), h.told(),
	)
}

// caller is the client of a request, which is alive by definition (R5).
func (h *happened) caller() string {
	switch r := h.request.(type) {
	case Ask:
		return lua.TicketClient(r.Ticket)
	case End:
		return lua.TicketClient(r.Ticket)
	case Check:
		return r.Client
	case Move:
		return lua.TicketClient(r.To)
	}
	return ""
}

func (h *happened) uncounted() bool {
	switch r := h.request.(type) {
	case Ask:
		return r.Uncounted
	case End:
		return r.Uncounted
	case Check:
		return r.Uncounted
	case Force:
		return r.Uncounted
	case Move:
		return r.Uncounted
	}
	return false
}

// alive reports whether a client can be granted: it calls, or is no suspect and is heard for.
func (h *happened) alive(client string) bool {
	if client == h.caller() {
		return true
	}
	return !h.suspect(client) && (h.hears[client] || h.uncounted() || h.blinded)
}

func (h *happened) suspect(client string) bool {
	at, marked := h.mark(client)
	return marked && at <= h.now
}

// mark is since when a client is a suspect; ahead if it was called and has until then to answer.
func (h *happened) mark(client string) (at int64, marked bool) {
	i := slices.IndexFunc(h.after.suspects, func(s scored) bool { return s.name == client })
	if i < 0 || h.after.lock["marked"] == "" {
		return 0, false
	}
	at, err := strconv.ParseInt(h.after.suspects[i].score, 10, 64)
	return at, err == nil
}

// held reports whether there was a hold when the script began, with time left.
func (h *happened) held() bool {
	return h.before.owner() != "" && h.before.number("until") > h.now
}

// freed reports whether the request ended the hold.
func (h *happened) freed() bool {
	switch r := h.request.(type) {
	case End:
		token, owner := h.before.number("token"), h.before.owner()
		if lua.Rests(owner) && strings.HasPrefix(owner, resting(r.Ticket)) {
			return !r.Rests && r.Token == 0
		}
		return r.Ticket == owner && (r.Token == 0 || r.Token >= token && r.Token <= token+passesOf(owner))
	case Force:
		return h.reply.Status == lua.Done
	}
	return false
}

// moved reports whether the request let a hold that lasted go to another ticket: by its token, or by the secret of one in
// transit (R11).
func (h *happened) moved() bool {
	r, ok := h.request.(Move)
	if !ok || !h.held() || r.From != h.before.owner() || r.Token != 0 && r.Token != h.before.number("token") {
		return false
	}
	return h.after.owner() == r.To && r.To != r.From && (!lua.InTransit(r.From) || r.genuine())
}

// granted reports whether the script granted the lock to somebody.
func (h *happened) granted() bool {
	return h.after.owner() != "" && h.after.number("token") != h.before.number("token") && !lua.Rests(h.after.owner())
}

// rests: a name that was to stay taken does so, whatever becomes of the hold, unless nobody has used it, or it is released by
// force; and no longer.
func (h *happened) rests() error {
	end, ends := h.request.(End)
	until := min(h.before.rests(), h.now+h.before.least())
	over := until > h.now && h.after.owner() != h.before.owner() && !h.moved()
	_, forced := h.request.(Force)
	kept := over && !(h.freed() && (forced || ends && !end.Rests))
	switch {
	case kept && (!lua.Rests(h.after.owner()) || h.after.number("until") != until):
		return fmt.Errorf("the name was to stay taken until %d, and is %q until %d", until, h.after.owner(), h.after.number("until"))
	case lua.Rests(h.after.owner()) && h.after.owner() != h.before.owner() && !kept:
		return fmt.Errorf("%s rests, and nobody wanted that", h.after.owner())
	case h.moved() && until > h.now && h.after.rests() < until:
		return fmt.Errorf("moved, and the name stays taken until %d, not %d", h.after.rests(), until)
	}
	return nil
}

// queue is the queue when it was served: with what a check queued again, without what ended.
func (h *happened) queue() []lua.Arrival {
	var queue []lua.Arrival
	known := map[string]bool{}
	add := func(ticket string, arrival int64) {
		if !known[ticket] {
			queue = append(queue, lua.Arrival{Ticket: ticket, Arrival: arrival})
			known[ticket] = true
		}
	}
	ended, _ := h.request.(End)
	for _, s := range h.before.queue {
		if s.name != ended.Ticket {
			arrival, _ := strconv.ParseInt(s.score, 10, 64)
			add(s.name, arrival)
		}
	}
	if c, ok := h.request.(Check); ok && h.reply.Status != lua.Late {
		for _, a := range c.Tickets {
			if !h.held() || a.Ticket != h.before.owner() {
				add(a.Ticket, a.Arrival)
			}
		}
	}
	slices.SortFunc(queue, line.Order)
	return queue
}

// expiry: every key expires, and the lock's not before the hold (I6).
func expiry(h happened) error {
	for i, left := range h.after.left {
		if left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if err := h.spare(); err != nil {
		return err
	}
	if rests := min(h.after.rests(), h.now+h.after.least()); rests > h.now && h.after.left[0] < rests-h.now+44*second {
		return fmt.Errorf("the lock key lives for %d µs, the name stays taken for %d", h.after.left[0], rests-h.now)
	}
	until, lease := h.after.number("until"), h.after.lease()
	if h.after.owner() == "" || until-h.now > lease {
		return nil
	}
	if left := h.after.left[0]; left < until-h.now+44*second {
		return fmt.Errorf("the lock key lives for %d µs, the hold for %d", left, until-h.now)
	}
	return nil
}

// spare: the lock's key lives until its token is no longer ahead of the clock, since tokens begin at the clock where it is
// gone (I2); and from a grant or a release on not for much more than a minute after the last thing that needs it (I6). A
// clock that steps back prolongs it by that.
func (h *happened) spare() error {
	token, left := h.after.number("token"), h.after.left[0]
	if token == 0 {
		return nil
	}
	if ahead := token - h.now; ahead < line.ForgedAhead && left < ahead+44*second {
		return fmt.Errorf("the lock key lives for %d µs, its token is ahead by %d", left, ahead)
	}
	need := max(h.now, min(token, h.now+line.ForgedAhead), h.now+2*max(line.LongLook, int64(len(h.before.queue)+1)*line.LookEach))
	if h.after.owner() != "" {
		lease := stage.Lease(h.after.owner())
		need = max(need, h.after.number("until"), h.after.rests(), h.now+lease)
	}
	if !h.granted() && !h.freed() || left <= need-h.now+line.MostKept+second+h.back {
		return nil
	}
	return fmt.Errorf("the lock key lives for %d µs, and is needed for %d", left, need-h.now)
}

var (
	number = regexp.MustCompile(`^[1-9][0-9]*$`)
	cursor = regexp.MustCompile(`^[0-9]+:[1-9][0-9]*:[a-z0-9]*$`)
)

// numbers: what is stored is written in full.
func numbers(h happened) error {
	for _, field := range []string{"until", "token", "high", "mark", "kept", "marked"} {
		if value, ok := h.after.lock[field]; ok && !number.MatchString(value) {
			return fmt.Errorf("%s is stored as %q", field, value)
		}
	}
	if value, ok := h.after.lock["scan"]; ok && !cursor.MatchString(value) {
		return fmt.Errorf("scan is stored as %q", value)
	}
	for _, s := range slices.Concat(h.after.queue, h.after.suspects) {
		if !number.MatchString(s.score) {
			return fmt.Errorf("%s has the score %q", s.name, s.score)
		}
	}
	return nil
}

// noticed: where somebody waits the lock says so, unless its hash is lost.
func noticed(h happened) error {
	if len(h.after.queue) > 0 && h.after.lock["token"] != "" && h.after.lock["high"] == "" {
		return fmt.Errorf("%d wait, and the lock does not say so", len(h.after.queue))
	}
	return nil
}

// grant: tokens rise, and a grant lasts for what its ticket says (I2). Where the lock key is lost it is the
// time that makes them rise.
func (j *judge) grant(h happened) error {
	if !h.granted() {
		return nil
	}
	token, floor := h.after.number("token"), h.floor()
	rises := token > j.highest || j.lost && h.now <= j.highest
	if !rises || token <= floor && floor < h.now+line.ForgedAhead || token < h.now {
		return fmt.Errorf("token %d after %d, floor %d, at %d", token, j.highest, floor, h.now)
	}
	j.highest, j.lost = token, false
	lease := h.after.lease()
	if until := h.after.number("until"); until != h.now+lease {
		return fmt.Errorf("granted at %d until %d, not for %d", h.now, until, lease)
	}
	return nil
}

// spent: of a hold that ended without its client's word all tokens may have been used.
func (j *judge) spent(h happened) {
	owner := h.before.owner()
	if owner == "" || owner == h.after.owner() {
		return
	}
	if end, ok := h.request.(End); !ok || !h.freed() {
		j.highest = max(j.highest, h.before.number("token")+passesOf(owner))
	} else {
		j.highest = max(j.highest, end.Token)
	}
}

func (h *happened) floor() int64 {
	switch r := h.request.(type) {
	case Ask:
		return r.Floor
	case End:
		return r.Floor
	case Check:
		return r.Floor
	case Force:
		return r.Floor
	case Move:
		return r.Floor
	}
	return 0
}

// owners: a hold with time left stays, and no owner is queued (I1).
func (h *happened) owners() error {
	if h.held() && !h.freed() && !h.moved() && (h.after.owner() != h.before.owner() || h.granted()) {
		return fmt.Errorf("%s held until %d, and at %d the owner is %q", h.before.owner(),
			h.before.number("until"), h.now, h.after.owner())
	}
	for _, s := range h.after.queue {
		if s.name == h.after.owner() {
			return fmt.Errorf("%s owns and is queued", s.name)
		}
	}
	return nil
}
