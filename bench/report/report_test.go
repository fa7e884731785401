package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/bench/report/picture"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// results are of a run with three locks, one of them missing, and a work that has no rounds.
const results = "testdata/results.jsonl"

func sample(t *testing.T) bench.Report {
	t.Helper()
	return must.Got(report.Read(results))(t)
}

func TestAPageHasTheFiguresAndTheLosses(t *testing.T) {
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, sample(t), "pictures"))
	page := b.String()
	for _, want := range []string{
		"commit abc123", "Two locks run in turn",
		"| rival | 0.83 (0.82 to 0.85), 10,000 : 12,000 | 3.00 (2.94 to 3.06), 9,000 : 3,000 | 20.0 (19.6 to 20.4), 8,000 : 400 |", // speeds
		"| slow \\| odd | – | – | level (0.98 to 1.02), 8,000 : 8,000 |",                                                           // two pairs were not measured
		"| W1 | rival | 0.83 (0.82 to 0.85) | 10,000 : 12,000 |",                                                                   // where another is ahead
		"| W4 C=8 | bare-protocol | 0.85 to 1.00 | leases, renewals, checks and repeats cost the client, hardly the server | 0.89 (0.87 to 0.91) | as expected |",
		"| rival | 1.86 (1.86 to 1.86), 130 : 70 |",                                                        // CPU
		"| W4 C=8 | 0.89 (0.87 to 0.91) | 1.10 (1.10 to 1.10) | 1.50 (1.50 to 1.50) |",                     // above the bare protocol
		"| headwaiter-etcd | etcd-mutex | W4 C=8 | 10.0 (9.80 to 10.2) | 0.50 (0.50 to 0.50) | 800 : 80 |", // in place of another
		"| R1 | reentrant | W1 | level (0.98 to 1.02) |",
		"| W3 | headwaiter-cohort-64 | W3 | 0.050 (0.049 to 0.051) |",
		"not within 15s",                             // recovery
		"| gone | all | it is not built |",           // missing
		"| slow \\| odd | W4 C=2 | the floors moved", // and no rounds
		"![Hand-offs of each lock for one of headwaiter](pictures/hand-offs.svg)",
	} {
		require.Contains(t, page, want)
	}
	for _, line := range strings.Split(page, "\n") {
		require.NotContains(t, line, "NaN")
		require.NotContains(t, line, "Inf")
	}
}

// The page of the documentation has what compares locks; the rest is in the report of the run.
func TestThePageOfTheDocumentationIsShort(t *testing.T) {
	var b strings.Builder
	require.NoError(t, report.Page(&b, sample(t), "pictures"))
	page := b.String()
	for _, want := range []string{"## Compared with other locks", "| W1 | rival | 0.83 (0.82 to 0.85) | 10,000 : 12,000 |", "(pictures/recovery.svg)", "| rival | ", "| gone | all | it is not built |", "bench-results/report.md"} {
		require.Contains(t, page, want)
	}
	for _, other := range []string{"## Uncontended", "not within 15s", "## Above the bare protocol", "\n\n\n"} {
		require.NotContains(t, page, other)
	}
	var ids []string
	for _, c := range report.Paged(sample(t)) {
		ids = append(ids, c.ID)
	}
	require.ElementsMatch(t, []string{"hand-offs", "fairness", "recovery"}, ids)
}

// A run without pairs has another page: each work next to its floors.
func TestAPageOfOneLockSaysHowItWasMeasured(t *testing.T) {
	r := sample(t)
	r.Compared = nil
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, r, ""))
	require.Contains(t, b.String(), "stands between two floors")
	require.NotContains(t, b.String(), "Two locks run")
	require.Contains(t, b.String(), "| W4 C=8 | rival | 800 | message | 0.08 |")
	require.Contains(t, b.String(), "| headwaiter | 1.00, one try |") // recovery: no worst of several
}

// No other lock has such a thing, so its figures stand in a table of their own.
func TestALockThatIsKeptHasATableOfItsOwn(t *testing.T) {
	r := sample(t)
	rename := func(name *string) {
		if *name == "rival" {
			*name = report.Kept
		}
	}
	for i := range r.Compared {
		rename(&r.Compared[i].Contender)
	}
	for i := range r.Results {
		rename(&r.Results[i].Contender)
	}
	for i := range r.Environment.Contenders {
		rename(&r.Environment.Contenders[i].Name)
	}
	r.Recoveries = nil
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, r, ""))
	_, own, ok := strings.Cut(b.String(), "## Kept between two uses")
	require.True(t, ok)
	require.Contains(t, own, "| W1 | 1.20 (1.18 to 1.22) |")
	require.Contains(t, own, "| 12,000 : 10,000 |")
	require.Equal(t, 1, strings.Count(b.String(), "| "+report.Kept+" |"), "in the list of all locks alone")
}

// The figures of other pages come from the same run.
func TestBlocksOfPagesAreFilled(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const around = "# A page\n\n<!-- bench: %s -->\n%s<!-- /bench -->\n\nbehind\n"
	for name, want := range map[string][]string{
		"engines": {"| `fairlock` | etcd-mutex | 20.0", "| 32.0 (31.4 to 32.6) |\n| contrib/etcdlock | etcd-mutex | – | 10.0 (9.80 to 10.2) |"},
		"reached": {"| W1, of the cycle floor | 1.00 | 0.85 | reached |", "| W4 C=8, of the cycle floor | 0.80 | 1.00 | missed |",
			"| W3 with a cohort of 64, to W3 without | 20.0 | 20.0 | reached |", "| W5, 1,000 dead waiters, ms | 3.0 | 20.0 | reached |"},
	} {
		require.NoError(t, os.WriteFile(page, fmt.Appendf(nil, around, name, "stale\n"), 0o600))
		for range 2 { // It can be filled again.
			require.NoError(t, report.Fill(sample(t), page))
			text := must.Got(os.ReadFile(page))(t)
			for _, part := range want {
				require.Contains(t, string(text), part)
			}
			require.NotContains(t, string(text), "stale")
			require.True(t, strings.HasSuffix(string(text), "<!-- /bench -->\n\nbehind\n"), string(text))
		}
	}
	bad := fmt.Sprintf(around, "unheard", "stale\n")
	require.NoError(t, os.WriteFile(page, []byte(bad), 0o600))
	require.ErrorContains(t, report.Fill(sample(t), page), `no block "unheard"`)
	require.Equal(t, bad, string(must.Got(os.ReadFile(page))(t)))
	require.NoError(t, os.WriteFile(page, []byte("nothing to fill"), 0o600))
	require.ErrorContains(t, report.Fill(sample(t), page), "no block for figures")
	require.ErrorIs(t, report.Fill(sample(t), page+".none"), os.ErrNotExist)
}

func TestThereIsAPictureForEachChart(t *testing.T) {
	dir := t.TempDir()
	charts := report.Charts(sample(t))
	require.Len(t, charts, 7)
	require.NoError(t, picture.Write(charts, dir))
	for _, c := range charts {
		svg := must.Got(os.ReadFile(filepath.Join(dir, c.ID+".svg")))(t)
		text := texts(t, svg)
		require.Contains(t, text, c.Title)
		for _, s := range c.Series {
			if c.Shape != report.Dots || len(c.Series) > 1 {
				require.Contains(t, text, s.Name, c.ID)
			}
		}
		require.NotContains(t, string(svg), "NaN", c.ID)
		require.NotContains(t, string(svg), "Inf", c.ID)
	}
}

// texts are those of an SVG, which must be well-formed.
func texts(t *testing.T, svg []byte) string {
	t.Helper()
	var found strings.Builder
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found.String()
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok {
			found.Write(data)
		}
	}
}

// A lock that was measured on another day is on the page too.
func TestOfSeveralRunsAllLocksAreShown(t *testing.T) {
	later := filepath.Join(t.TempDir(), "later")
	require.NoError(t, os.WriteFile(later, []byte(`{"kind":"run","at":"2026-01-03T03:04:00Z","contenders":[{"name":"rival","about":"newer"}],"rounds":5}
`), 0o600))
	r := must.Got(report.Read(results, later))(t)
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, r, ""))
	require.Contains(t, b.String(), "| rival | newer |")
	require.Contains(t, b.String(), "| rival | 0.83 (0.82 to 0.85), 10,000 : 12,000 |")
}

func TestWhatIsNoResultIsRefused(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.ErrorContains(t, must.Err(report.Read(empty)), "no run")
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("{\"kind\":\"run\"}\nnonsense\n"), 0o600))
	require.ErrorContains(t, must.Err(report.Read(broken)), "line 2")
	require.ErrorIs(t, must.Err(report.Read(filepath.Join(dir, "none"))), os.ErrNotExist)
}

// A lock that does nothing in most slices has no CPU a hand-off in them, and what is left gives no interval.
func TestTooFewRoundsForAnIntervalAreNoVerdict(t *testing.T) {
	require.Equal(t, "–", report.Times(bench.RatioOf([]float64{0.5, math.NaN(), 2, math.NaN()})))
	require.Equal(t, "2.00 (2.00 to 2.00)", report.Times(bench.RatioOf([]float64{2, 2, 2, 2, 2, 2, 2})))
}
