package barrier

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

type happened = stage.Happened[*Barrier]

// judge holds what servers do against what a barrier promises, whatever the model says. It knows of earlier
// generations and tickets only what it saw of them.
type judge struct {
	fates   map[int64]byte   // of generations, in this life of the keys
	came    map[string]int64 // tickets, by the generation in which they came
	index   map[string]int
	highest int64 // generation in any life
	// blurred: the keys were lost, and generations came again within some µs.
	blurred bool
	excused map[string]bool // tickets whose arrival the clock or lost keys hide
	ended   map[string]bool // tickets
}

func newJudge() *judge {
	return &judge{
		fates: map[int64]byte{}, came: map[string]int64{}, index: map[string]int{}, excused: map[string]bool{},
		ended: map[string]bool{},
	}
}

// excuse lets tickets come twice.
func (j *judge) excuse(ticket string) { j.excused[ticket] = true }

// known notes which tickets must not come again.
func (j *judge) known(h happened) error {
	if r, ok := h.Request.(End); ok {
		j.ended[r.Ticket] = true
	}
	return nil
}

// passed notes whether the keys are gone: then a new life begins.
func (j *judge) passed(s stage.State) {
	if s[Lock].Left == 0 {
		clear(j.fates)
		clear(j.came)
		clear(j.index)
	}
}

// step judges one script.
func (j *judge) step(h happened) error {
	for _, rule := range []func(happened) error{
		untouched, expires, written, j.known, j.arrivals, j.turns, j.messages, j.answers,
	} {
		if err := rule(h); err != nil {
			return err
		}
	}
	return nil
}

// untouched: what is late, or states another number of parties, changes nothing.
func untouched(h happened) error {
	quiet := h.Reply.Status == wire.Late || h.Reply.Status == wire.Mismatch
	for i := range h.Before {
		if quiet && h.After[i].Left != 0 && !maps.Equal(h.Before[i].Members, h.After[i].Members) {
			return fmt.Errorf("refused, but key %d was %v", i, h.Before[i].Members)
		}
	}
	return nil
}

// expires: every key expires, and with parties waiting not within a minute after their leases (I6).
func expires(h happened) error {
	for i, key := range h.After {
		if key.Left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if h.After[Lock].Left == 0 {
		return nil // What is left of the others is of no use.
	}
	for ticket := range h.After[Leases].Members {
		need := h.After[Leases].Number(ticket) - h.Now + stage.Minute
		for i, key := range h.After[:Last] {
			if key.Left < need-stage.Stall && h.Reply.Status != wire.Late && h.Reply.Status != wire.Mismatch {
				return fmt.Errorf("key %d lives for %d µs, needed for %d", i, key.Left, need)
			}
		}
	}
	return nil
}

var (
	number  = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	arrival = regexp.MustCompile(`^(0|[1-9][0-9]*) [1-9][0-9]* who of [a-z]$`)
)

// written: what is stored is written in full.
func written(h happened) error {
	for field, value := range h.After[Lock].Members {
		if field != "acting" && field != "past" && !number.MatchString(value) {
			return fmt.Errorf("%s is stored as %q", field, value)
		}
	}
	for _, key := range []int{Leases, Calls} {
		for member, score := range h.After[key].Members {
			if !number.MatchString(score) {
				return fmt.Errorf("%s has the score %q", member, score)
			}
		}
	}
	for _, key := range []int{Arrivals, Last} {
		for ticket, value := range h.After[key].Members {
			if !arrival.MatchString(value) {
				return fmt.Errorf("%s came as %q", ticket, value)
			}
		}
	}
	return nil
}

func indexOf(value string) int {
	text, _, _ := strings.Cut(value, " ")
	i, _ := strconv.Atoi(text)
	return i
}

// turned reports whether the script ended a generation and began another.
func turned(h happened) bool {
	before, after := h.Before[Lock].Number("generation"), h.After[Lock].Number("generation")
	return h.Before[Lock].Left != 0 && after != before && after != 0
}

// party is who has come in the generation that was the present one before the script, or that it began.
func party(h happened) map[string]string {
	if turned(h) {
		return h.After[Last].Members
	}
	if one := h.After[Lock].Members["past"]; h.Before[Lock].Left == 0 && one != "" {
		return h.After[Last].Members // A barrier of one, that is new.
	}
	return h.After[Arrivals].Members
}

// arrivals: at most one comes in a script, its own, once, to a generation that is not broken; the index is how
// many are to come.
func (j *judge) arrivals(h happened) error {
	ask, asks := h.Request.(Ask)
	before := h.Before[Arrivals].Members
	if h.Before[Lock].Left == 0 {
		before = nil
	}
	if h.After[Lock].Left == 0 {
		return nil
	}
	all := party(h)
	for ticket, value := range before {
		if got, ok := all[ticket]; ok && got != value || !ok && h.After[Arrivals].Left != 0 {
			return fmt.Errorf("%s came as %q and is %q", ticket, value, got)
		}
	}
	for ticket, value := range all {
		if before[ticket] != "" {
			continue
		}
		generation := h.Before[Lock].Number("generation")
		if h.Before[Lock].Left == 0 {
			generation = h.Now
			j.blurred = j.blurred || generation <= j.highest
		}
		switch _, again := j.came[ticket]; {
		case !asks || ticket != ask.Ticket || h.Now > ask.NotAfter:
			return fmt.Errorf("%s came unasked", ticket)
		case again && !j.excused[ticket]:
			return fmt.Errorf("%s comes again, to %d, after %d", ticket, generation, j.came[ticket])
		case j.ended[ticket] && !j.excused[ticket]:
			return fmt.Errorf("%s comes after its end", ticket)
		case h.Before[Lock].Members["broken"] != "":
			return fmt.Errorf("%s came to a barrier that is broken", ticket)
		case indexOf(value) != int(ask.Parties)-len(all):
			return fmt.Errorf("%s came as %q, the %d. of %d", ticket, value, len(all), ask.Parties)
		}
		j.came[ticket], j.index[ticket] = generation, indexOf(value)
	}
	return nil
}

// overdue reports whether the lease of a party has run out.
func overdue(h happened) bool {
	for ticket := range h.Before[Leases].Members {
		if min(h.Before[Leases].Number(ticket), h.Now+stage.Lease(ticket)) <= h.Now {
			return true
		}
	}
	return false
}

// damaged reports whether it is not certain who has come.
func damaged(h happened) bool {
	n := int(h.Before[Lock].Number("arrived"))
	return n != len(h.Before[Leases].Members) || n != len(h.Before[Arrivals].Members)
}

// turns: a generation trips with exactly the parties, alive and by the last of them; it is broken for a
// reason, and where there is one; a broken one stays so until a reset. Outcomes do not change.
func (j *judge) turns(h happened) error {
	b, a := h.Before[Lock], h.After[Lock]
	if a.Left == 0 || h.Reply.Status == wire.Late || h.Reply.Status == wire.Mismatch {
		return nil
	}
	generation := b.Number("generation")
	if b.Left == 0 {
		generation = j.first(h)
	}
	j.highest = max(j.highest, a.Number("generation"))
	fate := byte(0)
	if was := b.Members["broken"] != "" && b.Left != 0; was && !turned(h) && a.Members["broken"] == "" {
		return fmt.Errorf("it was broken, and is not")
	} else if !was && (turned(h) || b.Left == 0 && a.Members["past"] != "") {
		fate = a.Members["past"][0]
	} else if !was && a.Members["broken"] != "" {
		fate = broken
	} else if was && turned(h) {
		fate = broken
		if _, ok := h.Request.(Reset); !ok || a.Members["past"][0] != broken {
			return fmt.Errorf("a broken generation ended with %.1s", a.Members["past"])
		}
	}
	if turned(h) {
		past := a.Members["past"][:1] + b.Members["past"]
		if a.Number("generation") != generation+1 || a.Members["past"] != past[:min(len(past), outcomes)] {
			return fmt.Errorf("%d became %d, with the outcomes %s", generation, a.Number("generation"), a.Members["past"])
		}
	}
	if was := j.fates[generation]; was != 0 && fate != 0 && was != fate && !j.blurred {
		return fmt.Errorf("the outcome of %d was %c, is %c", generation, was, fate)
	}
	if must := b.Left != 0 && b.Members["broken"] == "" && (overdue(h) || damaged(h)); must && fate != broken {
		return fmt.Errorf("a party is dead or lost, and the barrier is not broken")
	}
	if fate == 0 {
		return nil
	}
	known := j.fates[generation] != 0
	j.fates[generation] = fate
	if fate == tripped {
		return trips(h)
	}
	if !known && !breaks(h) {
		return fmt.Errorf("%d was broken without a reason", generation)
	}
	return nil
}

// first is the generation with which a barrier began in this script.
func (j *judge) first(h happened) int64 { return h.After[Lock].Number("first") }

func trips(h happened) error {
	parties := int(h.After[Lock].Number("parties"))
	all := party(h)
	var indexes []int
	for _, value := range all {
		indexes = append(indexes, indexOf(value))
	}
	slices.Sort(indexes)
	for i, index := range indexes {
		if i != index {
			return fmt.Errorf("it tripped with the indexes %v", indexes)
		}
	}
	if len(all) != parties || h.Before[Lock].Left != 0 && (overdue(h) || damaged(h)) {
		return fmt.Errorf("it tripped with %v of %d", all, parties)
	}
	switch r := h.Request.(type) {
	case Ask:
		if !r.Action && indexOf(all[r.Ticket]) == 0 && h.Before[Arrivals].Members[r.Ticket] == "" {
			return nil
		}
	case Open:
		if r.OK && h.Before[Lock].Members["acting"] == r.Ticket {
			return nil
		}
	}
	return fmt.Errorf("it tripped by %v", h.Request)
}

// breaks reports whether there is a reason to break the present generation.
func breaks(h happened) bool {
	if overdue(h) || damaged(h) {
		return true
	}
	switch r := h.Request.(type) {
	case End:
		return h.Before[Arrivals].Members[r.Ticket] != "" && h.Reply.Status == wire.Done
	case Open:
		return !r.OK && h.Before[Lock].Members["acting"] == r.Ticket
	case Bury:
		return h.Reply.Status == wire.Done
	case Reset:
		return len(h.Before[Arrivals].Members) > 0
	}
	return false
}
