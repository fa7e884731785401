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
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// rate is how many acquisitions a second there must be before the first fault. With fewer a case would
	// prove nothing.
	rate = 100
	// rateOver is how long they are counted at least.
	rateOver = 300 * time.Millisecond
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
	row      string
	server   *redistest.Server
	stalls   *kit.Stalls
	proxy    *faults.Proxy // through which the load goes, if it does
	load     load
	clients  []*headwaiter.Client // of this process
	options  options
	finished bool
	forgot   []check.Span
	rate     float64 // of acquisitions before the first fault
}

// options are how a case differs from the others.
type options struct {
	server    []redistest.Option
	on        *redistest.Server // instead of one of its own
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

// begin starts the load of a case.
func begin(t *testing.T, row string, changes ...func(*options)) *run {
	t.Helper()
	o := options{
		processes: 2, keep: keep,
		plan: plan{Names: []string{"load"}, Clients: 2, Lease: 3 * time.Second, Hold: 6 * time.Millisecond, Cancel: 20},
	}
	for _, change := range changes {
		change(&o)
	}
	r := &run{TB: t, row: row, options: o, server: o.on, stalls: kit.WatchStalls(t)}
	if r.server == nil {
		r.server = redistest.Start(t, o.server...)
	}
	addr := r.server.Addr()
	if o.through {
		r.proxy = kit.Proxy(t, r.server)
		addr = r.proxy.Addr()
	}
	if o.plan.Addrs == nil {
		o.plan.Addrs = []string{addr}
	}
	r.load = newLoad(t, o.processes, o.plan)
	t.Cleanup(func() {
		if !r.finished && !t.Failed() {
			t.Error("the case has not finished its run")
		}
	})
	r.load.allIn(t, 0, kit.Patience)
	r.count()
	return r
}

// count waits until the load is large enough to prove something. A machine that does something else for some
// time has it start later.
func (r *run) count() {
	r.Helper()
	n, began := r.load.count(), time.Now()
	kit.Eventually(r, fmt.Sprintf("%d acquisitions a second", rate), func() bool {
		passed := time.Since(began)
		if passed < rateOver {
			return false
		}
		r.rate = float64(r.load.count()-n) / passed.Seconds()
		n, began = r.load.count(), time.Now()
		return r.rate >= rate
	})
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
			require.Zero(r, rest.goroutines, "goroutines that are left in a process")
			require.Equal(r, "<nil>", rest.failure, "closing")
			missed, late = missed+rest.missed, late+rest.late
		}
		holds, refusals := c.told()
		history, gaveUp = append(history, holds...), gaveUp+c.gaveUp
		for _, x := range refusals {
			r.allowed("a call", x.text, r.options.refusals)
		}
	}
	lost := 0
	for _, h := range history {
		if h.how != released {
			r.allowed("a release", h.how, r.options.outcomes)
			lost++
		}
	}
	evidence.Fault(r, evidence.GaveUp, gaveUp)
	r.judge(history)
	r.nothingLeft()
	r.Logf("%s: %.0f/s before the fault, %d acquisitions, %d of them lost, %d messages missed, %d requests late",
		r.row, r.rate, len(history), lost, missed, late)
}

// forgets does what loses what the server knew, if it is a case of that.
func (r *run) forgets(lose func()) {
	from := evidence.Now()
	lose()
	if r.options.twice {
		r.forgot = append(r.forgot, check.Span{From: time.Duration(from), To: time.Duration(evidence.Now())})
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
	c := kit.Lock(t.Context(), m.Lock)
	kit.Waiting(t, n, m.Inspect)
	return c
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
