package otel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestAWaitAndItsHoldAreSpansBelowTheCallers(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		m := fairlock.New(kit.Dial(t, s, r.observed(t)), kit.Name(t))
		ctx, caller := r.begin(t.Context())
		l := kit.Got(m.Lock(ctx))(t)
		_, inner := r.begin(l.Context())
		synctime.Pass(time.Second)
		inner.End()
		kit.Release(t, l)
		caller.End()

		w, h := r.only(t, wait), r.only(t, hold)
		for _, x := range []sdktrace.ReadOnlySpan{w, h} {
			require.Equal(t, caller.SpanContext().SpanID(), x.Parent().SpanID())
			require.Equal(t, caller.SpanContext().TraceID(), x.SpanContext().TraceID())
			require.Equal(t, trace.SpanKindInternal, x.SpanKind())
			require.Equal(t, "lock", attr(x.Attributes(), "headwaiter.kind"))
			require.Equal(t, m.Name(), attr(x.Attributes(), "headwaiter.name"))
			require.NotEmpty(t, attr(x.Attributes(), "headwaiter.ticket"))
			require.Equal(t, codes.Unset, x.Status().Code)
			require.Empty(t, x.Links())
			require.Equal(t, "github.com/headwaiter/headwaiter/contrib/otel", x.InstrumentationScope().Name)
		}
		require.Equal(t, "granted", attr(w.Attributes(), "headwaiter.outcome"))
		require.Equal(t, "released", attr(h.Attributes(), "headwaiter.outcome"))
		require.NotEmpty(t, attr(h.Attributes(), "headwaiter.token"))
		require.Equal(t, w.EndTime(), h.StartTime())
		require.InDelta(t, time.Second, h.EndTime().Sub(h.StartTime()), float64(100*time.Millisecond))
		require.Equal(t, h.SpanContext().SpanID(), inner.(sdktrace.ReadOnlySpan).Parent().SpanID(), "the work is below the hold")
		r.allEnd(t)
	})
}

func TestWithoutASpanAroundItTheHoldIsBelowTheWait(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		m := fairlock.New(kit.Dial(t, s, r.observed(t)), kit.Name(t))
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		w, h := r.only(t, wait), r.only(t, hold)
		require.False(t, w.Parent().IsValid())
		require.Equal(t, w.SpanContext().SpanID(), h.Parent().SpanID())
		r.allEnd(t)
	})
}

// primitives are those whose release hands on.
var primitives = []struct {
	name string
	lock func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error)
}{
	{"fairlock", func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
		return fairlock.New(c, name).Lock
	}},
	{"reentrant", func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
		return reentrant.New(c, name).Lock
	}},
	{"rwlock", func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
		return rwlock.New(c, name).Lock
	}},
	{"semaphore", func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
		m := semaphore.New(c, name, 1)
		return func(ctx context.Context) (*lease.Lease, error) { return m.Acquire(ctx, 1) }
	}},
}

func TestTheWaitersSpanIsLinkedToTheHoldThatWasHandedOn(t *testing.T) {
	for _, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			for _, sampled := range []bool{true, false} {
				kit.BubbleOf(t, map[bool]string{true: "sampled", false: "not sampled"}[sampled], func(t *testing.T, s *redistest.Embedded) {
					first, second := record(), record()
					if !sampled {
						first = record(sdktrace.WithSampler(sdktrace.NeverSample()))
					}
					holder := p.lock(kit.Dial(t, s, first.observed(t)), kit.Name(t))
					waiter := p.lock(kit.Dial(t, s, second.observed(t)), kit.Name(t))
					l := kit.Got(holder(t.Context()))(t)
					former := trace.SpanContextFromContext(l.Context())
					require.Equal(t, sampled, former.IsSampled())
					next := kit.Lock(t.Context(), waiter)
					synctest.Wait() // Its first look is over, which could be faster than a message, and has no note.
					kit.PassOn(t, l, next)

					w := second.only(t, wait)
					require.Len(t, w.Links(), 1)
					link := w.Links()[0]
					require.Equal(t, former.TraceID(), link.SpanContext.TraceID())
					require.Equal(t, former.SpanID(), link.SpanContext.SpanID())
					require.Equal(t, sampled, link.SpanContext.IsSampled())
					require.True(t, link.SpanContext.IsRemote())
					require.Equal(t, "former holder", attr(link.Attributes, "headwaiter.relation"))
					require.Empty(t, second.only(t, hold).Links())
					require.Equal(t, "1", attr(w.Events()[0].Attributes, "headwaiter.place"))
					if sampled {
						require.Equal(t, first.only(t, hold).SpanContext().SpanID(), former.SpanID())
					}
				})
			}
		})
	}
}

func TestWithinOneClientTheWaitIsLinkedToo(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		m := fairlock.New(kit.Dial(t, s, r.observed(t)), kit.Name(t))
		l := kit.Got(m.Lock(t.Context()))(t)
		next := kit.Lock(t.Context(), m.Lock)
		synctest.Wait()
		former := trace.SpanContextFromContext(l.Context())
		kit.PassOn(t, l, next)
		waits := r.ended(wait)
		require.Len(t, waits, 2)
		require.Empty(t, waits[0].Links())
		require.Len(t, waits[1].Links(), 1)
		require.Equal(t, former.SpanID(), waits[1].Links()[0].SpanContext.SpanID())
		r.allEnd(t)
	})
}

// scribbler puts something else into the notes.
type scribbler struct {
	observe.Observer
	note string
}

func (scribbler) Observe(context.Context, observe.Observation)                    {}
func (scribbler) Wait(ctx context.Context, _ observe.Observation) context.Context { return ctx }
func (scribbler) Hold(ctx context.Context, _ observe.Observation) context.Context { return ctx }
func (s scribbler) Note(context.Context) string                                   { return s.note }

func TestANoteThatIsNoSpanIsNoLink(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for note, links := range map[string]int{
		good: 1, "": 0, "x": 0, "00-": 0, "cc" + good[2:]: 1, "ff" + good[2:]: 0, good[:54] + "x": 0,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": 0,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": 0,
	} {
		kit.BubbleOf(t, note, func(t *testing.T, s *redistest.Embedded) {
			r := record()
			holder := fairlock.New(kit.Dial(t, s, kit.Observed(scribbler{note: note})), "name")
			waiter := fairlock.New(kit.Dial(t, s, r.observed(t)), "name")
			l := kit.Got(holder.Lock(t.Context()))(t)
			kit.PassOn(t, l, kit.Joins(t, 1, waiter.Lock, holder.Inspect))
			require.Len(t, r.only(t, wait).Links(), links)
		})
	}
}

func TestWhatHappensToAHoldIsOnItsSpan(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := record(), faults.NewDialer(t, s.Dial)
		c := kit.Dial(t, s, r.observed(t), kit.Over(d), func(o *headwaiter.Options) { o.HeldTooLong = 5 * time.Second })
		m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(3*time.Second))
		l := kit.Got(m.Lock(t.Context()))(t)
		synctime.Pass(7500 * time.Millisecond)
		d.Away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		synctest.Wait()

		h := r.only(t, hold)
		seen := map[string]int{}
		for _, e := range h.Events() {
			seen[e.Name]++
			switch e.Name {
			case "renewed":
				require.Regexp(t, `^1\.9`, attr(e.Attributes, "headwaiter.margin"))
			case "renewal failed":
				require.NotEmpty(t, attr(e.Attributes, "error.message"))
				require.NotEmpty(t, attr(e.Attributes, "error.type"))
			case "held for long":
				require.Regexp(t, `^test@.*#\d+$`, attr(e.Attributes, "headwaiter.holder"))
				require.Equal(t, "5", attr(e.Attributes, "headwaiter.held")[:1])
			}
		}
		require.Equal(t, 7, seen["renewed"])
		require.Positive(t, seen["renewal failed"])
		require.Equal(t, 1, seen["held for long"])
		require.Equal(t, codes.Error, h.Status().Code)
		require.Contains(t, h.Status().Description, "no renewal was answered for ")
		require.Equal(t, "expired", attr(h.Attributes(), "error.type"))
		require.Equal(t, "expired", attr(h.Attributes(), "headwaiter.outcome"))
		r.allEnd(t)
	})
}

// endings are ways for a wait to end, with what its span then says. Each begins with the lock held by another.
var endings = []struct {
	name    string
	end     func(ctx context.Context, c *headwaiter.Client, m *fairlock.Mutex) error
	outcome string
	failed  bool
}{
	{"busy", func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
		return kit.Err(m.TryLock(ctx))
	}, "busy", false},
	{"timeout", func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return kit.Err(m.Lock(ctx))
	}, "timeout", true},
	{"cancelled", func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { cancel(errors.New("no more")) })
		return kit.Err(m.Lock(ctx))
	}, "cancelled", false},
	{"closed", func(ctx context.Context, c *headwaiter.Client, m *fairlock.Mutex) error {
		time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
		return kit.Err(m.Lock(ctx))
	}, "closed", true},
}

func TestTheSpanOfAWaitSaysHowItEnded(t *testing.T) {
	for _, e := range endings {
		kit.BubbleOf(t, e.name, func(t *testing.T, s *redistest.Embedded) {
			r, figures := record(), meter()
			tracer := kit.Got(otel.New(otel.Options{TracerProvider: r.provider, MeterProvider: figures.provider}))(t)
			l := kit.Got(fairlock.New(kit.Dial(t, s), kit.Name(t)).Lock(t.Context()))(t)
			defer kit.Release(t, l)
			c := kit.Dial(t, s, kit.Observed(tracer))
			require.Error(t, e.end(t.Context(), c, fairlock.New(c, kit.Name(t))))
			w := r.only(t, wait)
			require.Equal(t, e.outcome, attr(w.Attributes(), "headwaiter.outcome"))
			code, kind := codes.Unset, ""
			if e.failed {
				code, kind = codes.Error, e.outcome
			}
			require.Equal(t, code, w.Status().Code)
			require.Equal(t, kind, attr(w.Attributes(), "error.type"))
			r.allEnd(t)
			require.Equal(t, []series{{kind: "lock", outcome: e.outcome, value: 1}}, figures.of(t, "headwaiter.attempts"))
			require.Zero(t, figures.sum(t, "headwaiter.waiting"))
		})
	}
}

// losses are ways to lose a hold.
var losses = []struct {
	name string
	lose func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client, name string)
	opts []fairlock.Option
}{
	{"forced", func(t *testing.T, s *redistest.Embedded, _ *headwaiter.Client, name string) {
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), name).ForceRelease(t.Context(), 0)))
	}, nil},
	{"forgotten", func(_ *testing.T, s *redistest.Embedded, _ *headwaiter.Client, _ string) { s.Do("FLUSHALL") }, nil},
	{"max_hold", func(*testing.T, *redistest.Embedded, *headwaiter.Client, string) {}, []fairlock.Option{headwaiter.WithMaxHold(time.Second)}},
	{"stalled", func(*testing.T, *redistest.Embedded, *headwaiter.Client, string) {}, []fairlock.Option{headwaiter.WithMaxStall(time.Second)}},
	{"closed", func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client, _ string) {
		require.NoError(t, c.Shutdown(context.Background()))
	}, nil},
}

func TestTheSpanOfAHoldSaysWhyItWasLost(t *testing.T) {
	for _, x := range losses {
		kit.BubbleOf(t, x.name, func(t *testing.T, s *redistest.Embedded) {
			r, figures := record(), meter()
			tracer := kit.Got(otel.New(otel.Options{TracerProvider: r.provider, MeterProvider: figures.provider}))(t)
			c := kit.Dial(t, s, kit.Observed(tracer))
			l := kit.Got(fairlock.New(c, kit.Name(t), x.opts...).Lock(t.Context()))(t)
			x.lose(t, s, c, kit.Name(t))
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
			synctest.Wait() // The observer is told just after.
			h := r.only(t, hold)
			require.Equal(t, x.name, attr(h.Attributes(), "error.type"))
			require.Equal(t, codes.Error, h.Status().Code)
			r.allEnd(t)
			require.Equal(t, []series{{kind: "lock", outcome: x.name, value: 1}}, figures.of(t, "headwaiter.losses"))
			require.Zero(t, figures.sum(t, "headwaiter.holds"))
		})
	}
}

// Work may be left half done where the hold before was not given back: the span of the hold says so.
func TestTheSpanOfAHoldSaysHowTheOneBeforeEnded(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		m := fairlock.New(kit.Dial(t, s, r.observed(t)), kit.Name(t))
		l := kit.Got(m.Lock(t.Context()))(t)
		require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		for range 2 {
			kit.Release(t, kit.Got(m.Lock(t.Context()))(t))
		}
		synctest.Wait() // The observer is told just after.
		var told []string
		for _, h := range r.ended(hold) {
			told = append(told, attr(h.Attributes(), "headwaiter.previous"))
		}
		require.Equal(t, []string{"", "forced", ""}, told)
		r.allEnd(t)
	})
}

func TestWhatHoldsNothingHasAWaitAlone(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		c := kit.Dial(t, s, r.observed(t))
		latch := countdown.New(c, kit.Name(t))
		require.NoError(t, kit.Err(latch.TrySetCount(t.Context(), 1)))
		call := kit.Run(func() error { return latch.Wait(t.Context()) })
		require.NoError(t, kit.Err(countdown.New(kit.Dial(t, s), kit.Name(t)).CountDown(t.Context())))
		call.Value(t)
		require.Equal(t, "passed", attr(r.only(t, wait).Attributes(), "headwaiter.outcome"))
		require.Empty(t, r.ended(hold))
		r.allEnd(t)
	})
}

func TestToEnterTheHoldOfAnOwnerIsAWaitThatEntered(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := record()
		m := reentrant.New(kit.Dial(t, s, r.observed(t)), kit.Name(t))
		other := kit.Got(reentrant.New(kit.Dial(t, s), kit.Name(t)).Lock(t.Context()))(t)
		ctx := reentrant.Owner(t.Context(), "owner")
		calls := []*kit.Call[*lease.Lease]{kit.Lock(ctx, m.Lock), kit.Lock(ctx, m.Lock)}
		synctest.Wait()
		kit.Release(t, other)
		for _, c := range calls {
			c.Value(t)
		}
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
		outcomes := []string{}
		for _, w := range r.ended(wait) {
			outcomes = append(outcomes, attr(w.Attributes(), "headwaiter.outcome"))
		}
		require.Equal(t, []string{"granted", "entered"}, outcomes)
		r.only(t, hold)
		r.allEnd(t)
	})
}

func TestTwoTracersOfOneClientDoNotMixTheirSpans(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := record(), record()
		first, second := kit.Got(otel.New(otel.Options{TracerProvider: a.provider}))(t), kit.Got(otel.New(otel.Options{TracerProvider: b.provider}))(t)
		m := fairlock.New(kit.Dial(t, s, kit.Observed(observe.Observers(first, second))), kit.Name(t))
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		for _, r := range []spans{a, b} {
			r.only(t, wait)
			r.only(t, hold)
			r.allEnd(t)
		}
	})
}
