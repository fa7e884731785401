package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// networked is a run over wires of 0, 0.25 and 1 ms: this project's lock, which hands on in a round trip and 100 µs, one
// that needs three, and one that polls.
func networked() (r bench.Report) {
	r.Environment.At, r.Environment.Commit = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), "abc123"
	r.Environment.Contenders = []bench.Entry{{Name: "headwaiter"}, {Name: "slow"}, {Name: "poller", Polls: true}}
	for link, delay := range map[string]float64{"": 0, "0s": 0, "250us": 250, "1ms": 1000} {
		add := func(lock string, w bench.Work, us float64) {
			f := bench.Figures{Rate: 1e6 / us, Passed: 1e6 / us}
			if w.Clients > 1 {
				f.HandOff.P50, f.Server.Scripts = us, 2
			}
			w.Link = link
			r.Results = append(r.Results, bench.Result{Contender: lock, Work: w, Rounds: 7, Figures: f})
		}
		w1, w4 := bench.Work{ID: "W1", Clients: 1, Workers: 1}, bench.Work{ID: "W4", Clients: 8, Workers: 1}
		wire := 0.0
		if link != "" {
			wire = 50
		}
		add("headwaiter", w1, 200+4*delay)
		add("headwaiter", w4, 100+wire+2*delay)
		add("slow", w1, 300+8*delay)
		add("slow", w4, 200+6*delay)
		add("poller", w4, 40_000)
	}
	for _, lock := range []string{"headwaiter", "poller"} {
		r.Recoveries = append(r.Recoveries,
			bench.Recovery{Contender: lock, Scene: bench.Scene{Kind: bench.DeadWaiters, Waiters: 2, Bound: 15 * time.Second, Link: "1ms"}, Worst: 2500, Within: lock != "poller"},
			bench.Recovery{Contender: lock, Scene: bench.Scene{Kind: bench.DeadHolder, Link: "1ms"}, Worst: 20_000, Within: true, Lease: 10 * time.Second})
	}
	return r
}

func TestAPageOfANetworkCountsRoundTrips(t *testing.T) {
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, networked(), "pictures"))
	page := b.String()
	for _, want := range []string{
		"# Over a network", "![Round trips of each lock, where one takes 2ms](pictures/network.svg)",
		"| lock | round trips: cycle | hand-off | cycles/s, round trip 500µs | hand-offs/s, 500µs | cycles/s, round trip 2ms | hand-offs/s, 2ms | commands | dead waiters ms | dead holder s |",
		"| headwaiter | 2.0 | 1.0 | 833 | 1538 | 238 | 465 | 2.0 | 2: 2.50 | 10.0 |",
		"| slow | 4.0 | 3.0 | 435 | 588 | 120 | 161 | 2.0 | – | – |",
		"| poller | – | polls | – | 25 | – | 25 | 2.0 | over 15s | 10.0 |",
		"| headwaiter | W4 C=8 | 0, by the wire | 150 | 100 without it | 1.50 |",
		"| headwaiter | W4 C=8 | 2ms | 2,150 | 2,100 | 1.02 |",
	} {
		require.Contains(t, page, want)
	}
	charts := report.Charts(networked())
	require.Len(t, charts, 1)
	require.Equal(t, []string{"headwaiter", "slow", "poller"}, charts[0].Names)
	require.InDelta(t, 1.075, charts[0].Series[0].Points[0].Y, 0.001)
}

// A run over a network and one without fill each its own blocks of a page, and leave those of the other.
func TestEachKindOfRunFillsItsOwnBlocks(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const empty = "<!-- bench: reached -->\n<!-- /bench -->\n<!-- bench: network -->\n<!-- /bench -->\n"
	require.NoError(t, os.WriteFile(page, []byte(empty), 0o600))
	require.NoError(t, report.Fill(networked(), page))
	text := string(must.Got(os.ReadFile(page))(t))
	require.Contains(t, text, "where a round trip takes 2ms: headwaiter 465, slow 161. The most that are possible: 500.")
	require.NoError(t, report.Fill(sample(t), page))
	text = string(must.Got(os.ReadFile(page))(t))
	require.Contains(t, text, "headwaiter 465")
	require.Contains(t, text, "One run of `make bench`")
}
