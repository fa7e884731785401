package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

var (
	redis  = server{installed, "redis-server", "Redis 7.0.15"}
	judged = evidence.Line{Test: "TestA", Holds: 10, Judged: 20}
)

const failedOutput = `=== RUN   TestA
=== RUN   TestB
=== RUN   TestB/x
=== NAME  TestB/y
    a_test.go:6: all is well
=== NAME  TestB/x
    a_test.go:7: 
        	Error Trace:	a_test.go:7
        	Error:      	Should be empty, but was [two | held]
        	Test:       	TestB/x
        	Messages:   	of one name
=== NAME  TestC
    a_test.go:8: 5 of 6
    a_test.go:9: waited in vain
=== NAME  TestA
    a_test.go:9: all is well
--- FAIL: TestB (0.01s)
    --- PASS: TestB/y (0.01s)
    --- FAIL: TestB/x (0.01s)
--- FAIL: TestC (0.01s)
--- PASS: TestA (0.02s)
FAIL
`

func newSummary() *summary {
	return &summary{began: time.Unix(1_800_000_000, 0), commit: "abc", parts: parts, load: []string{"1", "2"}}
}

func TestEachPartComesToEachServerInALapAndEarlyOnTheWay(t *testing.T) {
	t.Parallel()
	for all := 1; all <= 9; all++ {
		for n := 1; n <= len(parts); n++ {
			c := campaign{parts: parts[:n], servers: make([]server, all)}
			for i := range all {
				c.servers[i].name = strings.Repeat("s", i+1)
			}
			seen := map[string]int{}
			for i := range 2 * all * n {
				on, p, long := c.turn(i)
				require.Equal(t, i >= all*n, long)
				require.Equal(t, i/(all*n), seen[on.name+" "+p.name])
				seen[on.name+" "+p.name]++
			}
			require.Len(t, seen, all*n)
		}
	}
}

func TestACampaignWithALeastNumberOfAcquisitionsIsOnEachServerAndHasNoLongForm(t *testing.T) {
	t.Parallel()
	c := campaign{parts: parts[:2], servers: make([]server, 3)}
	require.True(t, c.goesOn(0, 0, 0))
	require.False(t, c.goesOn(1, 0, 0))
	c.least = 100
	require.True(t, c.goesOn(5, 100, time.Hour))
	require.False(t, c.goesOn(6, 100, time.Hour))
	require.True(t, c.goesOn(60, 99, time.Hour))
	for i := range 12 {
		_, _, long := c.turn(i)
		require.False(t, long)
	}
	c.least, c.long = 0, true
	_, _, long := c.turn(2)
	require.True(t, long)
}

func TestTestsThatCannotBeStartedEndACampaign(t *testing.T) {
	t.Parallel()
	c := campaign{folder: t.TempDir(), programs: map[string]string{"chaos": "nowhere"}}
	s := newSummary()
	require.ErrorContains(t, kit.Err(c.play(t.Context(), s, redis, parts[0], false)), "nowhere")
	require.Empty(t, s.failures)
}

func TestWhatFailsACampaign(t *testing.T) {
	t.Parallel()
	exit := errors.New("exit status 1")
	for what, c := range map[string]struct {
		lines  []evidence.Line
		output string
		ends   error
		test   string
		why    string
	}{
		"a test that failed":           {[]evidence.Line{judged}, failedOutput, exit, "TestB", "Should be empty, but was [two | held]; of one name"},
		"a case of the table":          {[]evidence.Line{judged}, "--- FAIL: TestFaults (0.1s)\n    --- FAIL: TestFaults/servers/S1_x (0.1s)\n        --- FAIL: TestFaults/servers/S1_x/y (0.1s)\n", exit, "servers/S1_x", ""},
		"a case that forgot to fail":   {[]evidence.Line{judged, {Test: "TestFaults/servers/S1_x/y", Holds: 2, Wrong: []string{"two hold"}}}, "", nil, "servers/S1_x", "two hold"},
		"tests that did not end":       {[]evidence.Line{judged}, "=== RUN   TestA\npanic: test timed out after 1h\n", exit, "all", "panic: test timed out after 1h exit status 1"},
		"an overlap":                   {[]evidence.Line{judged, {Test: "TestC", Holds: 2, Wrong: []string{"lock: 2 permits of 1 are held"}}}, "", nil, "TestC", "lock: 2 permits of 1 are held"},
		"what could not be judged":     {[]evidence.Line{judged, {Test: "TestC", Holds: 2, Wrong: []string{"lock: unknown: 2 operations could not be judged"}}}, "", nil, "TestC", "lock: unknown: 2 operations could not be judged"},
		"a recovery beyond its bound":  {[]evidence.Line{judged, {Test: "TestC/x", Recovery: "x", Took: 3 * time.Second, Bound: time.Second}}, "", nil, "TestC", "x: 3s, more than 1s"},
		"tests that have seen nothing": {nil, "", nil, "all", "nothing was judged"},
	} {
		s := newSummary()
		require.Equal(t, failure{c.test, c.why}, s.add(redis, parts[0], c.lines, []byte(c.output), c.ends)[0], what)
		require.Contains(t, s.text(), fmt.Sprintf("| failed cases | %d |", len(s.failures)), what)
	}
	s := newSummary()
	require.Equal(t, failure{"TestC", "waited in vain"}, s.add(redis, parts[0], []evidence.Line{judged}, []byte(failedOutput), exit)[1])
	s = newSummary()
	require.Empty(t, s.add(redis, parts[0], []evidence.Line{judged, {Test: "TestA", Recovery: "x", Took: time.Second, Bound: time.Second}}, []byte("=== RUN   TestA\n--- PASS: TestA (0.1s)\nPASS\n"), nil))
	require.Contains(t, s.text(), "| failed cases | 0 |")
}

func TestTestsOfADeploymentThatBrokeOffAreADifference(t *testing.T) {
	t.Parallel()
	r := run{cases: map[string]bool{"TestA": true}, passed: 1}
	require.NotContains(t, r.differences(), "did not end")
	r.err = errors.New("exit status 2")
	require.Contains(t, r.differences(), "; did not end: exit status 2")
	r.failed = []string{"TestB"}
	require.NotContains(t, r.differences(), "did not end", "that is why")
	require.Contains(t, r.differences(), "; fails: TestB")
}

// What the server in Go has seen counts for no other, but what is wrong there fails the campaign.
func TestWhatTheEmbeddedServerHasSeenIsNoWordAboutAnother(t *testing.T) {
	t.Parallel()
	const test = "TestALockInTrouble/miniredis"
	s := newSummary()
	seen := []evidence.Line{
		{Test: test, Holds: 5, Judged: 10}, {Test: test + "/x", Fault: "reply cut", N: 3},
		{Test: test, Recovery: "x", Took: 3 * time.Second, Bound: time.Second},
	}
	require.Equal(t, []failure{{"all", "nothing was judged"}}, s.add(redis, parts[0], seen, nil, nil))
	seen = append(seen, judged, evidence.Line{Test: "TestALockInTrouble/redis", Fault: "reply cut", N: 4})
	require.Empty(t, s.add(redis, parts[0], seen, nil, nil))
	require.Equal(t, []int{10, 20, 1, 4}, []int{s.holds, s.judged, s.histories, s.faults["reply cut"]})
	require.Equal(t, []int{10, 20}, []int{s.tallies[0].holds, s.tallies[0].judged})
	require.Empty(t, s.recoveries)
	seen[0].Wrong = []string{"lock: 2 permits of 1 are held"}
	require.Equal(t, []failure{{"TestALockInTrouble", seen[0].Wrong[0]}}, s.add(redis, parts[0], seen, nil, nil))
}

const emptyPage = "# A page\n\nWords.\n\n## The latest run\n\nOld words.\n"

func TestAFailedCaseStays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "failed.tsv")
	require.NoError(t, os.WriteFile(file, []byte(failedHead+"then\t123\tValkey 9\tsoak\tTestOld\tit; mended\n"), 0o600))
	s := newSummary()
	s.add(redis, parts[0], []evidence.Line{judged}, []byte(failedOutput), errors.New("exit status 1"))
	first := kit.Got(s.page(emptyPage))(t)
	require.NoError(t, s.record(file))
	later := newSummary()
	later.add(redis, parts[0], []evidence.Line{judged}, nil, nil)
	second := kit.Got(later.page(first))(t)
	require.NoError(t, later.record(file))
	table := string(kit.Got(os.ReadFile(file))(t))
	require.True(t, strings.HasPrefix(table, failedHead+"2027-01-15\tabc\tRedis 7.0.15\tclients\t"), table)
	require.Equal(t, 1, strings.Count(table, "\tTestB\tShould be empty, but was [two | held]; of one name\n"), table)
	require.True(t, strings.HasSuffix(table, "\tTestOld\tit; mended\n"), table)

	require.True(t, strings.HasPrefix(second, "# A page\n\nWords.\n\n## The latest run\n"))
	require.NotContains(t, second, "Old words")
	require.Contains(t, second, "| failed cases | 0 |")
	require.Contains(t, first, "\n10 acquisitions in all")
	require.Contains(t, second, "\n20 acquisitions in all")
	require.Len(t, rows(second, runsHead), 2)
	require.Regexp(t, `^\| 15 January 2027, .* \| abc \| .* \| 10 \| 2 \|$`, rows(second, runsHead)[1])
	require.Error(t, kit.Err(later.page("# Another page\n")))
	require.NoError(t, os.WriteFile(file, []byte("nothing\n"), 0o600))
	require.Error(t, s.record(file))
}

func TestFaultsAndRecoveriesAreCounted(t *testing.T) {
	t.Parallel()
	s := newSummary()
	lines := []evidence.Line{judged}
	for i := range 200 {
		lines = append(lines, evidence.Line{Test: "TestA", Recovery: "a restart", Took: time.Duration(200-i) * time.Millisecond, Bound: time.Second})
	}
	lines = append(lines, evidence.Line{Test: "TestA", Fault: "reply cut", N: 1200}, evidence.Line{Test: "TestA", Fault: "reply cut", N: 34})
	s.add(redis, parts[0], lines, nil, nil)
	s.missing = []string{"redis-9: pip cannot get it"}
	text := s.text()
	require.Contains(t, text, "| a restart | 200 | 101.0 ms | 199.0 ms | 200.0 ms | 1.00 s |")
	require.Contains(t, text, "reply cut 1,234.")
	require.Contains(t, text, "| Redis 7.0.15 | clients 1 | 10 | 0 |")
	require.Contains(t, text, "| redis-9: pip cannot get it | left out | | |")
}

const histories = "../../../docs/histories"

func TestTheHistoriesInTheTreeAreLegalAndDrawn(t *testing.T) {
	t.Parallel()
	files := kit.Got(filepath.Glob(histories + "/*.gz"))(t)
	require.NotEmpty(t, files)
	require.NoError(t, judgeFiles(io.Discard, files))
	page := kit.Got(os.ReadFile(histories + "/README.md"))(t)
	for _, file := range files {
		s := kit.Got(unpack(file))(t)
		require.NotEmpty(t, s.faults, file)
		picture := kit.Got(os.ReadFile(strings.TrimSuffix(file, ".jsonl.gz") + ".svg"))(t)
		require.Equal(t, string(picture), string(s.draw()), file)
		require.Contains(t, string(page), "("+filepath.Base(file)+")")
	}
}

// One holder of a real history is certain for a little longer than it was.
func TestAnOverlapPlantedInAHistoryIsFound(t *testing.T) {
	t.Parallel()
	files := kit.Got(filepath.Glob(histories + "/*.gz"))(t)
	h, _, _ := kit.Got(unpack(files[0]))(t).drawn()
	for i := range h.Holds {
		x := &h.Holds[i]
		x.Releasing += 5 * time.Millisecond
		x.Deadline = max(x.Deadline, x.Releasing)
		x.Released = judge.Never
	}
	text := kit.Got(json.Marshal(h))(t)
	bad := filepath.Join(t.TempDir(), "bad.jsonl.gz")
	require.NoError(t, pack(bad, []evidence.Line{{Test: "TestA", History: text}}))
	var said bytes.Buffer
	require.Error(t, judgeFiles(&said, []string{bad}))
	require.Contains(t, said.String(), "2 permits of 1 are held")
}

// A campaign of one case: from the server to the page, to a history that is judged again and to its picture.
func TestAShortCampaign(t *testing.T) {
	t.Chdir("../../..")
	folder := t.TempDir()
	page := filepath.Join(folder, "page.md")
	require.NoError(t, os.WriteFile(page, []byte(emptyPage), 0o600))
	failed := filepath.Join(folder, "failed.tsv")
	require.NoError(t, os.WriteFile(failed, []byte(failedHead), 0o600))
	c := campaign{run: "N3", page: page, failed: failed, folder: folder, histories: filepath.Join(folder, "histories")}
	require.NoError(t, c.start(t.Context(), "network,soak", []string{installed}))
	text := kit.Got(os.ReadFile(page))(t)
	require.Regexp(t, `\| acquisitions judged \| [1-9][0-9,]* \|`, string(text))
	require.Regexp(t, `message held up [1-9][0-9,]*[;.]`, string(text))
	require.Regexp(t, `\| every worker of the load has held again \| [1-9]`, string(text))
	files := kit.Got(filepath.Glob(filepath.Join(c.histories, "*.gz")))(t)
	require.Len(t, files, 1)
	require.NoError(t, judgeFiles(io.Discard, files))
	left := kit.Got(filepath.Glob(filepath.Join(folder, "*.jsonl")))(t)
	require.Empty(t, left, "evidence of what has passed is left")

	c.run = "none of these"
	require.ErrorContains(t, c.start(t.Context(), "", []string{installed}), "no test")
	require.ErrorContains(t, c.start(t.Context(), "nothing", nil), "there is no part")
}
