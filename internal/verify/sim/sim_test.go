package sim

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	seeds = flag.Int("sim.seeds", usual, "how many seeds TestSeeds plays")
	first = flag.Uint64("sim.first", 1, "the first of them")
	seed  = flag.Uint64("sim.seed", 1, "the seed that TestSeed plays")
	only  = flag.String("sim.only", "", "the only primitive in the worlds, such as cohort")
	storm = flag.Int("sim.storm", 1, "how many times as many faults there are as usual")
	polls = flag.Bool("sim.polls", false, "nobody in it subscribes to anything")
	on    = flag.Bool("sim.all", false, "go on after a failure")
)

// stalled is how long a seed may take on the wall's clock: a goroutine that is busy, or waits for a lock, stops
// the clock of its bubble.
const stalled = 10 * time.Minute

// play plays a plan in a bubble.
func play(t *testing.T, p Plan, q Quirks) (r Result) {
	t.Helper()
	guard := time.AfterFunc(stalled, func() { panic(fmt.Sprintf("it stands still: %s\n%v", Replay(p), p)) })
	defer guard.Stop()
	defer func() {
		if cause := recover(); cause != nil { // Such as a goroutine that is left in the bubble.
			panic(fmt.Sprintf("%v\nplay it again: %s\n%v", cause, Replay(p), p))
		}
	}()
	synctest.Test(t, func(t *testing.T) { r = Run(t, p, q) })
	return r
}

// drawn is the plan of a seed as the flags want it.
func drawn(t *testing.T, seed uint64) Plan {
	t.Helper()
	var kinds []Kind
	if *only != "" {
		i := slices.Index(kindNames[:], *only)
		if i < 0 {
			t.Fatalf("there is no %q: %v", *only, kindNames)
		}
		kinds = append(kinds, Kind(i))
	}
	p := Storm(seed, *storm, kinds...)
	p.Polls = *polls
	return p
}

// TestSeed plays one seed and tells all that happened.
func TestSeed(t *testing.T) {
	r := play(t, drawn(t, *seed), Quirks{})
	if len(r.Violations) > 0 {
		t.Error(r.Report())
		return
	}
	t.Logf("%v\n%v", r.Plan, r.history)
}

// TestSeeds plays one seed after the other, on all processors. A run in which a seed is left out, or nobody holds, is
// none.
func TestSeeds(t *testing.T) {
	var next, played atomic.Uint64
	next.Store(*first)
	end := *first + uint64(*seeds)
	var mu sync.Mutex // guards sum
	var sum Result
	t.Run("all", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1) - 1; n < end && (*on || !t.Failed()); n = next.Add(1) - 1 {
					r := play(t, drawn(t, n), Quirks{})
					if len(r.Violations) > 0 {
						t.Error(r.Report())
					}
					played.Add(1)
					mu.Lock()
					sum.Calls, sum.Holds, sum.Faults = sum.Calls+r.Calls, sum.Holds+r.Holds, sum.Faults+r.Faults
					sum.Recovery, sum.Beyond = max(sum.Recovery, r.Recovery), max(sum.Beyond, r.Beyond)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d seeds from %d on: %d calls, %d holds, %d faults; slowest recovery %v, beyond the lease %v",
		played.Load(), *first, sum.Calls, sum.Holds, sum.Faults, sum.Recovery, sum.Beyond)
	if !t.Failed() && (played.Load() < uint64(max(*seeds, 1)) || sum.Holds == 0 || sum.Faults == 0) {
		t.Errorf("%d seeds of %d were played", played.Load(), *seeds)
	}
}

// TestASeedGivesOnePlan, whatever else the process has drawn before.
func TestASeedGivesOnePlan(t *testing.T) {
	for n := range uint64(100) {
		if a, b := Draw(n).String(), Draw(n).String(); a != b {
			t.Fatalf("seed %d gives two plans:\n%s\n%s", n, a, b)
		}
	}
}

// TestEachKindAlone plays worlds of one primitive each: what is wrong with one is found within a few.
func TestEachKindAlone(t *testing.T) { eachKind(t, perKind, false) }

// TestEachKindWithoutSubscriptions plays the same worlds where nobody hears of anything, so all live by their looks;
// each look takes time.
func TestEachKindWithoutSubscriptions(t *testing.T) { eachKind(t, perKind/8+1, true) }

func eachKind(t *testing.T, seeds uint64, polls bool) {
	for k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				p := Draw(seed+1, k)
				p.Polls = polls
				r := play(t, p, Quirks{})
				if len(r.Violations) > 0 {
					t.Fatal(r.Report())
				}
			}
		})
	}
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // The embedded server makes a new Lua for each script.
	goleak.VerifyTestMain(m)
}
