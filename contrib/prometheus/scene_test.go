package prometheus_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/picture"
	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/promtest"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

var sceneTime = flag.Duration("scene", 8*time.Second, "how long the run lasts that Prometheus looks at")

// sceneLease is the lease of the holds in a scene: the longer that lasts, the less a busy machine disturbs it.
func sceneLease() time.Duration { return min(max(*sceneTime/12, runLease), 4*time.Second) }

// scene is a run that Prometheus looks at: members as processes would be, each with a page of metrics.
type scene struct {
	members []*member
	real    *truth
	classic *promtest.Server
	native  *promtest.Server // that scrapes native histograms
	begun   time.Time
	events  []picture.Event

	s     *redistest.Server
	admin *headwaiter.Client
	over  chan struct{} // closed when no new calls are to be made
	calls sync.WaitGroup
}

// absolute returns names of files as any process finds them.
func absolute(t testing.TB, all []string) []string {
	t.Helper()
	for i := range all {
		all[i] = kit.Got(filepath.Abs(all[i]))(t)
	}
	return all
}

// play starts a scene.
func play(t *testing.T) *scene {
	sc := &scene{s: redistest.Start(t), real: newTruth(t, sceneLease()), over: make(chan struct{})}
	sc.admin = kit.Dial(t, sc.s)
	var targets []string
	for range runMembers {
		m := join(t, sc.s, headwaiter.Options{HeldTooLong: sceneLease()})
		sc.real.clients = append(sc.real.clients, m.client.ID())
		registry := prom.NewRegistry()
		require.NoError(t, registry.Register(m))
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		page := httptest.NewServer(mux)
		t.Cleanup(page.Close)
		sc.members, targets = append(sc.members, m), append(targets, strings.TrimPrefix(page.URL, "http://"))
	}
	o := promtest.Options{Targets: targets, Rules: absolute(t, files(t, "rules/*.yml"))}
	sc.classic = promtest.Start(t, o)
	o.Native = true
	sc.native = promtest.Start(t, o)
	// Every counter is there before it counts: what Prometheus has not seen at 0 it cannot see rise.
	for _, m := range sc.members {
		stop := make(chan struct{})
		close(stop)
		sc.orders(m, rand.New(rand.NewPCG(1, 2)), stop)
	}
	for _, p := range []*promtest.Server{sc.classic, sc.native} {
		kit.Eventually(t, "all pages to be scraped", func() bool {
			return len(p.Ask(t, `headwaiter_holds{class="orders"}`)) == len(targets)
		})
	}
	sc.begun = time.Now()
	return sc
}

// orders makes calls of a member, one at least, until it is to stop.
func (sc *scene) orders(m *member, r *rand.Rand, stop <-chan struct{}) {
	for more := true; more; {
		c := call{
			kind: "lock", class: "orders", acquire: fairlock.New(m.client, "orders:1", headwaiter.WithLease(sceneLease())).Lock,
			hold: func(l *lease.Lease) { linger(l, time.Duration(1+r.IntN(3))*time.Millisecond) },
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if r.IntN(20) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), 30*time.Millisecond)
		}
		sc.real.make(ctx, c)
		cancel()
		more = !kit.Closed(stop)
	}
}

// reports makes calls whose holds last, so that they are renewed, and now and then for too long.
func (sc *scene) reports(m *member, r *rand.Rand) {
	for !kit.Closed(sc.over) {
		sc.real.make(context.Background(), call{
			kind: "lock", class: "reports",
			acquire: fairlock.New(m.client, "reports:1", headwaiter.WithLease(sceneLease())).Lock,
			hold:    func(l *lease.Lease) { linger(l, sceneLease()/2+time.Duration(r.Int64N(int64(sceneLease())))) },
		})
	}
}

// run lets the members work, with troubles in between, for as long as the scene lasts; more of them in its middle.
func (sc *scene) run(t *testing.T) {
	for i, m := range sc.members {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		sc.calls.Go(func() { sc.reports(m, r) })
		for w := range 2 {
			r := rand.New(rand.NewPCG(9, uint64(i*runMembers+w)))
			sc.calls.Go(func() { sc.orders(m, r, sc.over) })
		}
	}
	begun := time.Now()
	at := func(part float64) { <-time.After(time.Until(begun.Add(time.Duration(part * float64(*sceneTime))))) }
	event := func(part float64, what string) {
		at(part)
		sc.events = append(sc.events, picture.Event{At: time.Now(), What: what})
	}
	trouble := func(part float64, n int, what string) {
		event(part, what)
		sc.real.trouble(t, sc.s, sc.members[n%runMembers], sc.admin, n)
	}
	trouble(.15, 3, "a process that holds is killed, with calls in the queue")
	event(.3, "24 more workers come")
	var crowd sync.WaitGroup
	stop := make(chan struct{})
	for i, m := range sc.members {
		for w := range 6 {
			r := rand.New(rand.NewPCG(11, uint64(i*10+w)))
			crowd.Go(func() { sc.orders(m, r, stop) })
		}
	}
	event(.5, "they leave")
	close(stop)
	kit.All(t, &crowd)
	trouble(.6, 1, "a hold is released by force")
	trouble(.7, 3, "a process is killed as before")
	trouble(.75, 2, "a holder is cut off from Redis until its lease runs out")
	at(1)
}

// end lets the calls end, and returns when Prometheus has seen all that they did.
func (sc *scene) end(t *testing.T) {
	close(sc.over)
	kit.All(t, &sc.calls)
	for _, p := range []*promtest.Server{sc.classic, sc.native} {
		all := sc.real.calls.Load()
		kit.Eventually(t, "the last calls to be scraped", func() bool {
			counted := p.Ask(t, "sum(headwaiter_attempts_total)")
			gone := p.Ask(t, "sum(headwaiter_holds) + sum(headwaiter_waiting_calls)")
			return len(counted) == 1 && int64(counted[0].Value) == all && len(gone) == 1 && gone[0].Value == 0
		})
	}
}
