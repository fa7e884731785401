package permits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// queue is the queue when it was served: with what a request queued, without what ended.
func (h *happened) queue() []lua.Arrival {
	queue := queueOf(h.before)
	without := func(ticket string) {
		queue = slices.DeleteFunc(queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
	}
	with := func(a lua.Arrival) {
		if !slices.ContainsFunc(queue, func(b lua.Arrival) bool { return a.Ticket == b.Ticket }) {
			queue = append(queue, a)
		}
	}
	switch r := h.request.(type) {
	case End:
		without(r.Ticket)
	case Check:
		held := holdsOf(h.before)
		for i, a := range r.Tickets {
			holds := held[a.Ticket].until > h.now && len(h.after[3].Members) > 0
			if i < len(h.reply.States) && !holds && !strings.HasPrefix(h.reply.States[i], lua.StateExcess) {
				with(a)
			}
		}
	case Ask:
		if h.reply.Status == lua.Excess {
			without(r.Ticket)
		}
	}
	slices.SortFunc(queue, line.Order)
	return queue
}

// reached reports whether a pass looks at a ticket: up to the cursor of the pass before nobody was alive. But
// if the request names a ticket that stands there, the pass begins at the head again.
func (h *happened) reached(a lua.Arrival) bool {
	if h.scan == nil || a.Arrival > h.scan.Arrival {
		return true
	}
	var named []lua.Arrival
	switch r := h.request.(type) {
	case Ask:
		for _, b := range queueOf(h.before) {
			if b.Ticket == r.Ticket {
				named = append(named, b)
			}
		}
	case Check:
		named = r.Tickets
	}
	return slices.ContainsFunc(named, func(b lua.Arrival) bool { return b.Arrival <= h.scan.Arrival })
}

// order: who is granted was the first that is alive, or all ahead of it that are were granted too, or told that
// they ask for too much; and whoever asks gets ahead of nobody (I3).
func (h *happened) order() error {
	fresh, queue := h.fresh(), h.queue()
	limit := h.after[0].Number("limit")
	waited := map[string]bool{}
	var passed string
	for _, a := range queue {
		waited[a.Ticket] = true
		_, granted := fresh[a.Ticket]
		t, ok := line.Read(a.Ticket)
		switch {
		case granted && !h.alive(t.Client):
			return fmt.Errorf("%s was granted and is not alive", a.Ticket)
		case granted && passed != "" && !h.reply.Has(lua.Unwoken):
			return fmt.Errorf("%s was granted ahead of %s", a.Ticket, passed)
		case !granted && ok && t.Permits <= limit && h.reached(a) && h.alive(t.Client):
			if _, stays := h.after[1].Members[a.Ticket]; stays {
				passed = a.Ticket
			}
		}
	}
	for ticket, r := range fresh {
		ask, ok := h.request.(Ask)
		atOnce := len(h.after[1].Members) == 0 || r.phase == "r" // It was queued, as the first.
		if !waited[ticket] && (!ok || ask.Ticket != ticket || !atOnce) {
			return fmt.Errorf("%s was granted ahead of the queue", ticket)
		}
	}
	return nil
}

// serves reports whether a request serves the queue.
func (h *happened) serves() bool {
	if _, renews := h.request.(Renew); renews || h.reply.Status == lua.Late || h.reply.Status == lua.Mismatch {
		return false
	}
	return h.sound()
}

// busy: nothing stays free that the first who is alive could have (R3).
func (h *happened) busy() error {
	if !h.serves() || h.reply.Has(lua.More) || h.reply.Has(lua.Unwoken) {
		return nil
	}
	free := h.after[0].Number("limit") - h.after[0].Number("used")
	for i, a := range queueOf(h.after) {
		t, ok := line.Read(a.Ticket)
		if !ok || !h.reached(a) || !h.alive(t.Client) {
			continue
		}
		_, waited := h.before[1].Members[a.Ticket]
		if ask, asks := h.request.(Ask); asks && ask.Ticket == a.Ticket && !waited && i > 0 {
			continue // It came in behind a mark, or a cursor, where all are silent.
		}
		if t.Permits <= free {
			return fmt.Errorf("%d are free, and %s is alive", free, a.Ticket)
		}
		return nil
	}
	return nil
}

// dropped: only the dead leave the queue unasked, and where it looks as if the server had lost its
// subscriptions nobody does before a mark has passed (R6).
func (h *happened) dropped() error {
	fresh, limit := h.fresh(), h.after[0].Number("limit")
	named := map[string]bool{} // by a check: what it names of a deaf client leaves the queue
	if check, ok := h.request.(Check); ok {
		for _, a := range check.Tickets {
			named[a.Ticket] = true
		}
	}
	var gone []string
	silent, alive := map[string]bool{}, false
	for _, a := range h.queue() {
		t, ok := line.Read(a.Ticket)
		lives := h.alive(t.Client)
		alive = alive || lives
		if !lives && !h.suspect(t.Client) {
			silent[t.Client] = true
		}
		_, stays := h.after[1].Members[a.Ticket]
		if _, granted := fresh[a.Ticket]; stays || granted || named[a.Ticket] {
			continue
		}
		gone = append(gone, a.Ticket)
		if ok && lives && h.reached(a) && t.Permits <= limit {
			return fmt.Errorf("%s was dropped though it is alive", a.Ticket)
		}
	}
	switch mark := h.before[0].Number("mark"); {
	case len(gone) == 0:
	case len(gone) > line.Drops+line.Looks:
		return fmt.Errorf("%d tickets were dropped at once", len(gone))
	case len(fresh) == 0 && !alive && len(silent) >= 2 && (mark == 0 || h.now < mark):
		return fmt.Errorf("%v were dropped although %d clients are silent and nobody is alive", gone, len(silent))
	case h.request.Script() == lua.Semaphore.Renew || h.reply.Status == lua.Late || h.reply.Status == lua.Mismatch:
		return fmt.Errorf("%v were dropped", gone)
	}
	return nil
}

// placed: the places and the arrival in a reply are those in the queue.
func (h *happened) placed() error {
	queue := queueOf(h.after)
	place := func(ticket string) int {
		rank := slices.IndexFunc(queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
		if rank >= 0 && h.after[0].Number("used") > 0 {
			rank++
		}
		return rank
	}
	switch r := h.request.(type) {
	case Ask:
		if h.reply.Status != lua.Waiting || h.reply.Place < 0 {
			return nil
		}
		if h.reply.Place != int64(place(r.Ticket)) {
			return fmt.Errorf("place %d in the reply, %d in the queue", h.reply.Place, place(r.Ticket))
		}
		if score := h.after[1].Members[r.Ticket]; score != stage.Decimal(h.reply.Arrival) {
			return fmt.Errorf("arrival %d in the reply to %s, %s in the queue", h.reply.Arrival, r.Ticket, score)
		}
	case Check:
		for i, state := range h.reply.States {
			kind, at, _ := strings.Cut(state, " ")
			queued := kind == lua.StateQueued || kind == lua.StateAgain
			if want := place(r.Tickets[i].Ticket); queued != (want >= 0) || queued && at != strconv.Itoa(want) {
				return fmt.Errorf("%s is %q %s, its place is %d", r.Tickets[i].Ticket, kind, at, want)
			}
		}
	}
	return nil
}

// room: who finds a full queue is told so, nobody else is, and it leaves nothing (I11).
func (h *happened) room() error {
	r := line.Room{Looked: h.before[0].Members["looked"], Now: h.now, Alive: h.alive}
	r.Before, r.After = queueOf(h.before), queueOf(h.after)
	switch q := h.request.(type) {
	case Ask:
		return r.Asked(q.Ticket, q.Bound, h.reply.Status == lua.Full, h.before[0].Members["high"] != h.after[0].Members["high"])
	case Check:
		return r.Checked(q.Tickets, q.Bounds, h.reply.States)
	}
	return nil
}

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Semaphore.Ask, lua.Semaphore.End, lua.Semaphore.Renew, lua.Semaphore.Check, lua.Semaphore.Checks, lua.Semaphore.Force.Plain(),
	lua.Semaphore.Inspect, lua.Resize.Plain(), lua.Downgrade.Script,
}

var plays = stage.Play[step]{
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			p := newPlayer(s, fmt.Sprint(seed), h.locks, h.limit)
			if h.fixed {
				p.born = 0
			}
			h.Steps, p.seen = steps, seen
			return p.play(h)
		}
		return stage.History[step]{Start: h.Start(), Steps: h.Steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 2, 600, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 200) }

func FuzzPermits(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message G", "message S", "message F", "message W", "message X", "several grants in a reply",
		"several grants in a message", "grant with a note", "mark", "scan", "group", "looked together",
		"more by a newer client", "fewer by a newer client", "an older client states another number", "a resize outlives a newer client",
		"the first number after a resize",
		"looked together at a head that does not fit", "stays", "rests semaphore/end", "rests semaphore/ask",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Semaphore.Ask:    {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Excess, lua.Mismatch, lua.Full},
		lua.Semaphore.End:    {lua.Done, lua.Refused},
		lua.Semaphore.Renew:  {lua.Granted, lua.Refused, lua.Late},
		lua.Semaphore.Check:  {lua.Done, lua.Late},
		lua.Semaphore.Force:  {lua.Done, lua.Refused},
		lua.Resize.Script:    {lua.Done, lua.Mismatch},
		lua.Downgrade.Script: {lua.Granted, lua.Refused, lua.Late},
	})...)
	for _, flag := range []int{lua.More, lua.Suspected, lua.Stepped, lua.Handed, lua.Unwoken, lua.Uncounted, lua.Wanted, lua.Differs} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	for _, state := range []string{
		lua.StateQueued, lua.StateAgain, lua.StateGranted, lua.StateEarlier, lua.StateGone, lua.StateExcess, lua.StateFull,
	} {
		sights = append(sights, lua.Semaphore.Check.Name+" "+state)
	}
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		sights = append(sights, lua.Semaphore.End.Name+" "+state, lua.Semaphore.Renew.Name+" "+state)
	}
	return sights
}
