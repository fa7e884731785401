package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/bench/report/picture"
)

// results are those of a run with three locks, of which one is missing, and a work that has no rounds.
const results = "testdata/results.jsonl"

func sample(t *testing.T) bench.Report {
	t.Helper()
	r, err := report.Read(results)
	require.NoError(t, err)
	return r
}

func TestAPageHasTheFiguresAndTheLosses(t *testing.T) {
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, sample(t), report.MakeBench, "pictures"))
	page := b.String()
	for _, want := range []string{
		"commit abc123",
		"| headwaiter | 9,000 | 8,000 |",             // hand-offs with 2 and 8 clients
		"| rival | 3,000 (3.00 ×) | 400 (20.0 ×) |",  // and how many times as many, by the floors
		"| slow \\| odd | – | 100",                   // no rounds with two clients
		"not within 15s",                             // recovery
		"| W1 | rival | 12,000 | 10,000 | 1.20 |",    // where another is ahead
		"| gone | all | it is not built |",           // missing
		"| slow \\| odd | W4 C=2 | the floors moved", // and no rounds
		"![Hand-offs a second against clients](pictures/hand-offs.svg)",
	} {
		require.Contains(t, page, want)
	}
	for _, line := range strings.Split(page, "\n") {
		require.NotContains(t, line, "NaN")
		require.NotContains(t, line, "Inf")
	}
}

// On a restless machine some medians are of fewer rounds, and one try is no worst of several.
func TestAPageSaysWhatIsOfFewerRounds(t *testing.T) {
	r := sample(t)
	for i := range r.Results {
		switch result := &r.Results[i]; {
		case result.Contender == "rival" && result.ID == "W1":
			result.Rounds = 2
		case result.Contender == "rival" && result.Clients == 8:
			result.Rounds = 1
		}
	}
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, r, report.MakeBench, ""))
	for _, want := range []string{
		"medians of 5 rounds of 250ms, or of fewer where that is said",
		"| rival | 3,000 (3.00 ×) | 400 (20.0 ×), 1 round |", // hand-offs
		"| rival, 2 rounds | 12,000 |",                       // uncontended
		"| W1 | rival, 2 rounds | 12,000 | 10,000 | 1.20 |",  // where another is ahead
		"| rival, 1 round | W4 C=8 |",                        // fairness
		"| headwaiter | 1.00, one try |",                     // recovery
	} {
		require.Contains(t, b.String(), want)
	}
}

// A page refers to nothing that a browser would fetch.
func TestAPageNeedsNoNetwork(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, report.HTML(&b, sample(t)))
	page := b.String()
	before, rest, _ := strings.Cut(page, "<script>")
	script, after, _ := strings.Cut(rest, "</script>")
	require.Contains(t, script, "Licensed to the Apache Software Foundation")
	for _, part := range []string{before, after} {
		require.False(t, regexp.MustCompile(`(?:src|href)\s*=|@import|url\(`).MatchString(part), "something is to be fetched")
	}
	for _, c := range report.Charts(sample(t)) {
		require.Contains(t, after, `id="`+c.ID+`"`)
		require.Contains(t, after, `getElementById("`+c.ID+`")`)
	}
}

func TestThereIsAPictureForEachChart(t *testing.T) {
	dir := t.TempDir()
	charts := report.Charts(sample(t))
	require.Len(t, charts, 7)
	require.NoError(t, picture.Write(charts, dir))
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(dir, c.ID+".svg"))
		require.NoError(t, err)
		text := texts(t, svg)
		require.Contains(t, text, c.Title)
		for _, s := range c.Series {
			if c.Shape != report.Bars || len(c.Series) > 1 {
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

func TestHistogramsAreWrittenForTheTools(t *testing.T) {
	dir := t.TempDir()
	r := sample(t)
	r.Results[0].Arrival = 200 // Its name has a slash.
	require.NoError(t, report.Histograms(r, dir))
	text, err := os.ReadFile(filepath.Join(dir, "headwaiter-W1-200-s-acquire.hgrm"))
	require.NoError(t, err)
	require.Contains(t, string(text), "Percentile")
	require.Contains(t, string(text), "Total count    =            3")
}

// A lock that was measured on another day is on the page too.
func TestOfSeveralRunsAllLocksAreShown(t *testing.T) {
	later := filepath.Join(t.TempDir(), "later")
	require.NoError(t, os.WriteFile(later, []byte(`{"kind":"run","at":"2026-01-03T03:04:00Z","contenders":[{"name":"rival","about":"newer"}],"rounds":5}
`), 0o600))
	r, err := report.Read(results, later)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, report.Markdown(&b, r, report.MakeBench, ""))
	require.Contains(t, b.String(), "| rival | newer |")
	require.Contains(t, b.String(), "| headwaiter | 9,000 | 8,000 |")
}

func TestWhatIsNoResultIsRefused(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err := report.Read(empty)
	require.ErrorContains(t, err, "no run")
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("{\"kind\":\"run\"}\nnonsense\n"), 0o600))
	_, err = report.Read(broken)
	require.ErrorContains(t, err, "line 2")
	_, err = report.Read(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
