package traces

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/sim"
)

// variable makes the test's own binary a process with a client: the address of its server, its lock and a seed.
const variable = "HEADWAITER_TRACES_PROCESS"

const (
	// calls is how often each process locks. It has a ticket for each; the specification knows most tickets.
	calls        = most - 1
	processLease = time.Second
)

// process is the life of a process: it says who it is, waits for a word, and then locks, holds and releases. It tells when
// it believes that it holds, by the wall clock, which all processes of a machine share with its Redis.
func process(setting string) error {
	f := strings.Fields(setting)
	seed, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return err
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: f[:1], ForceSingleClient: true}})
	if err != nil {
		return err
	}
	fmt.Printf("I %s\n", c.ID())
	bufio.NewScanner(os.Stdin).Scan()
	m := fairlock.New(c, f[1], headwaiter.WithLease(processLease))
	chance := rand.New(rand.NewPCG(seed, 0))
	for range calls {
		pause(context.Background(), upTo(chance, 20*time.Millisecond))
		patience := kit.Patience
		if chance.IntN(4) == 0 {
			patience = upTo(chance, 100*time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if l, err := m.Lock(ctx); err == nil {
			if now := time.Now(); l.Context().Err() == nil { // So it held when the clock was read.
				fmt.Printf("H %d %d %d\n", l.Token(), now.UnixMicro(), l.Deadline().UnixMicro())
				hold := upTo(chance, 40*time.Millisecond)
				if chance.IntN(4) == 0 {
					hold = upTo(chance, 2*processLease)
				}
				if chance.IntN(3) == 0 {
					l.Wanted()
				}
				pause(l.Context(), hold)
				fmt.Printf("E %d %d\n", l.Token(), min(time.Now().UnixMicro(), l.Deadline().UnixMicro()))
				_ = l.Release(ctx) // It may have been lost.
				fmt.Printf("R %d\n", time.Now().UnixMicro())
			} else {
				_ = l.Release(ctx)
			}
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	_ = c.Shutdown(ctx) // What it could not end is seen in the trace.
	return nil
}

// pause lets time pass, or the context end.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A belief is what a process has told: that it holds, or does not any more.
type belief struct {
	at    int64 // µs, by the wall clock
	event sim.TraceEvent
}

// A worker is one process, seen from outside.
type worker struct {
	index int
	child crowd.Child
	proxy *faults.Proxy
	id    chan string
	gone  chan struct{} // closed when it has ended and all it told is here

	mu       sync.Mutex // guards the fields below
	beliefs  []belief
	deadline int64 // of the hold that it believes in, as it was at first; 0: of none
}

func newWorker(t *testing.T, index int, server, lock string, seed uint64) *worker {
	t.Helper()
	w := &worker{index: index, proxy: faults.NewProxy(t, server), id: make(chan string, 1), gone: make(chan struct{})}
	w.child = crowd.Fork(t, variable, fmt.Sprintf("%s %s %d", w.proxy.Addr(), lock, seed))
	go w.follow()
	t.Cleanup(w.kill)
	return w
}

// follow takes in what the process tells until its end.
func (w *worker) follow() {
	defer close(w.gone)
	for w.child.Lines.Scan() {
		f := strings.Fields(w.child.Lines.Text())
		if f[0] == "I" {
			w.id <- f[1]
			continue
		}
		w.mu.Lock()
		switch f[0] {
		case "H":
			w.believesLocked(sim.Holds, uint64(number(f[1])), number(f[2]))
			w.deadline = number(f[3])
		case "E":
			w.believesLocked(sim.Ends, uint64(number(f[1])), number(f[2]))
			w.deadline = 0
			w.beliefs[len(w.beliefs)-1].event.Returned = math.MaxInt64 / 2 // A process may be stopped before it calls Release.
		case "R":
			w.beliefs[len(w.beliefs)-1].event.Returned = number(f[1])
		}
		w.mu.Unlock()
	}
	_ = w.child.Cmd.Wait() // A process that was killed has no other end.
}

func (w *worker) believesLocked(what string, token uint64, at int64) {
	w.beliefs = append(w.beliefs, belief{at, sim.TraceEvent{Script: what, Client: w.index, Token: token, Now: at}})
}

// kill ends the process, also if it is stopped. What it held it believed in until then, or until the end of its lease.
func (w *worker) kill() {
	at := time.Now().UnixMicro()
	_ = w.child.Cmd.Process.Kill()
	<-w.gone
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline != 0 {
		w.believesLocked(sim.Ends, w.beliefs[len(w.beliefs)-1].event.Token, max(min(at, w.deadline), w.beliefs[len(w.beliefs)-1].at))
		w.deadline = 0
	}
}

func (w *worker) alive() bool {
	select {
	case <-w.gone:
		return false
	default:
		return true
	}
}

// disturb makes trouble of one kind, and ends it.
func (w *worker) disturb(s *redistest.Server, chance *rand.Rand) string {
	all := func([]string) bool { return true }
	lasts := func(d time.Duration) { pause(context.Background(), upTo(chance, d)) }
	switch chance.IntN(9) {
	case 0, 1:
		w.proxy.Cut()
		return "cut"
	case 2:
		w.proxy.LoseReplies(1+chance.IntN(2), func(c []string) bool { return len(c) > 1 && sim.ScriptName(c[1]) != "" })
		return "reply lost"
	case 3:
		w.proxy.LosePushes(1, all)
		return "message lost"
	case 4:
		w.proxy.Drop(faults.Direction(chance.IntN(2)))
		lasts(2 * processLease)
		w.proxy.Heal()
		return "dropped"
	case 5:
		w.proxy.Delay(upTo(chance, 100*time.Millisecond), faults.Direction(chance.IntN(2)))
		lasts(processLease / 2)
		w.proxy.Heal()
		return "delayed"
	case 6, 7:
		_ = w.child.Cmd.Process.Signal(syscall.SIGSTOP)
		lasts(2 * processLease)
		_ = w.child.Cmd.Process.Signal(syscall.SIGCONT)
		return "stopped"
	default:
		s.Do("SCRIPT", "FLUSH")
		return "scripts flushed"
	}
}

// TestProcessesDoWhatTheSpecificationSays has processes take turns on a real Redis while they are stopped and killed and
// their connections cut, and has the checker replay what their scripts did and what they believed.
func TestProcessesDoWhatTheSpecificationSays(t *testing.T) {
	tla := checker(t)
	var mu sync.Mutex // guards done and events
	done, events := map[string]int{}, 0
	t.Run("all", func(t *testing.T) {
		for i := range *processes {
			seed := *first + uint64(i)
			kit.Parallel(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				came, happened := turns(t, seed)
				replay(t, tla, "what processes did is not the same twice", []trace{came})
				mu.Lock()
				defer mu.Unlock()
				events += len(came.events)
				for what, n := range came.done {
					done[what] += n
				}
				for what, n := range happened {
					done[what] += n
				}
			})
		}
	})
	t.Logf("%d runs from seed %d on, %d events: %v", *processes, *first, events, done)
	if !t.Failed() && *processes >= usualProcesses {
		for _, what := range []string{"granted by message", "freed", "queued", "renewed", "check", "killed", "stopped", "cut", sim.Holds, sim.Ends} {
			require.NotZero(t, done[what], what)
		}
	}
}

// turns plays one run, and tells its trace and what trouble there was.
func turns(t *testing.T, seed uint64) (trace, map[string]int) {
	s := redistest.Start(t)
	name := fmt.Sprint("traced-", seed)
	k := newClerk(t, s.Addr(), "headwaiter:lock:{"+name+"}")
	chance := rand.New(rand.NewPCG(seed, 1))
	var all []*worker
	for i := range clients {
		all = append(all, newWorker(t, i, k.door.Addr().String(), name, seed*clients+uint64(i)))
	}
	for _, w := range all {
		select {
		case id := <-w.id:
			k.clients = append(k.clients, id)
		case <-w.gone:
			t.Fatal("a process has ended before it said who it is")
		}
	}
	for _, w := range all {
		require.NoError(t, kit.Err(io.WriteString(w.child.Input, "go\n")))
	}
	happened := map[string]int{}
	for slices.ContainsFunc(all, (*worker).alive) {
		w := all[chance.IntN(len(all))]
		switch {
		case !w.alive():
			pause(context.Background(), time.Millisecond)
		case happened["killed"] == 0 && chance.IntN(12) == 0:
			w.kill()
			happened["killed"]++
		default:
			pause(context.Background(), upTo(chance, 200*time.Millisecond))
			happened[w.disturb(s, chance)]++
		}
	}
	noted, began := k.end()
	var beliefs []belief
	for _, w := range all {
		w.kill()
		beliefs = append(beliefs, w.beliefs...)
	}
	slices.SortStableFunc(beliefs, func(a, b belief) int { return cmp.Compare(a.at, b.at) })
	var merged []sim.TraceEvent
	for i, e := range noted {
		for len(beliefs) > 0 && beliefs[0].at < began[i] {
			merged, beliefs = append(merged, beliefs[0].event), beliefs[1:]
		}
		merged = append(merged, e)
	}
	for _, b := range beliefs {
		merged = append(merged, b.event)
	}
	return tell(seed, merged), happened
}

// upTo is a time below d.
func upTo(chance *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(chance.Int64N(int64(d)))
}
