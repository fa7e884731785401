package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/check"
)

// A hold as a worker tells it. The times are those of now.
type hold struct {
	worker   string
	name     string
	weight   int
	token    uint64
	called   int64 // when it asked
	got      int64 // when it had an answer
	from, to int64 // the first and the last look that said that it held; 0 if there was none
	deadline int64
	returned int64 // when its release had returned
	how      string
}

// historiesOf makes histories of holds. Who never saw that it held was certain at no moment.
func historiesOf(holds []hold, forgot []check.Span) []*check.History {
	var all []check.Hold
	var workers []string
	for _, h := range holds {
		if h.from == 0 {
			h.from, h.to = h.got, h.got
		}
		x := check.Hold{
			Name: h.name, Permits: int64(h.weight), Token: h.token, Called: time.Duration(h.called), Got: time.Duration(h.from),
			Releasing: time.Duration(h.to), Released: check.Never, Deadline: time.Duration(max(h.deadline, h.to)), Lost: check.Never,
		}
		if h.how == released {
			x.Released = time.Duration(h.returned)
		}
		all, workers = append(all, x), append(workers, h.worker)
	}
	return check.Collect(all, workers, limitOf, forgot)
}

// A refusal is an error that a worker got.
type refusal struct {
	worker string
	at     int64
	text   string
}

// A remainder is what a process found left of itself at its end.
type remainder struct {
	goroutines   int
	failure      string
	missed, late uint64
}

// process is one process of a load.
type process struct {
	t     testing.TB
	plan  plan
	child crowd.Child
	ended chan struct{} // closed when it has ended and all it told is here

	mu       sync.Mutex // guards the fields below
	dead     bool
	workers  map[string]int64 // when each held for the last time
	holds    []hold
	refusals []refusal
	lines    []string // of other kinds
	gaveUp   int      // calls
	rest     *remainder
}

// newProcess starts one; it ends with the test.
func newProcess(t testing.TB, p plan) *process {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	c := &process{t: t, plan: p, child: crowd.Fork(t, planVariable, string(text), p.Under...), ended: make(chan struct{}), workers: map[string]int64{}}
	go c.follow()
	t.Cleanup(c.end)
	return c
}

// follow takes in what the process tells until its end.
func (c *process) follow() {
	defer close(c.ended)
	for c.child.Lines.Scan() {
		c.take(strings.Split(c.child.Lines.Text(), "\t"))
	}
	// How it ended is for the test to judge.
	_ = c.child.Cmd.Wait()
}

func (c *process) take(f []string) {
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f[0] == "H" && len(f) == 12:
		h := hold{
			worker: f[1], name: f[2], weight: int(number(3)), token: uint64(number(4)), called: number(5), got: number(6),
			from: number(7), to: number(8), deadline: number(9), returned: number(10), how: f[11],
		}
		c.holds = append(c.holds, h)
		c.workers[h.worker] = max(c.workers[h.worker], h.from)
	case f[0] == "G":
		c.gaveUp++
	case f[0] == "E" && len(f) == 4:
		c.refusals = append(c.refusals, refusal{f[1], number(2), f[3]})
	case f[0] == "Z" && len(f) == 5:
		c.rest = &remainder{int(number(1)), f[2], uint64(number(3)), uint64(number(4))}
	case len(f[0]) == 1:
		c.lines = append(c.lines, strings.Join(f, "\t"))
	default:
		c.refusals = append(c.refusals, refusal{"?", evidence.Now(), "a line that makes no sense: " + strings.Join(f, " ")})
	}
}

// kill ends it with SIGKILL, also if it is stopped, and returns when it is gone.
func (c *process) kill() {
	select {
	case <-c.ended:
	default:
		evidence.Fault(c.t, "process killed", 1)
	}
	c.end()
}

func (c *process) end() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	_ = c.child.Cmd.Process.Kill()
	<-c.ended
}

// signal sends it SIGSTOP or SIGCONT.
func (c *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.child.Cmd.Process.Signal(s))
	if s == syscall.SIGSTOP {
		evidence.Fault(t, "process stopped", 1)
	}
}

// told returns what it has told so far.
func (c *process) told() (holds []hold, refusals []refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds[:len(c.holds):len(c.holds)], c.refusals[:len(c.refusals):len(c.refusals)]
}

// alive reports whether it was not killed.
func (c *process) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dead
}

// inSince returns how many of its workers have held since a time, and which of those that are known have not.
func (c *process) inSince(at int64) (n int, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, last := range c.workers {
		if last > at {
			n++
		} else {
			missing = append(missing, w)
		}
	}
	return n, missing
}

// workersOf is how many workers a plan has.
func (p plan) workersOf() int { return p.Clients * len(p.Names) * len(kinds) }

// finish makes it end in good order, and returns what is left.
func (c *process) finish(t testing.TB) remainder {
	t.Helper()
	_, err := io.WriteString(c.child.Input, "stop\n")
	require.NoError(t, err)
	kit.Eventually(t, "a process to tell what is left of it", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.rest != nil
	})
	return *c.rest
}

// load is the processes that work while a fault happens.
type load []*process

// newLoad starts so many processes.
func newLoad(t testing.TB, n int, p plan) load {
	t.Helper()
	var l load
	for i := range n {
		p.Index = i
		l = append(l, newProcess(t, p))
	}
	return l
}

// count is how many holds there were so far.
func (l load) count() int {
	n := 0
	for _, c := range l {
		holds, _ := c.told()
		n += len(holds)
	}
	return n
}

// allIn waits until every worker that lives has held since a time.
func (l load) allIn(t testing.TB, at int64, limit time.Duration) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		var missing []string
		for _, c := range l {
			if !c.alive() {
				continue
			}
			n, absent := c.inSince(at)
			if n < c.plan.workersOf() {
				missing = append(missing, fmt.Sprintf("%d of process %d, such as %v", c.plan.workersOf()-n, c.plan.Index, absent))
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not all workers got in within %v: %v; refused: %v", limit, missing, l.lastRefusals())
		}
	}
}

func (l load) lastRefusals() []refusal {
	var all []refusal
	for _, c := range l {
		_, refusals := c.told()
		all = append(all, refusals[max(0, len(refusals)-3):]...)
	}
	return all
}
