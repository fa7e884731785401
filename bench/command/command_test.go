package command

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/drivers"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// agentVariable makes the test's program an agent on a server; crowdedVariable makes its lock slower with each client.
const (
	agentVariable   = "HEADWAITER_BENCH_TEST_AGENT"
	crowdedVariable = "HEADWAITER_BENCH_TEST_CROWDED"
)

func TestMain(m *testing.M) {
	addr := os.Getenv(agentVariable)
	if addr == "" {
		os.Exit(m.Run())
	}
	d := driver(addr)
	if os.Getenv(crowdedVariable) != "" {
		d = crowded{d, new(int)}
	}
	if err := bench.ServeAgent(context.Background(), d, os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
}

func driver(addresses ...string) bench.Driver {
	return drivers.Headwaiter{Redis: rueidis.ClientOption{InitAddress: addresses}}
}

// tools are a lock of this project, or what is made of it.
func tools(change func(*bench.Contender)) Tools {
	return Tools{Contenders: func(_ context.Context, redis rueidis.ClientOption, _ []string) ([]bench.Contender, map[string]string, func(), error) {
		c := drivers.Contender(drivers.Headwaiter{Redis: redis}, 10*time.Second)
		c.Command = func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), agentVariable+"="+redis.InitAddress[0])
			return cmd
		}
		if change != nil {
			change(&c)
		}
		return []bench.Contender{c}, map[string]string{"other": "1.2.3"}, func() {}, nil
	}}
}

func runBench(t *testing.T, tools Tools, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), tools, args, &out, t.Output())
	return out.String(), err
}

// From the flags to the pages: all that a run leaves.
func TestARunLeavesItsPages(t *testing.T) {
	dir := t.TempDir()
	docs := filepath.Join(dir, "docs.md")
	out, err := runBench(t, tools(nil), "-work", "W1,W4,W7,R1", "-clients", "2", "-rounds", "1", "-slice", "30ms", "-crowd", "50", "-restless",
		"-processes", "-out", filepath.Join(dir, "out"), "-docs", docs)
	require.NoError(t, err)
	require.Contains(t, out, "W4 C=2")
	page := must.Got(os.ReadFile(docs))(t)
	require.Contains(t, string(page), "other 1.2.3")
	require.NotContains(t, string(page), "| headwaiter | 50 |", "the crowd is in the report alone")
	require.Contains(t, string(must.Got(os.ReadFile(filepath.Join(dir, "out/report.md")))(t)), "| headwaiter | 50 |")
	for _, name := range []string{
		"out/results.jsonl", "out/report.md", "out/pictures/queue.svg", "docs/fairness.svg",
	} {
		require.FileExists(t, filepath.Join(dir, name))
	}
	again := must.Got(runBench(t, Tools{}, "report", filepath.Join(dir, "out/results.jsonl"), "-out", filepath.Join(dir, "again")))(t)
	require.Contains(t, again, "report.md")
	require.FileExists(t, filepath.Join(dir, "again/report.md"))
}

func TestAPageIsMadeOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	for i, work := range []string{"W1", "W3"} {
		_, err := runBench(t, tools(nil), "-work", work, "-rounds", "1", "-slice", "20ms", "-restless", "-json", files[i])
		require.NoError(t, err)
	}
	require.NoError(t, must.Err(runBench(t, Tools{}, "report", files[0], files[1], "-out", filepath.Join(dir, "out"))))
	page := must.Got(os.ReadFile(filepath.Join(dir, "out/report.md")))(t)
	require.Contains(t, string(page), "| W1 | headwaiter |")
	require.Contains(t, string(page), "| W3 | headwaiter |")
}

func TestTheHelpSaysWhatTheStandardSetIs(t *testing.T) {
	var help bytes.Buffer
	require.ErrorIs(t, must.Err(parse([]string{"-help"}, []string{"-work", "W1,W5"}, &help)), flag.ErrHelp)
	require.Contains(t, help.String(), "the standard set, which is -work W1,W5; ")
	require.NotContains(t, help.String(), "all locks")
}

func TestARunTellsWhereTheTimeWent(t *testing.T) {
	dir := t.TempDir()
	cpu, allocations := filepath.Join(dir, "cpu"), filepath.Join(dir, "allocations")
	out, err := runBench(t, tools(nil), "-work", "W1,W7", "-rounds", "1", "-slice", "30ms", "-crowd", "50", "-restless",
		"-scripts", "-cpuprofile", cpu, "-allocprofile", allocations)
	require.NoError(t, err)
	require.Regexp(t, `W1 +fairlock/ask +\d+ `, out)
	require.Regexp(t, `W7 n=50 +fairlock/end +\d+ `, out)
	for _, file := range []string{cpu, allocations} {
		require.NotZero(t, must.Got(os.Stat(file))(t).Size(), file)
	}
	for _, profile := range []string{"-cpuprofile", "-allocprofile"} {
		_, err := runBench(t, tools(nil), "-work", "W1", profile, filepath.Join(dir, "none", "file"))
		require.ErrorContains(t, err, profile)
	}
}

// pairs are locks of this project that are compared with each other.
func pairs() Tools {
	return Tools{Contenders: func(_ context.Context, redis rueidis.ClientOption, _ []string) ([]bench.Contender, map[string]string, func(), error) {
		own := drivers.Headwaiter{Redis: redis}
		return []bench.Contender{
			drivers.Contender(own, 10*time.Second), drivers.BareContender(redis),
			drivers.MultilockContender(own, 10*time.Second), drivers.CohortContender(own, 10*time.Second),
		}, nil, func() {}, nil
	}}
}

// From -pairs to the page, the blocks of another page, and the verdict that what was measured by turns is the same,
// whatever the machine does meanwhile: it does it to both.
func TestPairsLeaveTheirPageAndCompareAsEqual(t *testing.T) {
	dir := t.TempDir()
	docs, other, results := filepath.Join(dir, "docs.md"), filepath.Join(dir, "README.md"), filepath.Join(dir, "out/results.jsonl")
	require.NoError(t, os.WriteFile(other, []byte("<!-- bench: reached -->\n<!-- /bench -->\n"), 0o600))
	_, err := runBench(t, pairs(), "-pairs", "-work", "W1,W2,W3,W4,R1,L1", "-clients", "2", "-rounds", "14", "-slice", "20ms", "-floor-slice", "10ms",
		"-out", filepath.Join(dir, "out"), "-docs", docs, "-fill", other)
	require.NoError(t, err)
	require.Contains(t, string(must.Got(os.ReadFile(docs))(t)), "| W3 | headwaiter-cohort-64 | W3 |")
	page := must.Got(os.ReadFile(filepath.Join(dir, "out/report.md")))(t)
	for _, want := range []string{"Two locks run in turn", "## Above the bare protocol", "| W3 | headwaiter-cohort-64 | W3 |", "| W4 C=2 | headwaiter-multilock-3 |", "| R1 | reentrant | W1 |", "| L1 C=50 | headwaiter |"} {
		require.Contains(t, string(page), want)
	}
	require.Contains(t, string(must.Got(os.ReadFile(other))(t)), "| W1, of the cycle floor |")

	text := must.Got(os.ReadFile(results))(t)
	halves := [2]strings.Builder{}
	for line := range strings.Lines(string(text)) {
		var pair map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &pair))
		rounds, _ := pair["rounds"].([]any)
		for i := range halves {
			if pair["kind"] == "pair" {
				var half []any
				for j := i; j < len(rounds); j += 2 {
					half = append(half, rounds[j])
				}
				pair["rounds"] = half
			}
			halves[i].WriteString(string(must.Got(json.Marshal(pair))(t)) + "\n")
		}
	}
	var files []string
	for i, name := range []string{"old", "new"} {
		files = append(files, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(files[i], []byte(halves[i].String()), 0o600))
	}
	out, err := runBench(t, Tools{}, "compare", files[0], files[1])
	require.NoError(t, err, out)
	require.Contains(t, out, "Of the figures of single pairs ")
}

// When the time of a run is over its pairs have as many rounds as they need, and no more.
func TestPairsOfARunThatIsOverHaveTheLeastRounds(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, must.Err(runBench(t, pairs(), "-pairs", "-work", "W1", "-rounds", "9", "-slice", "10ms", "-within", "1ns", "-out", dir)))
	results := must.Got(os.ReadFile(filepath.Join(dir, "results.jsonl")))(t)
	report, err := bench.ReadReport(strings.NewReader(string(results)))
	require.NoError(t, err)
	require.NotEmpty(t, report.Compared)
	for _, c := range report.Compared {
		require.Len(t, c.Rounds, bench.LeastRounds, "%v", c)
	}
	alone, _, _ := strings.Cut(string(results), "\n")
	old := filepath.Join(dir, "alone")
	require.NoError(t, os.WriteFile(old, []byte(alone), 0o600))
	require.ErrorContains(t, must.Err(runBench(t, Tools{}, "compare", old, filepath.Join(dir, "results.jsonl"))), "no pair in common")
}

// crooked is a lock that has a fault: everybody is let in.
type crooked struct{ bench.Driver }

func (d crooked) NewClient(context.Context) (bench.Client, error) { return crookedClient{}, nil }

type crookedClient struct{}

func (crookedClient) Mutex(string) bench.Mutex                 { return crookedClient{} }
func (crookedClient) Shutdown(context.Context) error           { return nil }
func (crookedClient) Lock(context.Context) (bench.Hold, error) { return crookedClient{}, nil }
func (crookedClient) Release(context.Context) error            { return nil }
func (crookedClient) Token() uint64                            { return 1 }

func TestALockWithAFaultMakesTheRunFail(t *testing.T) {
	broken := tools(func(c *bench.Contender) { c.Driver = crooked{c.Driver} })
	_, err := runBench(t, broken, "-work", "W4", "-clients", "4", "-hold", "5ms", "-rounds", "1", "-slice", "50ms")
	must.Fails(t, err, "overlapped", "not larger than the one before")
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	dir := t.TempDir()
	gone := tools(func(c *bench.Contender) { c.Missing = io.ErrUnexpectedEOF })
	require.NoError(t, must.Err(runBench(t, gone, "-work", "W1", "-rounds", "1", "-slice", "10ms", "-out", dir)))
	page := must.Got(os.ReadFile(filepath.Join(dir, "report.md")))(t)
	require.Contains(t, string(page), "| headwaiter | all | unexpected EOF |")
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-work", "W10"}, {"-clients", "1"}, {"-rounds", "0"}, {"-slice", "-1s"}, {"surplus"}, {"-crowd", "x", "-work", "W7"},
		{"-rounds", "1", "-standard"}, {"report"}, {"compare", "one"}, {"agent", "x"},
		{"-pairs", "-rounds", "6"}, {"-docs", "page.md"}, {"-fill", "page.md"},
		{"-delay", "soon", "-rounds", "7"}, {"-delay", "2s", "-rounds", "7"}, {"-delay", "1ms"},
		{"-delay", "1ms", "-rounds", "7", "-redis", "redis://127.0.0.1:1"}, {"-delay", "1ms", "-rounds", "7", "-work", "W1"},
	} {
		_, err := runBench(t, tools(nil), args...)
		require.Error(t, err, args)
		require.Contains(t, err.Error(), "bench", args)
	}
}

// A server that somebody else uses is left as it was, except for keys that expire.
func TestAServerOfOnesOwnIsMeasured(t *testing.T) {
	s, dir := redistest.Start(t, redistest.WithPassword("secret")), t.TempDir()
	out, err := runBench(t, tools(nil), "-redis", "redis://:secret@"+s.Addr(), "-work", "W1,W4", "-clients", "2", "-slice", "30ms", "-rounds", "1",
		"-arrival", "200", "-restless", "-out", dir)
	require.NoError(t, err)
	require.Contains(t, out, "W4 C=2 200/s")
	page := must.Got(os.ReadFile(filepath.Join(dir, "report.md")))(t)
	require.Contains(t, string(page), "Written by the benchmark")
	require.NotContains(t, string(page), "](../", "nothing that only the page of the repository has next to it")
	for _, key := range s.Keys() {
		require.Regexp(t, `^((headwaiter:lock:\{)?bench:|headwaiter:client:)`, key)
		require.Positive(t, s.Int("PTTL", key), "%s does not expire", key)
	}
}

func TestWhatWouldHarmAServerIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-clients", "1000"}, {"-slice", "1h"}, {"-floor-slice", "1h"}, {"-hold", "1m"}, {"-rounds", "101"}, {"-arrival", "inf"}, {"-arrival", "nan"}, {"-arrival", "1e300"},
		{"-work", "W5"}, {"-work", "W6"}, {"-work", "W7"}, {"-work", "W1,W8"}, {"-scripts"},
	} {
		require.ErrorContains(t, must.Err(runBench(t, tools(nil), append(args, "-redis", "redis://127.0.0.1:1")...)), "bench: -redis: ", args)
	}
}

func TestAServerThatIsNotThereIsNamedWithoutItsPassword(t *testing.T) {
	for _, url := range []string{"redis://:secret@127.0.0.1:1", "redis://:secret@127.0.0.1:x"} {
		_, err := runBench(t, tools(nil), "-redis", url, "-work", "W1")
		require.ErrorContains(t, err, "bench: ")
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestTheStandardSetStandsForItsFlags(t *testing.T) {
	s, err := parse([]string{"-standard", "-rounds", "7"}, []string{"-work", "W1,W5,W6,W7,W8", "-rounds", "5"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 7, s.rounds)
	require.Len(t, s.works, 1)
	require.Len(t, s.scenes, 10)
	require.NotEmpty(t, s.crowds)
	require.NotEmpty(t, s.holds)
}

func TestOverANetworkOnlyTheDeadArePlayed(t *testing.T) {
	s, err := parse([]string{"-delay", "0,250us,1ms", "-rounds", "7", "-work", "W1,W5,W6", "-dead", "2"}, nil, io.Discard)
	require.NoError(t, err)
	require.True(t, s.pairs)
	require.Len(t, s.delays, 3)
	var scenes []string
	for _, scene := range s.scenes {
		scenes = append(scenes, scene.String())
	}
	require.Equal(t, []string{"2 dead waiters at 250us", "dead holder at 250us", "2 dead waiters at 1ms", "dead holder at 1ms"}, scenes)
}

func TestTwoBuildsAreComparedInProcessesOfBoth(t *testing.T) {
	require.ErrorContains(t, must.Err(runBench(t, tools(nil), "-against", "no-such-program", "-work", "W1", "-rounds", "7")), "-against")
	_, err := runBench(t, tools(nil), "-against", "true", "-work", "W1", "-rounds", "7", "-slice", "20ms", "-restless")
	require.ErrorContains(t, err, "-against: no work was measured")
	out, err := runBench(t, tools(nil), "-against", os.Args[0], "-work", "W1", "-rounds", "7", "-slice", "20ms", "-restless")
	if err != nil {
		require.ErrorContains(t, err, "worse") // Slices of 20 ms are no evidence.
	}
	require.Contains(t, out, "before W1")
	require.Regexp(t, `(?m)^client CPU +all`, out)
}
