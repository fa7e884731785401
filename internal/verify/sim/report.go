package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Report tells a result as a failure, with what is needed to see it again.
func (r Result) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d violations\n", r.Plan.Seed, len(r.Violations))
	violations := slices.Compact(slices.SortedFunc(slices.Values(r.Violations), cmp.Compare))
	for _, v := range violations[:min(len(violations), 12)] {
		b.WriteString(v + "\n")
	}
	fmt.Fprintf(&b, "\nplay it again: %s\n\n", Replay(r.Plan))
	b.WriteString(r.Plan.String() + "\n")
	b.WriteString(r.history.String())
	return b.String()
}

// Replay is the command that plays a seed again, several times, because not every history of it is the same.
func Replay(p Plan) string {
	command := fmt.Sprintf("go test ./internal/verify/sim -run TestSeed$ -count=20 -sim.seed=%d", p.Seed)
	for _, k := range p.Only {
		command += " -sim.only=" + k.String()
	}
	if p.Storm > 1 {
		command += fmt.Sprintf(" -sim.storm=%d", p.Storm)
	}
	if p.Polls {
		command += " -sim.polls"
	}
	return command
}
