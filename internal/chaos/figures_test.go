package chaos

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// figures are what all cases together have shown.
type figures struct {
	mu           sync.Mutex // guards the fields below
	tried        map[string]int
	survived     map[string]int
	injected     int
	violations   int
	acquisitions int
	lost         int // holds that were lost
	told         int // those of them whose holder never saw that it held after the server's end of its lease
	spans        map[string][]time.Duration
	counts       map[string]int
}

var total = figures{
	tried: map[string]int{}, survived: map[string]int{}, spans: map[string][]time.Duration{}, counts: map[string]int{},
}

// note changes the figures.
func note(change func(f *figures)) {
	total.mu.Lock()
	defer total.mu.Unlock()
	change(&total)
}

// Spans that are measured. Each has a bound for its median; a single one may be held up by whatever else the
// machine does, for which there is a bound far above.
const (
	deadHolder   = "dead holder, after its lease"
	killedWaiter = "dead waiters, killed"
	stopped      = "dead waiters, stopped"
	lostMessage  = "lost message"
	killedEars   = "killed subscriber"
	quitter      = "waiter that gave up at the moment of the grant"
	restart      = "server restart, after it is back"
	handOff      = "hand-off at 50 ms round trip"
)

var bounds = map[string]time.Duration{
	deadHolder: 200 * time.Millisecond, killedWaiter: 100 * time.Millisecond, stopped: 5 * time.Second,
	lostMessage: 4 * time.Second, killedEars: 200 * time.Millisecond, quitter: 100 * time.Millisecond,
	restart: time.Second, handOff: 100 * time.Millisecond,
}

// outlier is how far above its bound a single span may be.
const outlier = 2 * time.Second

// measured judges spans of a kind, and keeps them.
func measured(t testing.TB, kind string, spans []time.Duration) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(spans))
	median, worst := sorted[len(sorted)/2], sorted[len(sorted)-1]
	t.Logf("%s: median %v, worst %v of %d", kind, median, worst, len(spans))
	require.LessOrEqual(t, median, bounds[kind], "the median of %s: %v", kind, sorted)
	require.LessOrEqual(t, worst, bounds[kind]+outlier, "the worst of %s: %v", kind, sorted)
	note(func(f *figures) { f.spans[kind] = append(f.spans[kind], spans...) })
}

// print writes the figures.
func (f *figures) print(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tried, survived, rows := 0, 0, 0
	for row, n := range f.tried {
		tried += n
		survived += f.survived[row]
		rows++
	}
	fmt.Fprintf(w, "faults survived of faults tried   %d of %d cases (%d rows of the catalogue), %d single faults in them\n",
		survived, tried, rows, f.injected)
	fmt.Fprintf(w, "violations                        %d\n", f.violations)
	fmt.Fprintf(w, "acquisitions checked              %d\n", f.acquisitions)
	fmt.Fprintf(w, "holders told before their lease ended  %d of %d\n", f.told, f.lost)
	for _, kind := range []string{deadHolder, killedWaiter, stopped, lostMessage, killedEars, quitter, restart, handOff} {
		spans := slices.Sorted(slices.Values(f.spans[kind]))
		if n := len(spans); n > 0 {
			fmt.Fprintf(w, "recovery: %-48s median %v, worst %v of %d (bound %v)\n",
				kind, spans[n/2].Round(10*time.Microsecond), spans[n-1].Round(10*time.Microsecond), n, bounds[kind])
		}
	}
	var names []string
	for name := range f.counts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "%-60s %d\n", name, f.counts[name])
	}
}
