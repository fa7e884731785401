package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// orderSlack is how far apart two calls must be for their order to count where the server does not tell when it knew of
// the first: on one machine that is not busy the way from a call to the server takes less, and the demo keeps calls much
// further apart. Where the server tells, as Redis does, the next process calls when the call before is known.
const orderSlack = 5 * time.Millisecond

// What a dead process may cost the others where the server tells when it granted: of the cost there is, what is certain
// whatever the processes did meanwhile.
const (
	// deadWaiterCost: it is skipped by the script that grants. A grant that nobody takes would last twice as long.
	deadWaiterCost = time.Second
	// deadHolderCost is counted from the last end of its lease that it told: a later renewal may have come to the server.
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
	late        []string // the one call that was overtaken, if it was one: it may have been held up on its way
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

// verdictOn looks for everything that a fair lock must not do.
func verdictOn(e evidence) verdict {
	holds := slices.DeleteFunc(slices.Clone(e.calls), func(c call) bool { return !c.isHold() })
	slices.SortStableFunc(holds, func(a, b call) int { return a.acquired.Compare(b.acquired) })

	v := verdict{grants: len(holds), processes: processes(holds)}
	seen := judged(e.calls)
	v.overlaps, v.falls = seen.Overlaps(1, nil), seen.Tokens(1, nil)
	overtaken := seen.Overtaken(orderSlack)
	for _, o := range overtaken {
		v.inversions = append(v.inversions, o.String())
	}
	if !judge.Proven(len(overtaken), len(e.calls)) && !slices.ContainsFunc(overtaken, judge.Overtaken.Known) {
		v.late, v.inversions = v.inversions, nil
	}
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

// String is a call in the words of the verdict.
func (c call) String() string {
	if !c.isHold() {
		return c.process
	}
	return fmt.Sprintf("%s (token %d)", c.process, c.token)
}

// judged are calls as the judge of holds wants them. A killed process does nothing any more, but its lease protects it to
// the end.
func judged(calls []call) (holds judge.Holds) {
	if len(calls) == 0 {
		return nil
	}
	begun := slices.MinFunc(calls, func(a, b call) int { return a.called.Compare(b.called) }).called
	since := func(t time.Time, never time.Duration) time.Duration {
		if t.IsZero() {
			return never
		}
		return t.Sub(begun)
	}
	for _, c := range calls {
		h := judge.Hold{
			Who: c, Called: since(c.called, 0), Placed: since(c.placed, 0), Got: since(c.acquired, judge.Never), Nothing: !c.isHold(),
			Dead: c.isDead() && !c.isHold(), Token: c.token, Permits: 1, Deadline: since(c.deadline, judge.Never), Releasing: judge.Never, Lost: judge.Never,
		}
		if h.Releasing = since(c.ended, judge.Never); c.lost {
			h.Releasing, h.Lost = judge.Never, h.Releasing
		}
		holds = append(holds, h)
	}
	return holds
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
