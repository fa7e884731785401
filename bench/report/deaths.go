package report

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/bench"
)

// deaths is what a holder costs that was killed, for each lock. Empty, if the run has none with an identity.
func (v view) deaths() string {
	t := Table{Heads: []string{"lock", "a killed holder costs", "from"}}
	identities := false
	for _, r := range v.Recoveries {
		if !r.OfHolders() || r.Link != "" {
			continue
		}
		lock, from, cost := r.Contender, "its death", r.Lease+time.Duration(r.Worst*1e3)
		switch r.Kind {
		case bench.Restarted:
			lock, from, cost = fmt.Sprintf("%s, identity, %s", lock, names(r.Names)), "the next `Dial`", cost-r.Lease
		case bench.Buried:
			lock, cost = fmt.Sprintf("%s, witness, %s", lock, names(r.Names)), cost-r.Lease
		case bench.DeadHolder:
			if r.Lease > 0 {
				from += ", if it has just renewed"
			}
		}
		identities = identities || r.Names > 0
		cell := lasting(cost)
		if !r.Within {
			cell = "more than " + lasting(r.Lease+r.Bound)
		}
		t.Rows = append(t.Rows, []string{lock, cell, from})
	}
	if !identities {
		return ""
	}
	return fmt.Sprintf("%s. The longest of a few tries.\n\n%s", v.sourceOf("bench-deaths"), table(t))
}

func names(n int) string {
	if n == 1 {
		return "one name"
	}
	return fmt.Sprintf("%d names", n)
}

// lasting writes a span as a reader wants it.
func lasting(d time.Duration) string {
	if d < time.Second {
		return Short(float64(d.Microseconds())/1e3) + " ms"
	}
	return Short(d.Seconds()) + " s"
}
