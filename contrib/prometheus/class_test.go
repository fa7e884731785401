package prometheus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/observe"
)

// handOff is a moment of a name.
func handOff(name string) observe.Observation {
	return observe.Observation{Event: observe.HandedOff, Name: name}
}

func other(n float64) values {
	return values{`headwaiter_handoffs_total{class="other",kind="lock"}`: n}
}

func TestClassesBeyondTheLimitAreOneAndThatIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := prometheus.NewCollector(prometheus.Options{
		Class: func(name string) string { return name }, MaxClasses: 3, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 2 {
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
	}
	require.Empty(t, log.String(), "a log may take its time, a call may not")
	found := scrape(t, c)
	require.Equal(t, values{
		`headwaiter_handoffs_total{class="0",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="1",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="2",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="other",kind="lock"}`: 2 * 997,
	}, found.of("headwaiter_handoffs_total"))
	require.Equal(t, 997., found[`headwaiter_unclassified_names_total{reason="limit"}`])
	scrape(t, c)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "more classes of names than Options.MaxClasses")
	require.Contains(t, log.String(), "max_classes=3")
}

func TestMoreNamesThanAreRememberedStayInTheirClasses(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := prometheus.NewCollector(prometheus.Options{Class: func(name string) string {
		asked.Add(1)
		return name[:1]
	}})
	const names = 40_000
	for range 2 {
		for i := range names {
			tell(c, handOff(fmt.Sprint(i)))
		}
	}
	require.Equal(t, float64(2*names), scrape(t, c).sum("headwaiter_handoffs_total"))
	require.Len(t, scrape(t, c).of("headwaiter_handoffs_total"), 10)
	require.Equal(t, int64(2*names), asked.Load())
}

func TestAnswersOfTheClassFunctionAreRemembered(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
		asked.Add(1)
		return "all"
	}})
	for i := range 10_000 { // More than one generation of names.
		tell(c, handOff("first"), handOff(fmt.Sprint(i)))
	}
	require.LessOrEqual(t, asked.Load(), int64(10_001))
}

func TestAClassFunctionThatPanicsHurtsNobody(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := prometheus.NewCollector(prometheus.Options{
		Class: func(string) string { panic("on purpose") }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	tell(c, handOff("a"), handOff("a"), handOff("b"))
	found := scrape(t, c)
	require.Equal(t, other(3), found.of("headwaiter_handoffs_total"))
	require.Equal(t, 2., found[`headwaiter_unclassified_names_total{reason="panic"}`])
	require.Contains(t, log.String(), "Options.Class panicked")
}

func TestAClassThatNoLabelCanHaveIsNone(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]string{"bytes": "a\xffb", "a book": strings.Repeat("x", 1000)} {
		kit.Parallel(t, name, func(t *testing.T) {
			c := prometheus.NewCollector(prometheus.Options{Class: func(string) string { return class }})
			tell(c, handOff("a"))
			found := scrape(t, c)
			require.Equal(t, other(1), found.of("headwaiter_handoffs_total"))
			require.Equal(t, 1., found[`headwaiter_unclassified_names_total{reason="unusable"}`])
		})
	}
}

func TestAClassFunctionThatHangsHoldsUpOneCallForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
			<-hang
			return "late"
		}})
		begun := time.Now()
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
		require.Equal(t, time.Second, time.Since(begun))
		close(hang)
		synctest.Wait()
		tell(c, handOff("0"), handOff("after that"))
		found := scrape(t, c)
		require.Equal(t, other(1002), found.of("headwaiter_handoffs_total"))
		require.Equal(t, 1001., found[`headwaiter_unclassified_names_total{reason="slow"}`])
	})
}

func TestASlowClassFunctionIsNotAskedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		takes := 500 * time.Millisecond
		c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
			synctime.Pass(takes)
			return "slow"
		}})
		begun := time.Now()
		tell(c, handOff("first"))
		takes = 0
		tell(c, handOff("second")) // In time: from here on it counts anew.
		takes = 500 * time.Millisecond
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
		require.Equal(t, 11*takes, time.Since(begun))
		found := scrape(t, c).of("headwaiter_handoffs_total")
		require.Equal(t, 12., found[`headwaiter_handoffs_total{class="slow",kind="lock"}`])
		require.Equal(t, 990., found[`headwaiter_handoffs_total{class="other",kind="lock"}`])
	})
}

// Counting up and down must happen in the same time series, whoever comes first.
func TestManyGoroutinesFindTheSameClasses(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCollector(prometheus.Options{
		MaxClasses: 5, Class: func(name string) string { return name[len(name)-1:] },
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 3000 {
				name := fmt.Sprint(i)
				tell(c, observe.Observation{Event: observe.Began, Name: name})
				tell(c, observe.Observation{Event: observe.Failed, Name: name, Err: context.Canceled})
			}
		})
	}
	all.Wait()
	found := scrape(t, c)
	require.Equal(t, 24_000., found.sum("headwaiter_attempts_total"))
	classes := 0
	for name, n := range found.of("headwaiter_waiting_calls") {
		classes++
		require.Zero(t, n, name)
	}
	require.Equal(t, 6, classes)
}

const (
	watchedGroups = 31
	watchedTurns  = 20 // of each in a group
	// watchedSlice is short, so that what else the machine does hits both alike.
	watchedSlice = 10 * time.Millisecond
	// watchedLeast is what must be left of the rate.
	watchedLeast = 0.93
)

// means turns on what there is to see a client with, of one kind or all.
func means(which string) func(*headwaiter.Options) {
	is := func(one string) bool { return which == one || which == "all" }
	return func(o *headwaiter.Options) {
		if is("metrics") {
			o.Observer = prometheus.NewCollector(prometheus.Options{Class: classOf})
		}
		if is("log") {
			o.Log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelInfo}))
		}
		if is("limit") {
			o.HeldTooLong = time.Second
		}
	}
}

// gang is some clients that want one lock, each with one worker.
type gang []*fairlock.Mutex

func newGang(b *testing.B, s redistest.Backend, name string, n int, changes ...func(*headwaiter.Options)) gang {
	g := make(gang, n)
	for i := range g {
		g[i] = fairlock.New(kit.Dial(b, s, changes...), name)
	}
	return g
}

// A tally is what was done in some slices.
type tally struct {
	cycles    int64
	time, cpu time.Duration
}

func (t tally) rate() float64 { return float64(t.cycles) / t.time.Seconds() }

// cycles lets all lock and release for a slice, and adds what they did to a tally.
func (g gang) cycles(b *testing.B, to *tally) {
	var n atomic.Int64
	var all sync.WaitGroup
	begun, cpu := time.Now(), cpuTime(b)
	for _, m := range g {
		all.Go(func() {
			for time.Since(begun) < watchedSlice {
				l, err := m.Lock(context.Background())
				if err != nil || l.Release(context.Background()) != nil {
					b.Errorf("lock: %v", err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	to.cycles += n.Load()
	to.time += time.Since(begun)
	to.cpu += cpuTime(b) - cpu
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkWatched compares clients with metrics and a log at level info with clients without, slice by slice in turns:
// W1 of 1 client, W4 of several. It reports the median of the ratios of the rates, and what a cycle costs this process.
// What the ratio by nothing differs from 1 by is what the machine does to the others too. With -short it is one group, to
// see that it works.
//
//	go test -run '^$' -bench Watched -benchtime 1x ./contrib/prometheus
func BenchmarkWatched(b *testing.B) {
	groups := watchedGroups
	if testing.Short() {
		groups = 1
	}
	for _, c := range []struct {
		clients int
		by      string
	}{{1, "nothing"}, {1, "metrics"}, {1, "log"}, {1, "limit"}, {1, "all"}, {2, "all"}, {8, "all"}, {32, "all"}} {
		b.Run(fmt.Sprintf("clients=%d/by=%s", c.clients, c.by), func(b *testing.B) {
			s := redistest.Start(b)
			with, without := newGang(b, s, "orders:with", c.clients, means(c.by)), newGang(b, s, "orders:without", c.clients)
			var ratios []float64
			var seen, unseen tally
			for b.Loop() {
				for range groups {
					var w, wo tally
					for turn := range watchedTurns {
						if turn%2 == 0 {
							with.cycles(b, &w)
							without.cycles(b, &wo)
						} else {
							without.cycles(b, &wo)
							with.cycles(b, &w)
						}
					}
					ratios = append(ratios, w.rate()/wo.rate())
					seen, unseen = seen.plus(w), unseen.plus(wo)
				}
			}
			slices.Sort(ratios)
			if median := ratios[len(ratios)/2]; median < watchedLeast && groups == watchedGroups {
				b.Errorf("%.3f of the rate is left, less than %v", median, watchedLeast)
			}
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(seen.rate()/unseen.rate(), "ratio-all")
			b.ReportMetric(unseen.rate(), "cycles/s")
			b.ReportMetric(float64(unseen.cpu.Microseconds())/float64(unseen.cycles), "µs-cpu/cycle")
			b.ReportMetric(float64(seen.cpu.Microseconds())/float64(seen.cycles), "µs-cpu-seen/cycle")
		})
	}
}

func (t tally) plus(o tally) tally { return tally{t.cycles + o.cycles, t.time + o.time, t.cpu + o.cpu} }
