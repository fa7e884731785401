package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// happened is one script that ran, as seen from outside.
type happened struct {
	line.Happened
	request       Request
	before, after state
	back          int64 // by how much the clock is below the latest time of an earlier script
}

// judge holds what servers do against the invariants, whatever the model says.
type judge struct {
	highest int64 // token of all grants
	lost    bool  // the lock key was deleted since the last one
	latest  int64 // time of all scripts

	ending string // how the last hold ended, if it was not released; of which nobody was told
	told   string // what the present hold was told
}

// deleted notes that keys were deleted.
func (j *judge) deleted(lock bool) { j.lost = j.lost || lock }

// step judges one script.
func (j *judge) step(h happened) error {
	j.latest = max(j.latest, h.Now)
	h.back = j.latest - h.Now
	j.spent(h)
	return errors.Join(
		expiry(h), h.Numbered("", "until"), noticed(h), j.grant(h), h.owners(), h.order(), h.dropped(), h.messages(), h.answer(),
		h.untouched(), h.rests(), h.Placed(h.after.owner() != ""), h.Room(h.arrived()), h.forgotten(), h.told(), j.endings(h),
	)
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
	case Move:
		return line.Says{Caller: wire.TicketClient(r.To), Floor: r.Floor, Uncounted: r.Uncounted}
	}
	return line.Says{}
}

// held reports whether there was a hold when the script began, with time left.
func (h *happened) held() bool {
	return h.before.owner() != "" && h.before.number("until") > h.Now
}

// freed reports whether the request ended the hold.
func (h *happened) freed() bool {
	switch r := h.request.(type) {
	case End:
		token, owner := h.before.number("token"), h.before.owner()
		if wire.Rests(owner) && strings.HasPrefix(owner, resting(r.Ticket)) {
			return !r.Rests && r.Token == 0
		}
		return r.Ticket == owner && (r.Token == 0 || r.Token >= token && r.Token <= token+passesOf(owner))
	case Force, Bury:
		return h.Reply.Status == wire.Done
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
	return h.after.owner() != "" && h.after.number("token") != h.before.number("token") && !wire.Rests(h.after.owner())
}

// rests: a name that was to stay taken does so, whatever becomes of the hold, unless nobody has used it, or it is released by
// force; and no longer.
func (h *happened) rests() error {
	end, ends := h.request.(End)
	until := min(h.before.rests(), h.Now+h.before.least())
	over := until > h.Now && h.after.owner() != h.before.owner() && !h.moved()
	_, forced := h.request.(Force)
	kept := over && !(h.freed() && (forced || ends && !end.Rests))
	switch {
	case kept && (!wire.Rests(h.after.owner()) || h.after.number("until") != until):
		return fmt.Errorf("the name was to stay taken until %d, and is %q until %d", until, h.after.owner(), h.after.number("until"))
	case wire.Rests(h.after.owner()) && h.after.owner() != h.before.owner() && !kept:
		return fmt.Errorf("%s rests, and nobody wanted that", h.after.owner())
	case h.moved() && until > h.Now && h.after.rests() < until:
		return fmt.Errorf("moved, and the name stays taken until %d, not %d", h.after.rests(), until)
	}
	return nil
}

// ends is how the hold ends that there was before the script, as "how:token"; empty if it is released.
func (j *judge) ends(h happened) string {
	of := func(how string) string { return fmt.Sprintf("%s:%d", how, h.before.number("token")) }
	switch r := h.request.(type) {
	case End:
		switch {
		case h.freed() && r.How == wire.HowUnused:
			return j.told
		case h.freed() && r.How == "":
			return ""
		case h.freed():
			return of(r.How)
		}
	case Force:
		if h.freed() && h.Reply.States[0] == h.before.owner() {
			return of(wire.HowForced)
		}
	case Bury:
		if h.freed() && h.Reply.States[0] == h.before.owner() {
			return of(wire.HowDied)
		}
	case Move:
		switch {
		case h.moved() && lua.InTransit(r.From):
			return j.told
		case h.moved():
			return of(wire.HowHanded)
		}
	}
	return of(wire.HowExpired)
}

// endings: a hold is told how the hold before it ended, unless it was released.
func (j *judge) endings(h happened) error {
	owner, token := h.before.owner(), h.before.number("token")
	if token == 0 {
		j.ending = wire.UnknownBefore
	} else if owner != "" && !wire.Rests(owner) && (h.after.owner() != owner || h.after.number("token") != token) {
		j.ending = j.ends(h)
	}
	if !h.granted() {
		return nil
	}
	told := h.Reply.Before()
	for _, g := range h.Reply.Grants {
		told = g.Before
	}
	for _, s := range h.Sent {
		if m, err := wire.ParseMessage(s.Text); err == nil && len(m.Grants) > 0 {
			told = m.Grants[0].Before
		}
	}
	want := j.ending
	j.ending, j.told = "", h.after.told()
	if told != want {
		return fmt.Errorf("%s was told %q, and the hold before ended %q", h.after.owner(), told, want)
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
	for ticket := range h.Before[1].Members {
		if ticket != ended.Ticket {
			add(ticket, h.Before[1].Number(ticket))
		}
	}
	if c, ok := h.request.(Check); ok && h.Reply.Status != wire.Late {
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
	for i, key := range h.After {
		if key.Left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if h.after.pastLeft == stage.Forever {
		return errors.New("the history has no expiry")
	}
	if err := h.spare(); err != nil {
		return err
	}
	if rests := min(h.after.rests(), h.Now+h.after.least()); rests > h.Now && h.After[0].Left < rests-h.Now+44*second {
		return fmt.Errorf("the lock key lives for %d µs, the name stays taken for %d", h.After[0].Left, rests-h.Now)
	}
	if keeps := h.after.keeps(); keeps > h.Now && h.After[0].Left < keeps-h.Now+44*second {
		return fmt.Errorf("the lock key lives for %d µs, and is to be remembered for %d", h.After[0].Left, keeps-h.Now)
	}
	until, lease := h.after.number("until"), h.after.lease()
	if h.after.owner() == "" || until-h.Now > lease {
		return nil
	}
	if left := h.After[0].Left; left < until-h.Now+44*second {
		return fmt.Errorf("the lock key lives for %d µs, the hold for %d", left, until-h.Now)
	}
	return nil
}

// spare: the lock's key lives until its token is no longer ahead of the clock, since tokens begin at the clock where it is
// gone (I2); and from a grant or a release on not for much more than a minute after the last thing that needs it (I6). A
// clock that steps back prolongs it by that.
func (h *happened) spare() error {
	token, left := h.after.number("token"), h.After[0].Left
	if token == 0 {
		return nil
	}
	if ahead := token - h.Now; ahead < line.ForgedAhead && left < ahead+44*second {
		return fmt.Errorf("the lock key lives for %d µs, its token is ahead by %d", left, ahead)
	}
	need := max(h.Now, min(token, h.Now+line.ForgedAhead), h.Now+2*max(line.LongLook, int64(len(h.Before[1].Members)+1)*line.LookEach))
	if h.after.owner() != "" {
		lease := stage.Lease(h.after.owner())
		need = max(need, h.after.number("until"), h.after.rests(), h.Now+lease)
	}
	need = max(need, h.after.keeps())
	if !h.granted() && !h.freed() || left <= need-h.Now+line.MostKept+second+h.back {
		return nil
	}
	return fmt.Errorf("the lock key lives for %d µs, and is needed for %d", left, need-h.Now)
}

// noticed: where somebody waits the lock says so, unless its hash is lost.
func noticed(h happened) error {
	if len(h.After[1].Members) > 0 && h.after.lock()["token"] != "" && h.after.lock()["high"] == "" {
		return fmt.Errorf("%d wait, and the lock does not say so", len(h.After[1].Members))
	}
	return nil
}

// grant: tokens rise, and a grant lasts for what its ticket says (I2). Where the lock key is lost it is the
// time that makes them rise.
func (j *judge) grant(h happened) error {
	if !h.granted() {
		return nil
	}
	token, floor := h.after.number("token"), h.Floor
	rises := token > j.highest || j.lost && h.Now <= j.highest
	if !rises || token <= floor && floor < h.Now+line.ForgedAhead || token < h.Now {
		return fmt.Errorf("token %d after %d, floor %d, at %d", token, j.highest, floor, h.Now)
	}
	j.highest, j.lost = token, false
	lease := h.after.lease()
	if until := h.after.number("until"); until != h.Now+lease {
		return fmt.Errorf("granted at %d until %d, not for %d", h.Now, until, lease)
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

// owners: a hold with time left stays, and no owner is queued (I1).
func (h *happened) owners() error {
	if h.held() && !h.freed() && !h.moved() && (h.after.owner() != h.before.owner() || h.granted()) {
		return fmt.Errorf("%s held until %d, and at %d the owner is %q", h.before.owner(),
			h.before.number("until"), h.Now, h.after.owner())
	}
	if _, queued := h.After[1].Members[h.after.owner()]; queued {
		return fmt.Errorf("%s owns and is queued", h.after.owner())
	}
	return nil
}
