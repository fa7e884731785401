package line

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Says is what a request says that matters to the queue.
type Says struct {
	Caller    string // its client, which is alive by definition (R5)
	Floor     int64
	Uncounted bool // subscribers are not counted

	// Of an ask.
	Ticket string
	Bound  *Bound
	// Of a check.
	Tickets []lua.Arrival
	Bounds  map[string]Bound
}

// Happened is one script that ran, as seen from outside.
type Happened struct {
	Says
	Reply          wire.Tuple
	Sent           []stage.Message
	Now            int64
	Before, After  stage.State // the hash, the queue, the suspects
	Hears          map[string]bool
	Muted, Blinded bool
	Scan           *Scan // the cursor before it
}

// QueueOf reads the queue of a state.
func QueueOf(s stage.State) []lua.Arrival {
	var queue []lua.Arrival
	for ticket := range s[1].Members {
		queue = append(queue, lua.Arrival{Ticket: ticket, Arrival: s[1].Number(ticket)})
	}
	slices.SortFunc(queue, Order)
	return queue
}

// Living reports whether a client can be granted: it calls, or is no suspect and is heard for.
func (h *Happened) Living(client string) bool {
	return client == h.Caller || !h.Suspect(client) && (h.Hears[client] || h.Uncounted || h.Blinded)
}

// Suspect reports whether a client is one.
func (h *Happened) Suspect(client string) bool {
	at, marked := h.Mark(client)
	return marked && at <= h.Now
}

// Mark is since when a client is a suspect; ahead if it was called and has until then to answer.
func (h *Happened) Mark(client string) (at int64, marked bool) {
	_, marked = h.After[2].Members[client]
	return h.After[2].Number(client), marked && h.After[0].Members["marked"] != ""
}

// Reached reports whether a pass looks at a ticket: up to the cursor of the pass before nobody was alive. But if the request
// names a ticket that stands there, the pass begins at the head again.
func (h *Happened) Reached(a lua.Arrival) bool {
	if h.Scan == nil || a.Arrival > h.Scan.Arrival {
		return true
	}
	if _, queued := h.Before[1].Members[h.Ticket]; queued && h.Before[1].Number(h.Ticket) <= h.Scan.Arrival {
		return true
	}
	return slices.ContainsFunc(h.Tickets, func(b lua.Arrival) bool { return b.Arrival <= h.Scan.Arrival })
}

// Dropped returns the tickets of a queue that have left it: only the dead do, unasked, and where it looks as if the server had
// lost its subscriptions nobody does before a mark has passed (R6). Who has what it wants or asks for too much leaves
// it too; grants: somebody was granted.
func (h *Happened) Dropped(queue []lua.Arrival, most int, grants bool, holds, excess func(ticket string) bool) (gone []string, err error) {
	silent, alive := map[string]bool{}, false
	for _, a := range queue {
		client := wire.TicketClient(a.Ticket)
		lives := h.Living(client)
		alive = alive || lives
		if !lives && !h.Suspect(client) {
			silent[client] = true
		}
		// What a check names of a deaf client leaves the queue.
		named := slices.ContainsFunc(h.Tickets, func(b lua.Arrival) bool { return a.Ticket == b.Ticket })
		if _, stays := h.After[1].Members[a.Ticket]; stays || holds(a.Ticket) || named {
			continue
		}
		gone = append(gone, a.Ticket)
		if _, ok := Read(a.Ticket); ok && lives && h.Reached(a) && !excess(a.Ticket) {
			return gone, fmt.Errorf("%s was dropped though it is alive", a.Ticket)
		}
	}
	switch mark := h.Before[0].Number("mark"); {
	case len(gone) > most:
		return gone, fmt.Errorf("%d tickets were dropped at once", len(gone))
	case len(gone) > 0 && !grants && !alive && len(silent) >= 2 && (mark == 0 || h.Now < mark):
		return gone, fmt.Errorf("%v were dropped although %d clients are silent and nobody is alive", gone, len(silent))
	}
	return gone, nil
}

// Placed holds the places and the arrival in a reply against the queue. All places are after the holder's.
func (h *Happened) Placed(held bool) error {
	queue := QueueOf(h.After)
	place := func(ticket string) int64 {
		rank := slices.IndexFunc(queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
		if rank >= 0 && held {
			rank++
		}
		return int64(rank)
	}
	if h.Ticket != "" && h.Reply.Status == wire.Waiting && h.Reply.Place >= 0 {
		if want := place(h.Ticket); want < 0 || h.Reply.Place != want {
			return fmt.Errorf("place %d in the reply, %d in the queue", h.Reply.Place, want)
		}
		if score := h.After[1].Members[h.Ticket]; score != stage.Decimal(h.Reply.Arrival) {
			return fmt.Errorf("arrival %d in the reply to %s, %s in the queue", h.Reply.Arrival, h.Ticket, score)
		}
	}
	for i, a := range h.Tickets {
		if i >= len(h.Reply.States) {
			break
		}
		kind, at, _ := strings.Cut(h.Reply.States[i], " ")
		queued := kind == wire.StateQueued || kind == wire.StateAgain
		if want := place(a.Ticket); queued != (want >= 0) || queued && at != strconv.FormatInt(want, 10) {
			return fmt.Errorf("%s is %q %s, its place is %d", a.Ticket, kind, at, want)
		}
	}
	return nil
}

// Room judges the room for tickets with a bound: who finds a full queue is told so, nobody else is, and it leaves nothing
// (I11). took: an arrival was given.
func (h *Happened) Room(took bool) error {
	r := room{looked: h.Before[0].Members["looked"], now: h.Now, alive: h.Living, before: QueueOf(h.Before), after: QueueOf(h.After)}
	switch {
	case h.Ticket != "":
		return r.asked(h.Ticket, h.Bound, h.Reply.Status == wire.Full, took)
	case len(h.Tickets) == 0:
		return nil
	}
	return r.checked(h.Tickets, h.Bounds, h.Reply.States)
}

var (
	number = regexp.MustCompile(`^[1-9][0-9]*$`)
	cursor = regexp.MustCompile(`^[0-9]+:[1-9][0-9]*:[a-z0-9]*$`)
)

// Numbered sees that what is stored is written in full: the notes, these fields of the hash, and all scores, except the
// score of none.
func (h *Happened) Numbered(none string, fields ...string) error {
	for _, field := range append(fields, "token", "high", "mark", "kept", "marked") {
		if value, ok := h.After[0].Members[field]; ok && !number.MatchString(value) {
			return fmt.Errorf("%s is stored as %q", field, value)
		}
	}
	if value, ok := h.After[0].Members["scan"]; ok && !cursor.MatchString(value) {
		return fmt.Errorf("scan is stored as %q", value)
	}
	for _, key := range h.After[1:] {
		for member, score := range key.Members {
			if !number.MatchString(score) && member != none {
				return fmt.Errorf("%s has the score %q", member, score)
			}
		}
	}
	return nil
}
