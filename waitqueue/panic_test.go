package waitqueue_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// fragile is an observer that panics whatever it is told.
type fragile struct{ kit.Observer }

func (f *fragile) Observe(ctx context.Context, o observe.Observation) {
	f.Observer.Observe(ctx, o)
	panic("observer")
}

func (f *fragile) Wait(context.Context, observe.Observation) context.Context { panic("wait") }
func (f *fragile) Hold(context.Context, observe.Observation) context.Context { return nil }
func (f *fragile) Note(context.Context) string                               { panic("note") }

// pages is what a log is written to.
type pages struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func TestAPanicOfTheObserverHarmsNoLockAndIsReportedOnce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var f fragile
		var written pages
		c := kit.Dial(t, s, kit.Observed(&f), func(o *waitqueue.Options) {
			o.HeldTooLong, o.Log = time.Second, slog.New(slog.NewTextHandler(&written, nil))
		})
		other := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(2), headwaiter.WithLease(2*time.Second))
		for range 3 {
			held, err := m.Lock(t.Context())
			require.NoError(t, err)
			mate := kit.Lock(t.Context(), m.Lock)
			rival := kit.Lock(t.Context(), fairlock.New(other, kit.Name(t)).Lock)
			kit.Waiting(t, 1, m.Inspect)
			synctime.Pass(10 * time.Second)
			require.NoError(t, held.Context().Err(), "it is renewed")
			kit.Release(t, held)
			kit.Release(t, mate.Value(t))
			kit.Release(t, rival.Value(t))
		}
		re := reentrant.New(c, kit.Name(t)+":reentrant")
		outer, err := re.Lock(t.Context())
		require.NoError(t, err)
		inner, err := re.Lock(outer.Context())
		require.NoError(t, err)
		_, err = reentrant.New(other, re.Name()).ForceRelease(t.Context(), 0)
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, outer), lease.ErrForced)
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrForced)
		require.NoError(t, c.Close(t.Context()))

		require.Len(t, f.Of(observe.Granted), 7, "it was told of each")
		require.Len(t, f.Of(observe.Released), 6)
		require.Len(t, f.Of(observe.Lost), 1)
		text := written.text.String()
		require.Equal(t, 1, strings.Count(text, "an observer panicked"), "of many")
		require.Contains(t, text, "panic=wait")
		require.Contains(t, text, "panic_test.go")
	})
}

// curious is a context whose methods ask the client for something.
type curious struct {
	context.Context
	ask func()
}

func (c curious) Err() error                  { c.ask(); return c.Context.Err() }
func (c curious) Done() <-chan struct{}       { c.ask(); return c.Context.Done() }
func (c curious) Value(key any) any           { c.ask(); return c.Context.Value(key) }
func (c curious) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }

// Else the context of a caller could wait for itself.
func TestNoLockIsTakenWhileAContextIsAsked(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		c := kit.Dial(t, s, kit.Through(p))
		m := reentrant.New(c, kit.Name(t))
		lock := fairlock.New(c, kit.Name(t), fairlock.WithCohort(1))
		owner := reentrant.Owner(context.Background(), "somebody")
		outer, end := context.WithCancel(context.Background())
		ctx := curious{outer, func() { m.HoldCount(owner); c.Stats() }}
		require.NoError(t, kit.Run(func() error {
			return m.Do(ctx, func(within context.Context) error {
				return m.Do(curious{within, ctx.ask}, func(within context.Context) error { return within.Err() })
			})
		}).Err(t))
		for range 2 {
			outer := kit.Lock(ctx, m.Lock).Value(t)
			inner := kit.Lock(curious{outer.Context(), ctx.ask}, m.Lock).Value(t)
			require.NoError(t, kit.Run(func() error { return outer.Release(ctx) }).Err(t))
			require.NoError(t, kit.Run(func() error { return inner.Release(ctx) }).Err(t))
			held := kit.Lock(ctx, lock.Lock).Value(t)
			mate := kit.Lock(ctx, lock.Lock)
			require.NoError(t, kit.Run(func() error { return held.Release(ctx) }).Err(t))
			require.NoError(t, kit.Run(func() error { return mate.Value(t).Release(ctx) }).Err(t))
		}
		held := kit.Lock(ctx, lock.Lock).Value(t)
		end()
		p.Freeze(faults.ToClient) // Else the answer may be there first, and is told.
		require.ErrorIs(t, kit.Run(func() error { return held.Release(ctx) }).Err(t), lease.ErrUnconfirmed)
		p.Heal()
	})
}
