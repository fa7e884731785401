package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/redlock"
)

var list = flag.Bool("faults.list", false, "print the names of the cases, and run nothing")

func TestMain(m *testing.M) {
	childMain()
	mortalMain()
	crowd.Main()
	flag.Parse()
	if *list {
		for _, f := range table {
			if f.shown != nil {
				fmt.Println(f.name())
			}
		}
		os.Exit(0)
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// They wait for most of their time.
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	leaks.Main(m)
}

// Roles of a process that is no load.
const (
	starved = "starved" // holds much, and has no time for renewals
	clocked = "clocked" // holds and waits, and says what its clocks do to it
	giver   = "giver"   // hands a hold over
	taker   = "taker"   // adopts one
	dozer   = "dozer"   // waits for a redlock of one node, and says what it got
	party   = "party"   // meets others at a barrier, counts a latch down with them, and says in which order they came
)

// play does what the role wants.
func (c *child) play() error {
	client, err := headwaiter.Dial(headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: c.plan.Addrs[:1], ForceSingleClient: true}, GrantLease: c.plan.Grant,
	})
	if err != nil {
		return err
	}
	switch c.plan.Role {
	case clocked:
		return c.clocked(client)
	case dozer:
		go c.dozer(client)
		return nil
	case party:
		go c.party(client)
		return nil
	case giver:
		return c.giver(client)
	case taker:
		return c.taker(client)
	}
	return c.starved(client)
}

// starved has one processor, on which it holds much and works without a pause.
func (c *child) starved(client *headwaiter.Client) error {
	runtime.GOMAXPROCS(1)
	var all []*looks
	names := make(map[*looks]string)
	for i := range c.plan.Clients {
		name := fmt.Sprintf("%s:%d", c.plan.Names[0], i)
		l, err := fairlock.New(client, name, headwaiter.WithLease(c.plan.Lease)).Lock(context.Background())
		if err != nil {
			return err
		}
		h := look(l)
		names[h] = name
		all = append(all, h)
	}
	for range 2 {
		go func() {
			for n := 0; ; n++ { // No call, no wait: as long as the scheduler lets it.
				_ = n
			}
		}()
	}
	go func() {
		for len(all) > 0 {
			left := all[:0]
			for _, h := range all {
				if h.certain() {
					left = append(left, h)
					continue
				}
				c.tell(said{Holds: []hold{{Name: names[h], From: h.from, To: h.to}}})
			}
			all = left
			time.Sleep(lookEvery) // The work: to see whether it still holds.
		}
	}()
	c.say("K")
	return nil
}

// clockedWait is how long a process waits in vain while its clocks are set.
const clockedWait = 3 * time.Second

// clocked holds the first name until it is lost, and waits for the second for some time.
func (c *child) clocked(client *headwaiter.Client) error {
	l, err := fairlock.New(client, c.plan.Names[0], headwaiter.WithLease(c.plan.Lease)).Lock(context.Background())
	if err != nil {
		return err
	}
	start := time.Now()
	offset := start.UnixNano() - evidence.Now()
	c.say("K")
	go func() {
		began := evidence.Now()
		ctx, cancel := context.WithTimeout(context.Background(), clockedWait)
		defer cancel()
		c.say("T", kit.Err(fairlock.New(client, c.plan.Names[1]).Lock(ctx)), time.Duration(evidence.Now()-began))
	}()
	go func() {
		h := look(l)
		for jumped := false; h.certain(); time.Sleep(lookEvery) { // The work.
			if ahead := time.Duration(time.Now().UnixNano() - evidence.Now() - offset); ahead.Abs() > time.Minute && !jumped {
				jumped = true
				c.say("C", ahead)
			}
		}
		c.tell(said{Holds: []hold{{Token: l.Token(), From: h.from, To: h.to, How: outcome(context.Cause(l.Context()))}}})
	}()
	return nil
}

// dozer waits for its name, and says how its hold is as the call returns.
func (c *child) dozer(client *headwaiter.Client) {
	m := redlock.New([]*headwaiter.Client{client}, c.plan.Names[0], redlock.WithoutSafeRestart())
	l, err := m.Lock(context.Background())
	if err == nil {
		err = context.Cause(l.Context())
	}
	c.say("D", err)
}

// waits judges how long each worker waited, by the holds of all.
type waits struct {
	held  [1024]stay // the last ones, round and round
	got   int
	worst wait // in which nobody held for the longest time
	took  time.Duration
	turns int // the most
}

// stay is the time of one hold, from the start.
type stay struct{ got, released time.Duration }

// wait is one: how long it was, how many held meanwhile, and how long nobody did.
type wait struct {
	took, idle time.Duration
	turns      int
}

// add notes a hold, after all that were released before it began, and says what is wrong with the wait for it. The
// holders sleep, so how long they held is no matter of the lock's, but how many they were, and the time between them is:
// no more than mostIdle, and the time in which the machine stood still.
func (x *waits) add(h stay, called, stood time.Duration) string {
	w := wait{took: h.got - called}
	w.idle = w.took
	for _, o := range x.held {
		if o.released > called {
			w.idle -= min(o.released, h.got) - max(o.got, called)
			w.turns++
		}
	}
	if w.idle > x.worst.idle {
		x.worst = w
	}
	x.took, x.turns = max(x.took, w.took), max(x.turns, w.turns)
	x.held[x.got%len(x.held)] = h
	x.got++
	if w.turns > mostTurns+int(stood/holds) {
		return fmt.Sprintf("at %v a wait of %d turns, more than %d", h.got, w.turns, mostTurns)
	}
	if limit := mostIdle + stood; w.idle > limit {
		return fmt.Sprintf("at %v a wait in which nobody held for %v, more than %v", h.got, w.idle, limit)
	}
	return ""
}

// after returns a wait behind n others, each with a hold and a pause after it.
func after(n int, holds, pause, stood time.Duration) string {
	var x waits
	at := time.Duration(0)
	for range n {
		x.add(stay{at, at + holds}, at, 0)
		at += holds + pause
	}
	return x.add(stay{at, at + holds}, 0, stood)
}

func TestAWaitIsAsManyTurnsAsThereAreWorkersAndNoTimeBeside(t *testing.T) {
	t.Parallel()
	require.Empty(t, after(workers, holds, holds/4, 0))
	require.Empty(t, after(workers, time.Second, holds/4, 0), "the machine, or the work, is slow: the holds are long")
	require.Empty(t, after(workers, holds, 2*holds, 2*turn), "it stood still")
	require.Contains(t, after(600, holds, 0, 0), "a wait of 600 turns", "30 s in which the others held all the time")
	require.Contains(t, after(mostTurns+1, holds, 0, 0), "turns", "overtaken")
	require.Contains(t, after(workers, holds, 2*holds, 0), "nobody held")
	require.Contains(t, after(workers, time.Second, 2*holds, 0), "nobody held", "however long the others hold")
	require.Contains(t, after(1, holds, 2*time.Second, 0), "nobody held", "a hand-off that waits for a look")
}

// long reports whether this is the long form.
func long() bool { return os.Getenv("CHAOS_LONG") != "" }

// either is how often something is done in the short form and in the long one.
func either(short, lengthy int) int {
	if long() {
		return lengthy
	}
	return short
}

// Spans that are measured. Each has a bound, which holds for every single case.
const (
	deadHolder   = "dead holder, after its lease"
	killedWaiter = "dead waiters, killed"
	stopped      = "dead waiters, stopped"
	lostMessage  = "lost message"
	killedEars   = "killed subscriber"
	quitter      = "waiter that gave up at the moment of the grant"
	restart      = "server restart, after it is back"
	handOff      = "hand-off at 50 ms round trip"
	unadopted    = "hold in transit, or of a dead holder, after its time"
	everyWorker  = "every worker of the load has held again"
)

var bounds = map[string]time.Duration{
	deadHolder: 200 * time.Millisecond, killedWaiter: 100 * time.Millisecond, stopped: 5 * time.Second,
	lostMessage: 4 * time.Second, killedEars: 200 * time.Millisecond, quitter: 100 * time.Millisecond,
	restart: time.Second, handOff: 100 * time.Millisecond, unadopted: 200 * time.Millisecond,
}

// mostOf is the bound of a single case of a kind: the kind's own, unless chance makes up most of it. A client that lost
// its connection hears again within 200 ms, spread evenly, and then needs no longer than a hand-off may take. With other
// cases running
// it is a second, which is still less than a look takes that was needed.
func mostOf(kind string) time.Duration {
	bound := bounds[kind]
	if kind == killedEars {
		bound = 300 * time.Millisecond
	}
	if !long() {
		bound = max(bound, time.Second)
	}
	return bound
}

// span is a time that is measured.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return s.to.Sub(s.from) }

// without are the times that spans took, without what stood says of the time between two moments: that the machine had no
// turn for anything.
func without(spans []span, stood func(from, to time.Time) time.Duration) (took []time.Duration) {
	for _, s := range spans {
		took = append(took, max(0, s.took()-stood(s.from, s.to)))
	}
	return took
}

// overdue are those times that are longer than a bound.
func overdue(took []time.Duration, bound time.Duration) (found []time.Duration) {
	for _, d := range took {
		if d > bound {
			found = append(found, d)
		}
	}
	return found
}

// measured judges spans of a kind, and keeps them.
func (r *run) measured(kind string, spans []span) {
	r.Helper()
	took := without(spans, r.stalls.Within)
	sorted := slices.Sorted(slices.Values(took))
	r.Logf("%s: median %v, worst %v of %d; the machine stood still for %v",
		kind, sorted[len(sorted)/2], sorted[len(sorted)-1], len(spans), r.stalls.Within(spans[0].from, spans[len(spans)-1].to))
	require.True(r, !long() || sorted[len(sorted)/2] <= bounds[kind], "the median of %s: %v", kind, sorted)
	require.Empty(r, overdue(took, mostOf(kind)), "%s: more than %v", kind, mostOf(kind))
	for _, d := range took {
		evidence.Recovered(r, kind, d, mostOf(kind))
	}
}

func TestEachSpanHasItsBoundAndTheStallsOfTheMachineDoNotCount(t *testing.T) {
	t.Parallel()
	began := time.Now()
	spans := make([]span, 101)
	for i := range spans {
		spans[i] = span{began, began.Add(10 * time.Millisecond)}
	}
	none := func(time.Time, time.Time) time.Duration { return 0 }
	require.Empty(t, overdue(without(spans, none), 100*time.Millisecond))
	spans[50].to = began.Add(1900 * time.Millisecond)
	require.Len(t, overdue(without(spans, none), 100*time.Millisecond), 1, "one that waited for a look, among a hundred that did not")
	stood := without(spans, func(from, to time.Time) time.Duration { return max(0, to.Sub(from)-50*time.Millisecond) })
	require.Empty(t, overdue(stood, 100*time.Millisecond), "the machine stood still")
}
