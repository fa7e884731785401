package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// planVariable is the environment variable that makes a process a child, and tells it what to do.
const planVariable = "HEADWAITER_CHAOS"

// A plan is what the workers of one process do. Each client has one worker for each name and kind.
type plan struct {
	Role    string   // what it does instead, if it is not a load
	Addrs   []string // of the server; the clients take them by turns
	Names   []string
	Clients int
	Lease   time.Duration
	Hold    time.Duration // at most, and so much between two holds
	Cancel  int           // how many of 1,000 calls give up after a moment
	Kinds   []string      // of locks, if not the usual
	Index   int           // of the process; the uneven ones may be of another commit
	Under   []string      // a program that runs it, and its first arguments
	Grant   time.Duration // the grant lease of its clients, if not the usual
	File    string        // where it writes when it held
}

// The kinds of worker.
const (
	locks   = "lock"
	permits = "semaphore"
	reads   = "rwlock"
)

var kinds = []string{locks, permits, reads}

// moreKinds are for plans that name them.
var moreKinds = []string{entered, several, stripes, leaders, votes}

const (
	entered = "reentrant"
	several = "multilock"
	stripes = "striped"
	leaders = "election"
	votes   = "redlock"
)

// limits are how much of each kind may be held at a time.
var limits = map[string]int64{locks: 1, permits: 2, reads: judge.Readers, entered: 1, several: 1, stripes: 1, leaders: 1, votes: 1}

func (p plan) kinds() []string {
	if len(p.Kinds) > 0 {
		return p.Kinds
	}
	return kinds
}

// What a process says, a line at a time.
type said struct {
	Holds    []hold              `json:",omitempty"`
	Refusals []refusal           `json:",omitempty"`
	GaveUp   int                 `json:",omitempty"` // calls
	Lines    map[string][]string `json:",omitempty"` // of roles
	Left     *remainder          `json:",omitempty"`
}

// add adds what was said later.
func (s *said) add(x said) {
	s.Holds, s.Refusals, s.GaveUp = append(s.Holds, x.Holds...), append(s.Refusals, x.Refusals...), s.GaveUp+x.GaveUp
	if s.Lines == nil {
		s.Lines = map[string][]string{}
	}
	maps.Copy(s.Lines, x.Lines)
	s.Left = cmp.Or(x.Left, s.Left)
}

// A hold as a worker tells it. The times are those of [evidence.Now].
type hold struct {
	Worker   string
	Name     string
	Weight   int
	Token    uint64
	Called   int64 // when it asked
	Got      int64 // when it had an answer
	From, To int64 // the first and the last look that said that it held; 0 if there was none
	Deadline int64
	Returned int64 // when its release had returned
	How      string
}

// A refusal is an error that a worker got.
type refusal struct {
	Worker string
	At     int64
	Text   string
}

// A remainder is what a process found left of itself at its end.
type remainder struct {
	Goroutines   int
	Failure      string
	Missed, Late uint64
}

// childMain returns at once, unless this process was started as a load: then it does what its plan says, and
// ends.
func childMain() {
	text, ok := os.LookupEnv(planVariable)
	if !ok {
		return
	}
	c := &child{out: json.NewEncoder(os.Stdout), goroutines: runtime.NumGoroutine()}
	err := json.Unmarshal([]byte(text), &c.plan)
	switch {
	case err != nil:
	case c.plan.Role != "":
		err = c.play()
	default:
		err = c.begin()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	// One line is the word to stop. The end of the input is the end of the test: nothing is tidied up.
	if in := bufio.NewScanner(os.Stdin); in.Scan() {
		c.end()
		in.Scan()
	}
	os.Exit(0)
}

// child is such a process.
type child struct {
	plan       plan
	goroutines int // before anything was begun
	clients    []*headwaiter.Client
	stop       context.CancelFunc
	work       sync.WaitGroup

	mu  sync.Mutex // guards the fields below
	out *json.Encoder
	due said // what is not sent yet
}

// begin makes the clients and starts their workers.
func (c *child) begin() error {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	for i := range c.plan.Clients {
		option := rueidis.ClientOption{InitAddress: []string{c.plan.Addrs[i%len(c.plan.Addrs)]}, ForceSingleClient: true}
		client, err := headwaiter.Dial(headwaiter.Options{Redis: option, Name: "chaos", Linger: time.Second, GrantLease: c.plan.Grant})
		if err != nil {
			return err
		}
		c.clients = append(c.clients, client)
		for _, name := range c.plan.Names {
			for _, kind := range c.plan.kinds() {
				w := &worker{
					child: c, id: fmt.Sprintf("%d.%d.%s.%q", c.plan.Index, i, kind, name), name: fmt.Sprintf("%s %q", kind, name),
				}
				w.acquire = w.acquirer(client, kind, name)
				c.work.Go(func() { w.run(ctx) })
			}
		}
	}
	return nil
}

// end lets all workers finish, closes the clients, and tells what is left of them.
func (c *child) end() {
	c.stop()
	c.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Shutdown(ctx))
	}
	left := 0
	for end := time.Now().Add(closeLimit); time.Now().Before(end); time.Sleep(time.Millisecond) { // Nobody tells.
		if left = runtime.NumGoroutine() - c.goroutines; left <= 0 {
			break
		}
	}
	var sum observe.Stats
	for _, client := range c.clients {
		s := client.Stats()
		sum.Late += s.Late
		sum.Missed += s.Missed
	}
	c.tell(said{Left: &remainder{left, fmt.Sprint(errors.Join(errs...)), sum.Missed, sum.Late}})
}

// closeLimit is far above what an orderly end takes.
const closeLimit = 20 * time.Second

// tell says something. Holds are many, so they are sent some at a time.
func (c *child) tell(x said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due.Holds != nil || c.due.GaveUp > 0
	if c.due.add(x); x.Lines != nil || x.Left != nil || x.Refusals != nil || len(c.due.Holds) >= inOneLine {
		c.flushLocked()
	} else if !due {
		time.AfterFunc(flushAfter, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flushLocked()
		})
	}
}

// say tells a line of a role.
func (c *child) say(kind string, words ...any) {
	line := []string{}
	for _, w := range words {
		line = append(line, fmt.Sprint(w))
	}
	c.tell(said{Lines: map[string][]string{kind: line}})
}

// What is told often is sent after this time, or as soon as there is so much of it: a line has at most 64 kB.
const (
	flushAfter = 5 * time.Millisecond
	inOneLine  = 100
)

func (c *child) flushLocked() {
	// Nobody reads any more: the end of the input follows.
	_ = c.out.Encode(c.due)
	c.due = said{}
}

// worker takes and gives back one thing, again and again.
type worker struct {
	child   *child
	id      string
	name    string
	acquire func(context.Context) (*lease.Lease, int, error) // and the weight
}

func (w *worker) acquirer(c *headwaiter.Client, kind, name string) func(context.Context) (*lease.Lease, int, error) {
	lasts := headwaiter.WithLease(w.child.plan.Lease)
	switch kind {
	case permits:
		s := semaphore.New(c, name, limits[permits], lasts)
		return func(ctx context.Context) (*lease.Lease, int, error) {
			n := 1 + rand.IntN(int(limits[permits]))
			l, err := s.Acquire(ctx, int64(n))
			return l, n, err
		}
	case reads:
		m := rwlock.New(c, name, lasts)
		return func(ctx context.Context) (*lease.Lease, int, error) {
			if rand.IntN(3) == 0 {
				l, err := m.Lock(ctx)
				return l, int(judge.Readers), err
			}
			l, err := m.RLock(ctx)
			return l, 1, err
		}
	}
	lock := w.locking(c, kind, name)
	return func(ctx context.Context) (*lease.Lease, int, error) {
		l, err := lock(ctx)
		return l, 1, err
	}
}

// locking takes the whole of a name.
func (w *worker) locking(c *headwaiter.Client, kind, name string) func(context.Context) (*lease.Lease, error) {
	lasts := headwaiter.WithLease(w.child.plan.Lease)
	switch kind {
	case entered:
		return reentrant.New(c, name, lasts).Lock
	case several:
		return multilock.New(c, []string{name + " one", name + " two"}, lasts).Lock
	case stripes:
		m := striped.New(c, name+" of many", 2, lasts)
		return func(ctx context.Context) (*lease.Lease, error) { return m.Lock(ctx, "key") }
	case leaders:
		e := election.New(c, name, lasts)
		return func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, "leader") }
	case votes:
		return redlock.New([]*headwaiter.Client{c}, name, lasts, redlock.WithoutSafeRestart()).Lock
	}
	return fairlock.New(c, name, lasts).Lock
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	p := w.child.plan
	for ctx.Err() == nil {
		mine, cancel := ctx, context.CancelFunc(func() {})
		if rand.IntN(1000) < p.Cancel {
			mine, cancel = context.WithTimeout(ctx, rand.N(2*p.Hold))
		}
		called := evidence.Now()
		l, weight, err := w.acquire(mine)
		switch {
		case err == nil:
			w.hold(l, weight, called)
		case mine.Err() == nil || !errors.Is(err, mine.Err()):
			w.child.tell(said{Refusals: []refusal{{w.id, evidence.Now(), err.Error()}}})
			time.Sleep(afterError) // Errors are told, not poured out.
		default:
			w.child.tell(said{GaveUp: 1})
		}
		cancel()
		time.Sleep(rand.N(p.Hold)) // Work of its own, between two holds.
	}
}

// afterError is how long a worker rests that was refused, as a user would.
const afterError = 20 * time.Millisecond

// hold has a hold for some time, and tells when it was certain that it had it.
func (w *worker) hold(l *lease.Lease, weight int, called int64) {
	got, h := evidence.Now(), look(l)
	over := time.After(rand.N(w.child.plan.Hold))
	for more := h.certain(); more; more = h.certain() {
		select {
		case <-l.Context().Done():
		case <-over:
			more = false
		case <-time.After(lookEvery):
		}
		if !more {
			break
		}
	}
	deadline := evidence.Now() // Read before what is left is: so it is no later than the true one.
	deadline += int64(time.Until(l.Deadline()))
	how := outcome(l.Release(context.Background()))
	w.child.tell(said{Holds: []hold{{w.id, w.name, weight, l.Token(), called, got, h.from, h.to, deadline, evidence.Now(), how}}})
}

// lookEvery is how often a holder asks whether it still holds.
const lookEvery = time.Millisecond

// outcome makes a word of what a release answered.
func outcome(err error) string {
	for word, is := range map[string]error{
		"expired": lease.ErrExpired, "forgotten": lease.ErrForgotten, "forced": lease.ErrForced,
		"unconfirmed": lease.ErrUnconfirmed, "unwoken": lease.ErrUnwoken,
	} {
		if errors.Is(err, is) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return released
}

const released = "released"

// looks are when a holder looked at its context and saw that it held: the moments at which nobody else may.
type looks struct {
	lease    *lease.Lease
	from, to int64 // 0 if there was none
}

func look(l *lease.Lease) *looks { return &looks{lease: l} }

// certain looks once more. The time is read first: what the look says of it was still true then.
func (h *looks) certain() bool {
	at := evidence.Now()
	if h.lease.Context().Err() != nil {
		return false
	}
	if h.from == 0 {
		h.from = at
	}
	h.to = at
	return true
}
