package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// orderSlack is how far apart two calls must be for their order to count where the server does not tell when it knew of
// the first. What a process records is when it called Lock, not when the server saw the call: between the two is less
// than this on one machine that is not busy, and the demo keeps calls much further apart. A process that is stopped
// between the two is overtaken by all who call meanwhile, so one such call proves nothing; of a lock without order many
// are. Where the server tells, as Redis does, the next process calls when the call before is known, and one is a fault.
const orderSlack = 5 * time.Millisecond

// What a dead process may cost the others where the server tells when it granted: of the cost there is, what is certain
// whatever the processes did meanwhile.
const (
	// deadWaiterCost: it is skipped by the script that grants. A grant that nobody takes would last twice as long.
	deadWaiterCost = time.Second
	// deadHolderCost is counted from the last end of its lease that it told: a renewal may have come to the server behind.
	deadHolderCost = demoLease/3 + time.Second
)

// evidence is all that a run of the demo left.
type evidence struct {
	calls []call
	lone  []string // complaints that belong to no call
	// counter is what the fenced counter said at the end: each hold raises it by one, without any other
	// protection than the lock.
	counter uint64
	// step is by how much the machine's clock was set during the run.
	step time.Duration
}

// verdict is what a run of the demo showed. The faults are sentences; each makes the run a failure.
type verdict struct {
	grants      int
	processes   int
	overlaps    []string // two held at once
	inversions  []string // calls were overtaken
	late        string   // the one call that was overtaken, if it was one: it may have been held up on its way
	falls       []string // a token that was not larger than those before
	counter     []string // a write that was refused or overwritten
	complaints  []string // a call that failed, a process that died, a clock that was set
	writes      int
	first, last uint64 // tokens
	largestWait time.Duration
	handOffs    []time.Duration // from a release to the next hold, where somebody waited; sorted
	deaths      []death
	costly      []string // a death that cost more than it may
}

// death is a process that was killed in the middle of a call, and what it cost the others.
type death struct {
	process string
	held    bool          // it held the lock, else it waited
	by      string        // who held next, or went past it; empty if nobody did
	cost    time.Duration // from the end of its lease, or of the hold before, to that
	certain time.Duration // what of it the server vouches for; 0 where it does not tell
}

// ok tells whether the run showed no fault.
func (v verdict) ok() bool {
	return len(v.overlaps)+len(v.inversions)+len(v.falls)+len(v.counter)+len(v.complaints)+len(v.costly) == 0
}

// judge looks for everything that a fair lock must not do.
func judge(e evidence) verdict {
	holds := slices.DeleteFunc(slices.Clone(e.calls), func(c call) bool { return !c.isHold() })
	slices.SortStableFunc(holds, func(a, b call) int { return a.acquired.Compare(b.acquired) })

	v := verdict{grants: len(holds), processes: processes(holds)}
	v.overlaps = overlaps(holds)
	var certain bool
	if v.inversions, certain = inversions(e.calls); len(v.inversions) == 1 && !certain {
		v.late, v.inversions = v.inversions[0], nil
	}
	v.falls = falls(holds)
	v.writes, v.counter = writes(holds, e.counter)
	v.complaints = append(slices.Clone(e.lone), failures(e.calls)...)
	if e.step.Abs() > orderSlack {
		v.complaints = append(v.complaints, fmt.Sprintf("the machine's clock was set by %v during the run: its times prove nothing", e.step))
	}
	if len(holds) == 0 {
		v.complaints = append(v.complaints, "nobody ever held the lock")
	} else {
		v.first, v.last = holds[0].token, holds[len(holds)-1].token
	}
	for _, h := range holds {
		v.largestWait = max(v.largestWait, h.acquired.Sub(h.called))
	}
	v.handOffs = handOffs(holds)
	v.deaths = deaths(e.calls, holds)
	for _, d := range v.deaths {
		if limit := d.limit(); d.certain > limit {
			v.costly = append(v.costly, fmt.Sprintf("%s was dead, and cost the others %s at the least: more than %s", d.process, tty.Short(d.certain), tty.Short(limit)))
		}
	}
	return v
}

func processes(holds []call) int {
	seen := map[string]bool{}
	for _, h := range holds {
		seen[h.process] = true
	}
	return len(seen)
}

// overlaps compares each hold with the one before it that ends last.
func overlaps(holds []call) (found []string) {
	for i, last := 1, 0; i < len(holds); i++ {
		if over := holds[last].end().Sub(holds[i].acquired); over > 0 {
			found = append(found, fmt.Sprintf("%s held by token %d while %s held by token %d, for %v",
				holds[i].process, holds[i].token, holds[last].process, holds[last].token, over))
		}
		if holds[i].end().After(holds[last].end()) {
			last = i
		}
	}
	return found
}

// inversions has a sentence for each call that was overtaken by one that was made later, and tells whether one of these
// is beyond doubt: the server knew of it by then, or it never held. The calls of killed processes do not count.
func inversions(calls []call) (found []string, certain bool) {
	for _, early := range calls {
		by, sure := "", !early.isHold()
		for _, late := range calls {
			if early.isDead() || late.isDead() || !late.isHold() || early.isHold() && !late.acquired.Before(early.acquired) {
				continue
			}
			known := !early.placed.IsZero() && !late.called.Before(early.placed)
			if known || early.placed.IsZero() && late.called.Sub(early.called) > orderSlack {
				by = fmt.Sprintf("%s called %v after %s and held before it (token %d)", late.process, late.called.Sub(early.called), early.process, late.token)
				sure = sure || known
			}
		}
		if by != "" {
			found, certain = append(found, by), certain || sure
		}
	}
	return found, certain
}

// falls finds tokens that are not larger than all before them.
func falls(holds []call) (found []string) {
	highest := uint64(0)
	for _, h := range holds {
		if h.token <= highest {
			found = append(found, fmt.Sprintf("%s held by token %d after token %d", h.process, h.token, highest))
		}
		highest = max(highest, h.token)
	}
	return found
}

// writes compares what the holds did to the counter with what it says. A process that was killed while
// it held may have raised it without saying so.
func writes(holds []call, counter uint64) (told int, found []string) {
	dead := 0
	for _, h := range holds {
		if h.wrote {
			told++
		} else if h.isDead() {
			dead++
		}
	}
	if counter < uint64(told) || counter > uint64(told+dead) {
		found = append(found, fmt.Sprintf("the counter says %d after %d writes", counter, told))
	}
	return told, found
}

// failures finds calls that went wrong without anybody having been killed.
func failures(calls []call) (found []string) {
	for _, c := range calls {
		switch {
		case c.isDead():
		case c.failed != "":
			found = append(found, c.process+" failed: "+c.failed)
		case c.lost:
			found = append(found, fmt.Sprintf("%s lost its hold by token %d", c.process, c.token))
		case !c.isHold():
			found = append(found, c.process+" called and never held")
		}
	}
	return found
}

// handOffs measures from each release to the next hold, where the next had been waiting by then.
func handOffs(holds []call) (spans []time.Duration) {
	for i := 1; i < len(holds); i++ {
		before := holds[i-1]
		if !before.ended.IsZero() && holds[i].called.Add(orderSlack).Before(before.ended) {
			spans = append(spans, holds[i].acquired.Sub(before.ended))
		}
	}
	slices.Sort(spans)
	return spans
}

// deaths finds what each killed process cost: a holder, the time from the end of its lease; a waiter, the
// time that passing it over took.
func deaths(calls, holds []call) (found []death) {
	for _, dead := range calls {
		if !dead.isDead() {
			continue
		}
		d := death{process: dead.process, held: dead.isHold()}
		for i, h := range holds {
			if d.held && h.acquired.After(dead.acquired) {
				d.took(h, dead.deadline, dead.deadline)
				break
			}
			if !d.held && i > 0 && h.called.After(dead.called) && h.acquired.After(dead.killed) {
				d.took(h, holds[i-1].end(), holds[i-1].freed)
				break
			}
		}
		found = append(found, d)
	}
	return found
}

// took notes who held next, and how long after what was in its way had gone, by what the processes say and by what the
// server vouches for: it granted no earlier than it says, and was free by then, if that is known.
func (d *death) took(next call, gone, free time.Time) {
	d.by, d.cost = next.process, next.acquired.Sub(gone)
	if next.granted.IsZero() || free.IsZero() {
		return
	}
	for _, since := range []time.Time{next.called, next.placed} {
		if since.After(free) {
			free = since // It was not there to be served.
		}
	}
	d.certain = max(0, next.granted.Sub(free))
}

// limit is what the death may cost.
func (d death) limit() time.Duration {
	if d.held {
		return deadHolderCost
	}
	return deadWaiterCost
}
