package otel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// truth is what the callers saw.
type truth struct {
	granted, busy, timeout, cancelled, released, lost atomic.Int64
	unasked                                           atomic.Int64 // calls whose context had ended before: nothing is told
}

// cycle takes m in one of several ways, and notes what comes of it.
func (x *truth) cycle(t *testing.T, m *fairlock.Mutex, random *rand.Rand) {
	ctx, lock := context.Background(), m.Lock
	switch random.IntN(8) {
	case 0:
		lock = m.TryLock
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
		defer cancel()
	case 2:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		stop := time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, cancel)
		defer stop.Stop()
	}
	l, err := lock(ctx)
	var waited *lease.WaitError
	switch {
	case errors.As(err, &waited) && waited.Waited == 0:
		x.unasked.Add(1)
	case err == nil:
		x.granted.Add(1)
		if random.IntN(16) == 0 {
			_, _ = m.ForceRelease(context.Background(), l.Token())
		}
		switch err := l.Release(context.Background()); {
		case err == nil:
			x.released.Add(1)
		case errors.Is(err, lease.ErrLost):
			x.lost.Add(1)
		default:
			t.Errorf("release: %v", err)
		}
	case errors.Is(err, lease.ErrBusy):
		x.busy.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		x.timeout.Add(1)
	case errors.Is(err, context.Canceled):
		x.cancelled.Add(1)
	default:
		t.Errorf("lock: %v", err)
	}
}

func TestInACrowdEverySpanEndsAndTheFiguresAreWhatTheCallersSaw(t *testing.T) {
	t.Parallel()
	const (
		clients = 4
		workers = 4
		cycles  = 60
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, r, figures := redistest.Start(t), record(), meter()
	tracer, err := otel.New(otel.Options{TracerProvider: r.provider, MeterProvider: figures.provider})
	require.NoError(t, err)
	var x truth
	var all sync.WaitGroup
	var dialed []*headwaiter.Client
	for i := range clients {
		c := kit.Dial(t, s, observed(tracer))
		dialed = append(dialed, c)
		for j := range workers {
			random := rand.New(rand.NewPCG(seed, uint64(i*workers+j)))
			all.Go(func() {
				for range cycles {
					x.cycle(t, fairlock.New(c, "name"), random)
				}
			})
		}
	}
	kit.All(t, &all)
	for _, c := range dialed {
		require.NoError(t, c.Close(t.Context()))
	}

	for outcome, n := range map[string]int64{
		"granted": x.granted.Load(), "busy": x.busy.Load(), "timeout": x.timeout.Load(), "cancelled": x.cancelled.Load(),
	} {
		require.Equal(t, n, figures.sum(t, "headwaiter.attempts", outcome), outcome)
		require.Equal(t, n, figures.sum(t, "headwaiter.wait.duration", outcome), outcome)
	}
	require.EqualValues(t, clients*workers*cycles, figures.sum(t, "headwaiter.attempts")+x.unasked.Load())
	require.Equal(t, x.released.Load(), figures.sum(t, "headwaiter.hold.duration", "released"))
	require.Equal(t, x.lost.Load(), figures.sum(t, "headwaiter.losses"))
	require.Positive(t, x.lost.Load())
	require.Zero(t, figures.sum(t, "headwaiter.waiting"))
	require.Zero(t, figures.sum(t, "headwaiter.holds"))
	r.allEnd(t)
	linked(t, r, x.released.Load())
}

// linked asserts that links lead to holds that were released before the wait was over.
func linked(t *testing.T, r spans, released int64) {
	t.Helper()
	holds := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	for _, h := range r.ended(hold) {
		holds[h.SpanContext().SpanID()] = h
	}
	links := 0
	for _, w := range r.ended(wait) {
		for _, link := range w.Links() {
			links++
			former := holds[link.SpanContext.SpanID()]
			require.NotNil(t, former)
			require.Equal(t, former.SpanContext().TraceID(), link.SpanContext.TraceID())
			require.True(t, former.StartTime().Before(w.EndTime()))
		}
		require.LessOrEqual(t, len(w.Links()), 1)
	}
	t.Logf("%d holds released, %d waits linked", released, links)
	require.Greater(t, links, int(released)/2)
}
