package otel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// What the clients of etcd, ZooKeeper and Postgres tell by makes the same spans as the locks on Redis.
func TestTheSpansOfOtherEnginesAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		tracer, err := otel.NewTracer(r.provider)
		require.NoError(t, err)
		watch := engine.NewWatch(tracer, nil, 0, 0, "who", "etcd", "server")
		defer watch.Stop()
		ctx, caller := r.begin(t.Context())
		grip := &engine.Grip{}
		lock := func(ctx context.Context) (*lease.Lease, error) {
			engine.Queued(ctx, 3)
			synctime.Pass(time.Second)
			engine.Queued(ctx, 1)
			return grip.Take(ctx, lease.Terms{
				Token: 7, Until: lease.Until{Deadline: time.Now().Add(time.Hour), Slept: lease.Slept()},
				Release: func(context.Context) error { return nil },
			}, engine.Limits{}, nil), nil
		}
		l, err := watch.Acquire(ctx, "lock", "orders:42", lock)
		require.NoError(t, err)
		_, inner := r.begin(l.Context())
		inner.End()
		require.NoError(t, l.Release(t.Context()))
		l, err = watch.Acquire(ctx, "lock", "orders:42", lock)
		require.NoError(t, err)
		grip.Lose(lease.ErrForced)
		synctest.Wait()
		require.Error(t, l.Release(t.Context()))
		_, err = watch.Acquire(ctx, "lock", "orders:42", func(context.Context) (*lease.Lease, error) { return nil, lease.ErrBusy })
		require.ErrorIs(t, err, lease.ErrBusy)
		caller.End()

		waits, holds := r.ended(wait), r.ended(hold)
		require.Len(t, waits, 3)
		require.Len(t, holds, 2)
		for i, outcome := range []string{"granted", "granted", "busy"} {
			require.Equal(t, caller.SpanContext().SpanID(), waits[i].Parent().SpanID())
			require.Equal(t, "orders:42", attr(waits[i].Attributes(), "headwaiter.name"))
			require.Equal(t, outcome, attr(waits[i].Attributes(), "headwaiter.outcome"))
		}
		queued := waits[0].Events()
		require.Len(t, queued, 1, "told once")
		require.Equal(t, "queued", queued[0].Name)
		require.Equal(t, "3", attr(queued[0].Attributes, "headwaiter.place"))
		require.Empty(t, attr(queued[0].Attributes, "headwaiter.waiting"), "nobody knows")
		require.InDelta(t, time.Second, waits[0].EndTime().Sub(waits[0].StartTime()), float64(100*time.Millisecond))
		require.Equal(t, holds[0].SpanContext().SpanID(), inner.(sdktrace.ReadOnlySpan).Parent().SpanID(), "the work is below the hold")
		require.Equal(t, "7", attr(holds[0].Attributes(), "headwaiter.token"))
		require.Equal(t, "released", attr(holds[0].Attributes(), "headwaiter.outcome"))
		require.Equal(t, "forced", attr(holds[1].Attributes(), "headwaiter.outcome"))
		require.Equal(t, codes.Error, holds[1].Status().Code)
		r.allEnd(t)
	})
}
