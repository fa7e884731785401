package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// enough is how many acquisitions there must be before the first fault. With fewer a case would prove nothing.
	enough = 100
	// back is how long it may take after a fault until every worker that lives has held: what is left of a
	// lease, the time between two looks, and then some, because the machine has other things to do.
	back = 15 * time.Second
	// keep is how long a key may outlive its last use: a minute, and a lease or the time between two looks.
	keep = 90 * time.Second
)

// limitOf is how much may be held of what a record is about.
func limitOf(name string) int64 {
	kind, _, _ := strings.Cut(name, " ")
	return limits[kind]
}

// A run is one case: a server, a load, and what is promised.
type run struct {
	testing.TB
	server   *redistest.Server
	clock    *redistest.Clock // of the server, if it can be set
	stalls   *kit.Stalls
	proxy    *faults.Proxy // through which the load goes, if it does
	load     load
	clients  []*headwaiter.Client // of this process
	options  options
	finished bool
	forgot   []judge.Span
}

// options are how a case differs from the others.
type options struct {
	server    []redistest.Option
	clock     bool // the server has a clock of its own
	processes int
	through   bool // the load goes through a proxy
	plan      plan
	// twice: what is done within forgets loses what the server knew, so two may hold for some time; tokens tell them apart.
	twice bool
	// refusals and outcomes are parts of what the load may be told while the fault lasts.
	refusals []string
	outcomes []string
	keep     time.Duration
}

func args(all ...string) func(*options) {
	return func(o *options) { o.server = append(o.server, redistest.WithArgs(all...)) }
}

// slowLoad is a server that takes its time to load, and answers meanwhile.
func slowLoad(o *options) {
	if args("--key-load-delay", "500")(o); redistest.Before7() { // It answers once in 2 MB.
		args("--rdbcompression", "no")(o)
	} else {
		args("--loading-process-events-interval-bytes", "1024")(o)
	}
}

func hears(refusals ...string) func(*options) { return func(o *options) { o.refusals = refusals } }
func ends(outcomes ...string) func(*options)  { return func(o *options) { o.outcomes = outcomes } }

var lossy = ends("expired", "forgotten", "unconfirmed")

func twice(o *options)    { o.twice = true }
func ownClock(o *options) { o.clock = true }
func through(o *options)  { o.through = true }

// steady is a load in which nobody dies: no hold of it is lost because the machine is busy.
func steady(o *options) { o.plan.Lease, o.plan.Grant = kit.Patience, kit.Patience }

func brieflyHeld(o *options) { o.plan.Lease = time.Second }

// begin starts the load of a case.
func begin(t *testing.T, changes ...func(*options)) *run {
	t.Helper()
	o := options{
		processes: 2, keep: keep,
		plan: plan{Names: []string{"load"}, Clients: 2, Lease: 3 * time.Second, Hold: 12 * time.Millisecond, Cancel: 20},
	}
	for _, change := range changes {
		change(&o)
	}
	r := &run{TB: t, options: o, stalls: kit.WatchStalls(t)}
	if o.clock {
		r.clock = redistest.NewClock(t)
		o.server = append(o.server, redistest.WithClock(r.clock))
	}
	r.server = redistest.Start(t, o.server...)
	o.plan.Addrs = []string{r.server.Addr()}
	if o.through {
		r.proxy = kit.Proxy(t, r.server)
		o.plan.Addrs = []string{r.proxy.Addr()}
	}
	r.load = newLoad(t, o.processes, o.plan)
	t.Cleanup(func() {
		if !r.finished && !t.Failed() {
			t.Error("the case has not finished its run")
		}
	})
	r.load.allIn(t, 0, kit.Patience)
	r.goesOn(enough)
	return r
}

// goesOn waits until the load has held that many times more.
func (r *run) goesOn(times int) {
	r.Helper()
	n := r.load.count()
	kit.Eventually(r, fmt.Sprintf("%d acquisitions of the load", times), func() bool { return r.load.count() >= n+times })
}

// everybody waits until every worker that lives has held once more.
func (r *run) everybody() {
	r.Helper()
	began := time.Now()
	r.load.allIn(r, evidence.Now(), back)
	evidence.Recovered(r, everyWorker, time.Since(began), back)
}

// finish ends the load and judges all that was told.
func (r *run) finish() {
	r.Helper()
	r.finished = true
	var history []hold
	var missed, late uint64
	gaveUp := 0
	for _, c := range r.load {
		if c.alive() {
			rest := c.finish(r)
			require.Zero(r, rest.Goroutines, "goroutines that are left in a process")
			require.Equal(r, "<nil>", rest.Failure, "closing")
			missed, late = missed+rest.Missed, late+rest.Late
		}
		holds, refusals := c.told()
		history, gaveUp = append(history, holds...), gaveUp+c.said.GaveUp
		for _, x := range refusals {
			r.allowed("a call", x.Text, r.options.refusals)
		}
	}
	lost := 0
	for _, h := range history {
		if h.How != released {
			r.allowed("a release", h.How, r.options.outcomes)
			lost++
		}
	}
	evidence.Fault(r, evidence.GaveUp, gaveUp)
	r.judge(history)
	r.nothingLeft()
	r.Logf("%d acquisitions, %d of them lost, %d messages missed, %d requests late", len(history), lost, missed, late)
}

// forgets does what loses what the server knew, if it is a case of that.
func (r *run) forgets(lose func()) {
	from := evidence.Now()
	lose()
	if r.options.twice {
		r.forgot = append(r.forgot, judge.Span{From: time.Duration(from), To: time.Duration(evidence.Now())})
	}
}

// judge judges holds, and keeps them.
func (r *run) judge(holds []hold) {
	r.Helper()
	for _, h := range historiesOf(holds, r.forgot) {
		require.Empty(r, h.Evidence(r))
	}
}

// allowed fails the case if the load was told something that it should not be.
func (r *run) allowed(what, text string, parts []string) {
	r.Helper()
	if !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) }) {
		r.Errorf("%s failed with %q", what, text)
	}
}

// nothingLeft asserts that the load left nothing in the server but keys that expire soon.
func (r *run) nothingLeft() {
	r.Helper()
	const never = -1 // what Redis answers for a key that does not expire
	for _, key := range r.server.List("KEYS", "headwaiter:*load*") {
		left := r.server.Int("PTTL", key)
		require.NotEqual(r, never, int(left), "%s stays for ever", key)
		require.LessOrEqual(r, time.Duration(left)*time.Millisecond, r.options.keep, "%s stays for long", key)
	}
	for _, channel := range r.server.List("PUBSUB", "CHANNELS", "headwaiter:*load*") {
		r.Errorf("somebody is subscribed to %s", channel)
	}
}

// dial makes a client of this process.
func (r *run) dial(changes ...func(*headwaiter.Options)) *headwaiter.Client {
	r.Helper()
	c := kit.Dial(r, r.server, changes...)
	r.clients = append(r.clients, c)
	return c
}

// keyOf is the key of a lock.
func keyOf(name string) string { return lua.Fairlock.Keys("headwaiter", name).Lock }

// granted locks m, which must come in time.
func granted(t testing.TB, m *fairlock.Mutex) *lease.Lease {
	t.Helper()
	return kit.Lock(t.Context(), m.Lock).Value(t)
}

// queued begins to lock m, and returns when n wait for it.
func queued(t testing.TB, m *fairlock.Mutex, n int) *kit.Call[*lease.Lease] {
	t.Helper()
	return kit.Joins(t, n, m.Lock, m.Inspect)
}

// A watch looks at a hold all the time, as a careful holder would.
type watch struct {
	looks
	done sync.WaitGroup
}

// watched begins to look at a hold.
func watched(l *lease.Lease) *watch {
	w := &watch{looks: looks{lease: l}}
	w.certain()
	w.done.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for w.certain() {
			select {
			case <-tick.C:
			case <-l.Context().Done():
			}
		}
	})
	return w
}

// told waits until the holder was told that it lost its hold, and asserts that it never saw that it held after
// the server's end of its lease, in µs of the server's clock. It returns why.
func (w *watch) told(t testing.TB, until int64) error {
	t.Helper()
	cause := kit.Lost(t, w.lease)
	w.done.Wait()
	require.ErrorIs(t, cause, lease.ErrLost)
	end := mono(until)
	require.LessOrEqual(t, w.to, end, "the holder was certain %v after the end of its lease", time.Duration(w.to-end))
	return cause
}

// mono turns µs of the wall clock into a time of now.
func mono(us int64) int64 { return evidence.Now() + us*1000 - time.Now().UnixNano() }

// until is the server's end of the lease on a lock.
func (r *run) until(name string) int64 {
	r.Helper()
	return kit.Until(r.server, keyOf(name))
}
