package fairlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// BenchmarkKeep takes up a lock that its client keeps.
func BenchmarkKeep(b *testing.B) {
	s := redistest.Start(b)
	m := fairlock.New(kit.Dial(b, s), "kept", fairlock.WithKeep(time.Minute))
	ctx := b.Context()
	b.ReportAllocs()
	spans := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		begun := time.Now()
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		spans = append(spans, time.Since(begun))
		l.Unlock()
	}
	slices.Sort(spans)
	b.ReportMetric(float64(spans[len(spans)/2].Nanoseconds()), "p50-ns")
}
