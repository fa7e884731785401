package lost

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// The locks of the table.
const (
	plainly  = "headwaiter"
	fenced   = "headwaiter and `fence`"
	replicas = "headwaiter, `WithReplicas(1)`"
	nodes    = "`redlock` on three servers"
	onEtcd   = "etcd's mutex"
)

var locks = []string{plainly, fenced, replicas, nodes, "redsync", "redislock", "rueidislock", onEtcd}

var (
	page    = flag.String("page", "", "count at length, and write this page")
	updates = flag.Int64("updates", 10_000, "with -page, of each lock")
	times   = flag.Int("times", 5, "with -page: how often each fault happens to each lock")
)

func TestMain(m *testing.M) {
	workerMain()
	os.Exit(m.Run())
}

const (
	workers = 4
	// patience is how long a test waits for what must come.
	patience = 2 * time.Minute
)

// A run is one lock and one fault: servers, workers, and the record.
type run struct {
	*testing.T
	lock    string
	servers servers
	workers []*worker
	stalls  int // how often nobody held for the whole patience, and the workers began again

	mu      sync.Mutex // guards the fields below
	gate    *gate      // nil: who has released may lock again
	record  record
	due     *due // nil: no fault is about to happen
	errors  int
	ended   bool
	lastErr string
}

// A record is what is incremented.
type record struct {
	value, accepted, refused, told int64
	guard                          fence.Guard // nil: whoever comes may write
}

// due is a fault that happens to the next holder.
type due struct {
	answer answer       // to its read
	reads  chan *worker // then it is here
	asks   chan *worker // and here once the lock has told it that it holds
	victim *worker
}

// A gate keeps workers back that have released.
type gate struct {
	came chan struct{}
	open chan struct{}
}

// A worker is one process, and the connections of its own that lead to the servers.
type worker struct {
	run     *run
	child   crowd.Child
	proxies []*faults.Proxy
	over    chan struct{}
}

// newRun starts the workers of a lock.
func newRun(t *testing.T, lock string) *run {
	r := &run{T: t, lock: lock, servers: newServers(t, lock)}
	if lock == fenced {
		r.record.guard = fence.NewMemory(1).Key(name)
	}
	for range workers {
		r.workers = append(r.workers, r.newWorker())
	}
	t.Cleanup(func() {
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		for _, w := range r.workers {
			w.kill()
		}
	})
	r.goesOn(20)
	return r
}

func (r *run) newWorker() *worker {
	w := &worker{run: r, over: make(chan struct{})}
	var addrs []string
	for _, addr := range r.servers.addrs() {
		p := r.servers.proxy(r.T, addr)
		w.proxies, addrs = append(w.proxies, p), append(addrs, p.Addr())
	}
	text := kit.Got(json.Marshal(plan{Lock: r.lock, Addrs: addrs}))(r.T)
	w.child = crowd.Fork(r.T, workerVariable, string(text))
	go w.serve()
	return w
}

// kill ends the process, and returns when it is gone.
func (w *worker) kill() {
	_ = w.child.Cmd.Process.Kill()
	<-w.over
}

// serve is the record for one worker, until that ends.
func (w *worker) serve() {
	defer close(w.over)
	out := json.NewEncoder(w.child.Input)
	for w.child.Lines.Scan() {
		var x said
		if json.Unmarshal(w.child.Lines.Bytes(), &x) != nil {
			break
		}
		if a, answers := w.run.hear(w, x); answers {
			_ = out.Encode(a) // A process that was killed hears nothing.
		}
	}
	_ = w.child.Cmd.Wait()
}

// hear takes what a worker says, and returns the answer if it waits for one.
func (r *run) hear(w *worker, x said) (a answer, answers bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch x.Op {
	case freed:
		if g := r.gate; g != nil {
			r.mu.Unlock()
			select {
			case g.came <- struct{}{}:
			default:
			}
			select {
			case <-g.open:
			case <-r.Context().Done(): // The test has failed.
			}
			r.mu.Lock()
		}
		return answer{}, true
	case reads:
		if r.admits(x.Token) {
			a.Value = r.record.value
			if d := r.due; d != nil && d.victim == nil {
				d.victim, a.Work, a.Slow = w, d.answer.Work, d.answer.Slow
				d.reads <- w
			}
			return a, true
		}
		return answer{Refused: true}, true
	case asked:
		if d := r.due; d != nil && d.victim == w {
			d.asks <- w
			r.due = nil // It happens once.
		}
	case written:
		if !r.admits(x.Token) {
			return answer{Refused: true}, true
		}
		r.record.value = x.Value
		r.record.accepted++
		return answer{}, true
	case told:
		r.record.told++
	case failed:
		r.errors, r.lastErr = r.errors+1, x.Text
	}
	return answer{}, false
}

// admits asks the guard, if there is one.
func (r *run) admits(token uint64) bool {
	if r.record.guard == nil {
		return true
	}
	err := r.record.guard.Admit(r.Context(), token)
	if err != nil {
		r.record.refused++
	}
	return err == nil
}

func (r *run) seen() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// goesOn waits until the record has accepted that many more. Another lock's waiters may sleep on for ever: then the workers begin
// again, once.
func (r *run) goesOn(more int64) {
	r.Helper()
	from := r.seen().accepted
	for end := time.Now().Add(patience); r.seen().accepted < from+more; time.Sleep(time.Millisecond) { // Nobody tells.
		if time.Now().After(end) && r.stalls == 0 && !slices.Contains(locks[:4], r.lock) {
			r.stalls++
			r.Logf("%s: nobody holds; the workers begin again", r.lock)
			for i, w := range r.workers {
				w.kill()
				r.workers[i] = r.newWorker()
			}
			end = time.Now().Add(patience)
		}
		if time.Now().After(end) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.Fatalf("%s: no %d updates more: %d errors, the last %q", r.lock, more, r.errors, r.lastErr)
		}
	}
}

// nobodyHolds returns when all workers have released and none has asked again; goOn lets them on. A worker that no other one
// wakes may wait for the lock meanwhile, as with rueidislock.
func (r *run) nobodyHolds() (goOn func()) {
	g := &gate{make(chan struct{}, workers), make(chan struct{})}
	r.mu.Lock()
	r.gate = g
	r.mu.Unlock()
	for range workers {
		select {
		case <-g.came:
		case <-time.After(2 * lasts): // It would hold by now.
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gate = nil
		close(g.open)
	}
}

// next lets the next holder work and write so slowly, and returns it when it has read; nil if nobody holds for so long.
func (r *run) next(a answer, limit time.Duration) (d *due, victim *worker) {
	d = &due{answer: a, reads: make(chan *worker, 1), asks: make(chan *worker, 1)}
	r.mu.Lock()
	r.due = d
	r.mu.Unlock()
	select {
	case victim = <-d.reads:
	case <-time.After(limit):
		r.mu.Lock()
		r.due = nil
		r.mu.Unlock()
	}
	return d, victim
}

// holder is next where somebody must hold.
func (r *run) holder(a answer) (d *due, victim *worker) {
	r.Helper()
	d, victim = r.next(a, patience)
	if victim == nil {
		r.Fatalf("%s: nobody holds", r.lock)
	}
	return d, victim
}

// stop stops a process, as a paused virtual machine is.
func (w *worker) stop()  { _ = w.child.Cmd.Process.Signal(syscall.SIGSTOP) }
func (w *worker) wakes() { _ = w.child.Cmd.Process.Signal(syscall.SIGCONT) }

// A count is what one fault did to one lock.
type count struct {
	accepted, lost, refused, told int64
	stalls                        int
}

// counted has a fault happen a number of times among so many updates.
func counted(t *testing.T, lock string, f fault, times int, updates int64) count {
	r := newRun(t, lock)
	for i := range times {
		for r.seen().accepted < updates*int64(i)/int64(times) {
			r.goesOn(1)
		}
		f.happens(r, i)
		r.goesOn(workers)
	}
	for r.seen().accepted < updates {
		r.goesOn(1)
	}
	x := r.seen()
	return count{x.accepted, x.accepted - x.value, x.refused, x.told, r.stalls}
}

// Who was paused between the question and the write writes over what others wrote meanwhile, unless the record refuses its token.
func TestAPausedHolderLosesUpdatesAndATokenKeepsThem(t *testing.T) {
	pauses := faultsOf(plainly)[0]
	for _, lock := range []string{plainly, fenced} {
		t.Run(lock, func(t *testing.T) {
			c := counted(t, lock, pauses, 1, 50)
			if lock == fenced {
				require.Zero(t, c.lost)
				require.Positive(t, c.refused)
				return
			}
			require.Positive(t, c.lost)
		})
	}
}

// With a token nothing is lost, whatever happens; and each lock goes on when a holder was killed.
func TestLostUpdates(t *testing.T) {
	if *page != "" {
		write(t, *page)
		return
	}
	for _, lock := range locks {
		t.Run(lock, func(t *testing.T) {
			faults := faultsOf(lock)
			if lock != fenced {
				faults = faults[1:2]
			}
			for _, f := range faults {
				if c := counted(t, lock, f, 1, 30); lock == fenced {
					require.Zero(t, c.lost, f.name)
				}
			}
		})
	}
}
