package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

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
