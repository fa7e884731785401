package traces

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/sim"
)

var (
	count = flag.Int("traces.count", usual, "how many traces")
	first = flag.Uint64("traces.first", 1, "the seed of the first")

	processes = flag.Int("traces.processes", usualProcesses, "how many runs of processes")
)

// How many traces there are, and how many of them go into one run of the checker.
const usual, together, usualProcesses = 60, 30, 8

func TestMain(m *testing.M) {
	if setting := os.Getenv(variable); setting != "" {
		if err := process(setting); err != nil {
			fmt.Fprintln(os.Stderr, "traces:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	debug.SetGCPercent(800) // The embedded server makes a new Lua for each script.
	goleak.VerifyTestMain(m)
}

// TestScriptsDoWhatTheSpecificationSays plays worlds, and has the checker replay what their scripts did and what their
// callers believed. A run in which something was not done that can be is none.
func TestScriptsDoWhatTheSpecificationSays(t *testing.T) {
	tla := checker(t)
	var mu sync.Mutex // guards done and events
	done, events := map[string]int{}, 0
	t.Run("all", func(t *testing.T) {
		for from := 0; from < *count; from += together {
			seeds := min(together, *count-from)
			begin := *first + uint64(from)
			kit.Parallel(t, fmt.Sprintf("seeds from %d on", begin), func(t *testing.T) {
				var traces []trace
				for i := range seeds {
					p := plan(begin + uint64(i))
					var r sim.Result
					synctest.Test(t, func(t *testing.T) { r = sim.Run(t, p, sim.Quirks{}) })
					traces = append(traces, tell(p.Seed, r.Trace))
				}
				replay(t, tla, fmt.Sprintf("play it again with -traces.first=%d", begin), traces)
				mu.Lock()
				defer mu.Unlock()
				for _, trace := range traces {
					events += len(trace.events)
					for what, n := range trace.done {
						done[what] += n
					}
				}
			})
		}
	})
	t.Logf("%d traces from seed %d on, %d events: %v", *count, *first, events, done)
	if !t.Failed() && *count >= usual {
		for _, what := range []string{
			"ask", "check", "end", "renew", "late", "granted", "queued", "not queued", "freed", "not the holder", "moved", sim.Holds, sim.Ends, "renewed",
			"hears", "proven", "deaf", "granted by message", "granted in the reply", "suspected", "lease over", "sent since",
			"wanted by message", "wanted in the reply",
		} {
			require.NotZero(t, done[what], what)
		}
	}
}

// checker is the command of the checker.
func checker(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("TLA_CHECKER"); named != "" {
		return named
	}
	found, err := exec.LookPath("tla")
	require.NoError(t, err, "the checker of the specification is missing: make traces installs it")
	return found
}

// replay has the checker go through traces, and tells where the first of them does not fit.
func replay(t *testing.T, tla, again string, traces []trace) {
	t.Helper()
	dir := t.TempDir()
	for _, module := range []string{"Headwaiter.tla", "Traces.tla"} {
		text := kit.Got(os.ReadFile(filepath.Join("../../../../spec", module)))(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, module), text, 0o600))
	}
	module, states := module(traces)
	file := filepath.Join(dir, "Seen.tla")
	require.NoError(t, os.WriteFile(file, []byte(module), 0o600))
	config := filepath.Join(dir, "Seen.cfg")
	require.NoError(t, os.WriteFile(config, []byte(cfg), 0o600))
	var out bytes.Buffer
	cmd := exec.Command(tla, file, "--config", config, "--json", "--max-depth", "10000")
	cmd.Stdout, cmd.Stderr = &out, &out
	failed := cmd.Run() // It exits with 1 if it finds something.
	_, text, _ := strings.Cut(out.String(), "\n{")
	var o struct {
		Status string
		Trace  []struct {
			State struct {
				W    struct{ S json.RawMessage }
				Told json.RawMessage
				Rest struct {
					Seed   uint64
					Events []json.RawMessage
				}
			}
		}
		Stats struct {
			States int `json:"states_explored"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte("{"+text), &o), "%v\n%s", failed, out.String())
	if o.Status != "deadlock" {
		require.Equal(t, "ok", o.Status, text)
		require.Equal(t, states, o.Stats.States, "not all was gone through")
		return
	}
	last := o.Trace[len(o.Trace)-1].State
	i := slices.IndexFunc(traces, func(t trace) bool { return t.seed == last.Rest.Seed })
	at := len(traces[i].events) - len(last.Rest.Events)
	t.Fatalf("seed %d: event %d is not what the specification says; %s.\nThe specification has before it:\n%s\nThe code did:\n%s\n%s",
		last.Rest.Seed, at+1, again, last.W.S, traces[i].raw[at], traces[i].events[at])
}

// module is one with all traces, and how many states it has.
func module(traces []trace) (text string, states int) {
	var all []string
	for _, t := range traces {
		all = append(all, fmt.Sprintf("TraceInit(%d, <<\n%s>>)", t.seed, strings.Join(t.events, ",\n")))
		states += len(t.events) + 1
	}
	return "---- MODULE Seen ----\nEXTENDS Traces, TLC\nSeenInit ==\n\\/ " + strings.Join(all, "\n\\/ ") + "\n====\n", states
}

// cfg is the scope. An echo clears a mark that is newer than it, as in the code.
var cfg = func() string {
	var tickets []string
	for c := range clients {
		for n := range most {
			tickets = append(tickets, fmt.Sprint((c+1)*10+n+1))
		}
	}
	constants := map[string]string{
		"Off": `{"StaleProof"}`, "Clients": "{1, 2, 3}", "Tickets": set(tickets), "Permits": "1", "Heavy": "{}", "Readers": "FALSE", "Double": "{}",
		"Cohorts": "{}", "Curious": "{1, 2, 3}", "Givers": "{}", "Replica": "{}", "Limit": "0", "Late": "0", "Faults": "0", "Cancels": "0", "Drops": "0",
	}
	text := "INIT SeenInit\nNEXT TraceNext\nINVARIANT NoTwoBelievers TokensRise ToldInTime\n"
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		text += fmt.Sprintf("CONSTANT %s = %s\n", name, constants[name])
	}
	return text
}()

// covered are the faults that the specification has.
var covered = []sim.FaultKind{
	sim.Cut, sim.Outage, sim.Pause, sim.DropOut, sim.DropIn, sim.Slow, sim.LateRequests, sim.LateReplies, sim.LoseReplies,
	sim.LosePushes, sim.Die, sim.DieSilent, sim.DieLate, sim.LoseMessages, sim.LateMessages, sim.DoubleMessages, sim.Restart, sim.FlushScripts,
}

// How many clients there are at the most, and tickets of each.
const clients, most = 3, 9

// plan is the plan of a seed, as far as the specification goes: one mutex, three clients at the most.
func plan(seed uint64) sim.Plan {
	p := sim.Draw(seed, sim.Mutex)
	p.Traced, p.Drift = true, 0
	p.Objects = p.Objects[:1]
	p.Objects[0].MaxHold, p.Objects[0].Limit = 0, 0
	p.Clients = p.Clients[:min(len(p.Clients), clients)]
	var actors []sim.ActorPlan
	for _, a := range p.Actors {
		if a.Object > 0 {
			continue
		}
		a.Client %= len(p.Clients)
		for i := range a.Steps {
			s := &a.Steps[i]
			s.Do, s.Priority = sim.Lock, 0
		}
		actors = append(actors, a)
	}
	p.Actors = actors
	p.Faults = slices.DeleteFunc(p.Faults, func(f sim.Fault) bool { return !slices.Contains(covered, f.Kind) || f.Client >= len(p.Clients) })
	return p
}
