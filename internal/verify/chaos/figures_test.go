package chaos

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// long reports whether this is the long form.
func long() bool { return os.Getenv("CHAOS_LONG") != "" }

// either is how often something is done in the short form and in the long one.
func either(short, lengthy int) int {
	if long() {
		return lengthy
	}
	return short
}

// Spans that are measured. Each has a bound, which holds for every single case.
const (
	deadHolder   = "dead holder, after its lease"
	killedWaiter = "dead waiters, killed"
	stopped      = "dead waiters, stopped"
	lostMessage  = "lost message"
	killedEars   = "killed subscriber"
	quitter      = "waiter that gave up at the moment of the grant"
	restart      = "server restart, after it is back"
	handOff      = "hand-off at 50 ms round trip"
	unadopted    = "hold in transit, or of a dead holder, after its time"
	everyWorker  = "every worker of the load has held again"
)

var bounds = map[string]time.Duration{
	deadHolder: 200 * time.Millisecond, killedWaiter: 100 * time.Millisecond, stopped: 5 * time.Second,
	lostMessage: 4 * time.Second, killedEars: 200 * time.Millisecond, quitter: 100 * time.Millisecond,
	restart: time.Second, handOff: 100 * time.Millisecond, unadopted: 200 * time.Millisecond,
}

// mostOf is the bound of a single case of a kind: that of the kind, unless chance makes up most of it. Who lost its
// connection hears again within 200 ms, spread evenly, and then needs no longer than a hand-off may take.
func mostOf(kind string) time.Duration {
	if kind == killedEars {
		return 300 * time.Millisecond
	}
	return bounds[kind]
}

// span is a time that is measured.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return s.to.Sub(s.from) }

// without are the times that spans took, without what stood says of the time between two moments: that the machine had no
// turn for anything.
func without(spans []span, stood func(from, to time.Time) time.Duration) (took []time.Duration) {
	for _, s := range spans {
		took = append(took, max(0, s.took()-stood(s.from, s.to)))
	}
	return took
}

// overdue are those times that are longer than a bound.
func overdue(took []time.Duration, bound time.Duration) (found []time.Duration) {
	for _, d := range took {
		if d > bound {
			found = append(found, d)
		}
	}
	return found
}

// measured judges spans of a kind, and keeps them.
func (r *run) measured(kind string, spans []span) {
	r.Helper()
	took := without(spans, r.stalls.Within)
	sorted := slices.Sorted(slices.Values(took))
	r.Logf("%s: median %v, worst %v of %d; the machine stood still for %v",
		kind, sorted[len(sorted)/2], sorted[len(sorted)-1], len(spans), r.stalls.Within(spans[0].from, spans[len(spans)-1].to))
	require.LessOrEqual(r, sorted[len(sorted)/2], bounds[kind], "the median of %s: %v", kind, sorted)
	require.Empty(r, overdue(took, mostOf(kind)), "%s: more than %v", kind, mostOf(kind))
	for _, d := range took {
		evidence.Recovered(r, kind, d, mostOf(kind))
	}
}

func TestEachSpanHasItsBoundAndTheStallsOfTheMachineDoNotCount(t *testing.T) {
	t.Parallel()
	began := time.Now()
	spans := make([]span, 101)
	for i := range spans {
		spans[i] = span{began, began.Add(10 * time.Millisecond)}
	}
	none := func(time.Time, time.Time) time.Duration { return 0 }
	require.Empty(t, overdue(without(spans, none), 100*time.Millisecond))
	spans[50].to = began.Add(1900 * time.Millisecond)
	require.Len(t, overdue(without(spans, none), 100*time.Millisecond), 1, "one that waited for a look, among a hundred that did not")
	stood := without(spans, func(from, to time.Time) time.Duration { return max(0, to.Sub(from)-50*time.Millisecond) })
	require.Empty(t, overdue(stood, 100*time.Millisecond), "the machine stood still")
}
