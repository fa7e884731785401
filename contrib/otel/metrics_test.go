package otel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

func TestTheFiguresAreWhatHappened(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := meter(), faults.NewDialer(t, s.Dial)
		tracer, err := otel.New(otel.Options{MeterProvider: r.provider})
		require.NoError(t, err)
		long := func(o *headwaiter.Options) { o.HeldTooLong = 5 * time.Second }
		a, b := kit.Dial(t, s, observed(tracer), long), kit.Dial(t, s, observed(tracer), kit.Over(d))
		first := fairlock.New(a, "name", headwaiter.WithLease(3*time.Second))
		second := fairlock.New(b, "name", headwaiter.WithLease(3*time.Second))

		l, err := first.Lock(t.Context())
		require.NoError(t, err)
		next := kit.Lock(t.Context(), second.Lock)
		synctest.Wait()
		require.EqualValues(t, 1, r.sum(t, "headwaiter.waiting"))
		require.EqualValues(t, 1, r.sum(t, "headwaiter.holds"))
		_, err = first.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		synctime.Pass(5500 * time.Millisecond) // Five renewals.
		kit.Release(t, l)
		l = next.Value(t)
		d.Refuse()
		d.Cut()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		synctest.Wait()
		d.Heal()
		kit.Release(t, kit.Lock(t.Context(), first.Lock).Value(t))
		require.NoError(t, b.Close(t.Context()))

		require.Equal(t, []series{{kind: "lock", outcome: "busy", value: 1}, {kind: "lock", outcome: "granted", value: 3}},
			r.of(t, "headwaiter.attempts"))
		waits := r.of(t, "headwaiter.wait.duration")
		require.EqualValues(t, 3, waits[1].value)
		require.InDelta(t, 5.5, waits[1].sum, 0.5)
		held := r.of(t, "headwaiter.hold.duration")
		require.Equal(t, []string{"expired", "released"}, []string{held[0].outcome, held[1].outcome})
		require.EqualValues(t, 2, held[1].value)
		require.InDelta(t, 5.5, held[1].sum, 0.5)
		require.Equal(t, []series{{kind: "lock", outcome: "expired", value: 1}}, r.of(t, "headwaiter.losses"))
		require.Zero(t, r.sum(t, "headwaiter.waiting"))
		require.Zero(t, r.sum(t, "headwaiter.holds"))
		stats := a.Stats()
		require.GreaterOrEqual(t, r.sum(t, "headwaiter.renewals", "renewed"), int64(5))
		require.Positive(t, r.sum(t, "headwaiter.renewals", "failed"))
		require.Equal(t, r.sum(t, "headwaiter.renewals"), r.sum(t, "headwaiter.renewal.margin"))
		require.EqualValues(t, 1, r.sum(t, "headwaiter.holds.long"))
		require.EqualValues(t, stats.HandOffs+b.Stats().HandOffs, r.sum(t, "headwaiter.handoffs"))
		require.Positive(t, stats.HandOffs)
		require.EqualValues(t, stats.Messages+b.Stats().Messages, r.sum(t, "headwaiter.wakeups"))
		require.EqualValues(t, stats.Expired+b.Stats().Expired, r.sum(t, "headwaiter.expired"))
		require.EqualValues(t, stats.Suspected+b.Stats().Suspected, r.sum(t, "headwaiter.suspected"))
	})
}

// cycle locks and releases a name.
func cycle(t *testing.T, c *headwaiter.Client, name string) {
	t.Helper()
	require.NoError(t, fairlock.New(c, name).Do(t.Context(), func(context.Context) error { return nil }))
}

func TestNamesAreToldApartByClassIfAtAll(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		plain, classed := meter(), meter()
		off, err := otel.New(otel.Options{MeterProvider: plain.provider})
		require.NoError(t, err)
		on, err := otel.New(otel.Options{MeterProvider: classed.provider, MaxClasses: 2, Class: func(name string) string {
			class, _, _ := strings.Cut(name, ":")
			if class == "panic" {
				panic("no such class")
			}
			return class
		}})
		require.NoError(t, err)
		c := kit.Dial(t, s, observed(observe.Observers(off, on)))
		for i := range 10 {
			cycle(t, c, fmt.Sprintf("orders:%d", i))
			cycle(t, c, fmt.Sprintf("users:%d", i))
			cycle(t, c, fmt.Sprintf("%d:many", i))
		}
		cycle(t, c, "panic:1")
		cycle(t, c, "orders:11")

		require.Equal(t, []series{{kind: "lock", outcome: "granted", value: 32}}, plain.of(t, "headwaiter.attempts"))
		require.Equal(t, []series{
			{kind: "lock", class: "orders", outcome: "granted", value: 11},
			{kind: "lock", class: "other", outcome: "granted", value: 11},
			{kind: "lock", class: "users", outcome: "granted", value: 10},
		}, classed.of(t, "headwaiter.attempts"))
		require.EqualValues(t, 11, classed.sum(t, "headwaiter.classes.cut"), "it says so")
		require.Zero(t, plain.sum(t, "headwaiter.classes.cut"))
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	_, err := otel.New(otel.Options{})
	require.EqualError(t, err, "otel: neither a tracer provider nor a meter provider")
	_, err = otel.New(otel.Options{MeterProvider: meter().provider, MaxClasses: -1})
	require.EqualError(t, err, "otel: -1 classes at the most")
}

func TestAServerIsUpIfTheLastRequestWasAnswered(t *testing.T) {
	r := meter()
	tracer, err := otel.New(otel.Options{MeterProvider: r.provider})
	require.NoError(t, err)
	seen := observe.Request{Engine: "redis", Server: "a:6379", Client: "worker", Took: 3 * time.Second}
	tracer.ObserveRequest(seen)
	require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"))
	seen.Err = context.DeadlineExceeded
	tracer.ObserveRequest(seen)
	require.Equal(t, []series{{value: 0}}, r.of(t, "headwaiter.server.up"))
	require.Equal(t, []series{{value: 1, sum: 3}}, r.of(t, "headwaiter.server.round_trip"), "of those that were answered")
}

// The count of a hold or a wait that is told of again is how often that was; that of a message is what was in it.
func TestAMessageWithSeveralGrantsIsCounted(t *testing.T) {
	r := meter()
	tracer, err := otel.New(otel.Options{MeterProvider: r.provider})
	require.NoError(t, err)
	for _, m := range []observe.Moment{observe.Woken, observe.HeldLong, observe.WaitedLong} {
		for count := range 3 {
			tracer.Observe(t.Context(), observe.Observation{Moment: m, Kind: "lock", Count: count + 1})
		}
	}
	require.EqualValues(t, 3, r.sum(t, "headwaiter.wakeups"))
	require.EqualValues(t, 1, r.sum(t, "headwaiter.holds.long"), "it was told before")
	require.EqualValues(t, 1, r.sum(t, "headwaiter.waits.long"), "it was told before")
}

func TestAServerThatNobodyAsksAnyMoreIsNeitherUpNorDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := meter()
		tracer, err := otel.New(otel.Options{MeterProvider: r.provider})
		require.NoError(t, err)
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "left:6379", Err: context.DeadlineExceeded})
		synctime.Pass(4 * time.Minute)
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "stays:6379"})
		require.Len(t, r.of(t, "headwaiter.server.up"), 2)
		synctime.Pass(time.Minute + 1)
		require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"))
		synctime.Pass(4 * time.Minute)
		require.Empty(t, r.of(t, "headwaiter.server.up"))
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "left:6379"})
		require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"), "it is back")
	})
}
