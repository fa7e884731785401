package sqllock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
)

// cycle takes a lock and gives it back.
type cycle func(ctx context.Context) error

// A rival is one way to lock: what makes a client of it, with connections of its own.
type rival struct {
	name string
	dial func(b *testing.B) cycle
}

// plain is what pg_advisory_lock costs by itself, on a connection that is kept.
func plain(url, lock string) func(*testing.B) cycle {
	return func(b *testing.B) cycle {
		conn, err := pgx.Connect(b.Context(), url)
		require.NoError(b, err)
		b.Cleanup(func() { _ = conn.Close(context.Background()) })
		return func(ctx context.Context) error {
			if _, err := conn.Exec(ctx, lock, 1); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", 1)
			return err
		}
	}
}

func of(m mutex) cycle {
	return func(ctx context.Context) error {
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
}

// one lets a client have one connection for statements, as a plain lock has.
func one(o *sqllock.Options) { o.Config.MaxConns = 1 }

// A slice is this many cycles of one kind, or so many for each client, before it is another's turn.
const (
	slice     = 128
	sliceEach = 16
)

// compare lets slices of all rivals take turns, so that what else the machine does hits them alike, and reports for each
// the median time of a cycle, and the median of how much longer that is than the first rival's beside it.
func compare(b *testing.B, clients int, rivals []rival) {
	runs, spans := make([][]cycle, len(rivals)), make([][]float64, len(rivals))
	for i, r := range rivals {
		for range clients {
			run := r.dial(b)
			require.NoError(b, run(b.Context()))
			runs[i] = append(runs[i], run)
		}
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(rivals)) {
			spans[i] = append(spans[i], micros(b, runs[i]))
		}
	}
	for i, r := range rivals {
		b.ReportMetric(median(spans[i]), r.name+"-µs")
		if i > 0 {
			ratios := make([]float64, len(spans[i]))
			for n, span := range spans[i] {
				ratios[n] = span / spans[0][n]
			}
			b.ReportMetric(median(ratios), r.name+"-×")
		}
	}
	b.ReportMetric(0, "ns/op") // Of all together: it says nothing.
}

// micros runs a slice of cycles, shared between clients, and returns the µs of each.
func micros(b *testing.B, runs []cycle) float64 {
	each := max(slice/len(runs), sliceEach)
	var all sync.WaitGroup
	begun := time.Now()
	for _, run := range runs {
		all.Go(func() {
			for range each {
				if err := run(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(time.Since(begun).Nanoseconds()) / 1000 / float64(each*len(runs))
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// crowds are how many clients want one lock as fast as they can; one contends with nobody.
var crowds = []int{1, 2, 8, 32}

// BenchmarkSession compares session locks with plain ones: go test -run xxx -bench Session -benchtime 301x.
func BenchmarkSession(b *testing.B) {
	for _, clients := range crowds {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			url := schema(b)
			compare(b, clients, []rival{
				{"plain", plain(url, "SELECT pg_advisory_lock($1)")},
				{"session", func(b *testing.B) cycle { return of(sqllock.NewSession(dial(b, url, one), "a")) }},
				{"token", plain(url, "SELECT headwaiter_lock($1)")},
			})
		})
	}
}

// BenchmarkLeased compares leased locks with plain ones.
func BenchmarkLeased(b *testing.B) {
	for _, clients := range crowds[:3] {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			url := schema(b)
			bouncer := pgtest.Bouncer(b, url)
			compare(b, clients, []rival{
				{"plain", plain(url, "SELECT pg_advisory_lock($1)")},
				{"leased", func(b *testing.B) cycle { return of(sqllock.NewLeased(dial(b, url, one), "a")) }},
				{"polling", func(b *testing.B) cycle { return of(sqllock.NewLeased(dial(b, bouncer, pooled(nil)), "a")) }},
			})
		})
	}
}

// BenchmarkNotify is the floor of a hand-off by a message: two connections notify each other by turns, with nothing else in
// their transactions, while others listen to channels of their own. It grows with those, as Postgres (15, where it was
// measured) wakes all who listen in a database.
func BenchmarkNotify(b *testing.B) {
	for _, listen := range crowds[1:] {
		b.Run(fmt.Sprintf("listen=%d", listen), func(b *testing.B) {
			url := schema(b)
			ctx, stop := context.WithCancel(b.Context())
			var all sync.WaitGroup
			b.Cleanup(all.Wait)
			b.Cleanup(stop)
			conns := make([]*pgx.Conn, listen)
			for i := range conns {
				conn, err := pgx.Connect(ctx, url)
				require.NoError(b, err)
				b.Cleanup(func() { _ = conn.Close(context.Background()) })
				_, err = conn.Exec(ctx, fmt.Sprintf("LISTEN c%d", i))
				require.NoError(b, err)
				if conns[i] = conn; i > 1 {
					all.Go(func() { _, _ = conn.WaitForNotification(ctx) }) // None comes.
				}
			}
			all.Go(func() {
				for {
					if _, err := conns[1].WaitForNotification(ctx); err != nil {
						return
					}
					if _, err := conns[1].Exec(ctx, "SELECT pg_notify('c0', '')"); err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
				}
			})
			for b.Loop() {
				_, err := conns[0].Exec(ctx, "SELECT pg_notify('c1', '')")
				require.NoError(b, err)
				_, err = conns[0].WaitForNotification(ctx)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/2, "µs/message")
			b.ReportMetric(0, "ns/op")
		})
	}
}
