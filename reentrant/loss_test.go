package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

// lockKey is the hash of a lock under the default prefix.
func lockKey(name string) string { return "headwaiter:reentrant:{" + name + "}" }

var endings = []struct {
	name  string
	opts  []reentrant.Option
	lose  func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *reentrant.Mutex)
	cause error
}{
	{"by force", []reentrant.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, _ *headwaiter.Client, m *reentrant.Mutex) {
			_, err := reentrant.New(kit.Dial(t, s), m.Name()).ForceRelease(t.Context(), 0)
			require.NoError(t, err)
		}, lease.ErrForced},
	{"by FLUSHALL", []reentrant.Option{headwaiter.WithLease(2 * time.Second)},
		func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ *reentrant.Mutex) { s.Do("FLUSHALL") },
		lease.ErrForgotten},
	{"by deletion of the key", []reentrant.Option{headwaiter.WithLease(2 * time.Second)},
		func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, m *reentrant.Mutex) {
			s.Do("DEL", lockKey(m.Name()))
		}, lease.ErrForgotten},
	{"by an empty restart", []reentrant.Option{headwaiter.WithLease(2 * time.Second)},
		func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ *reentrant.Mutex) { s.Restart() },
		lease.ErrForgotten},
	{"by Close of the client", nil,
		func(t *testing.T, _ redistest.Backend, c *headwaiter.Client, _ *reentrant.Mutex) {
			require.NoError(t, c.Close(t.Context()))
		}, lease.ErrClientClosed},
	{"at the maximum", []reentrant.Option{headwaiter.WithMaxHold(200 * time.Millisecond)},
		func(*testing.T, redistest.Backend, *headwaiter.Client, *reentrant.Mutex) {}, lease.ErrMaxHold},
	{"by a server that is gone", []reentrant.Option{headwaiter.WithLease(2 * time.Second)},
		func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ *reentrant.Mutex) { s.Kill() },
		lease.ErrExpired},
}

func TestALossEndsAllEntriesAtOnceAndTheirReleasesFreeNobody(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				m := reentrant.New(c, kit.Name(t), e.opts...)
				ctx := reentrant.Owner(t.Context(), "job")
				leases := []*lease.Lease{hold(t, ctx, m)}
				for range 4 {
					leases = append(leases, hold(t, ctx, m))
				}
				e.lose(t, s, c, m)
				for _, l := range leases {
					cause := kit.Lost(t, l)
					require.ErrorIs(t, cause, e.cause)
					require.ErrorIs(t, cause, lease.ErrLost)
				}
				require.Zero(t, m.HoldCount(ctx), "nothing is left of the count")
				require.Zero(t, m.HoldCount(leases[2].Context()))
				if e.cause == lease.ErrExpired {
					require.ErrorIs(t, leases[1].Release(t.Context()), lease.ErrExpired)
					return
				}
				other := reentrant.New(kit.Dial(t, s), kit.Name(t))
				next := hold(t, t.Context(), other)
				for _, l := range leases {
					require.ErrorIs(t, l.Release(t.Context()), e.cause)
					require.ErrorIs(t, l.Release(t.Context()), e.cause)
				}
				info, err := other.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, info.Held)
				require.Equal(t, next.Token(), info.Token)
				kit.Release(t, next)
			})
		})
	}
}

func TestALostContextAsksAnewAndGetsAHigherToken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(2*time.Second))
		mine := reentrant.Owner(t.Context(), "job")
		outer := hold(t, mine, m)
		inner := hold(t, outer.Context(), m)
		_, err := other.ForceRelease(t.Context(), outer.Token())
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, inner), lease.ErrForced)
		_, err = m.Lock(inner.Context())
		require.ErrorIs(t, err, lease.ErrForced, "the context of a lost hold is over")

		// On behalf of the same owner, and from the context whose end is ignored.
		again := hold(t, mine, m)
		require.Greater(t, again.Token(), outer.Token())
		require.Equal(t, 1, m.HoldCount(mine))
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrForced)
		require.Equal(t, 1, m.HoldCount(mine), "the release of a lost entry takes no count of a later hold")
		kit.Release(t, again)
		last := hold(t, context.WithoutCancel(inner.Context()), m)
		require.Greater(t, last.Token(), again.Token())
		kit.Release(t, last)
		kit.Free(t, other)
	})
}

func TestARenewalExtendsAllEntries(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		first := outer.Deadline()
		synctime.Pass(lease.DefaultLease / 5)
		inner := hold(t, outer.Context(), m)
		require.False(t, inner.Deadline().Before(first))
		kit.Release(t, outer)
		synctime.Pass(5 * lease.DefaultLease)
		require.NoError(t, inner.Context().Err(), "the hold is renewed though the lease that began it is released")
		require.True(t, inner.Deadline().After(time.Now().Add(lease.DefaultLease/2)))
		busy(t, reentrant.New(kit.Dial(t, s), kit.Name(t)))
		kit.Release(t, inner)
	})
}

func TestTheMaximumHoldCountsFromTheFirstEntry(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithMaxHold(13*time.Second))
		begun := time.Now()
		outer := hold(t, t.Context(), m)
		synctime.Pass(9 * time.Second)
		inner := hold(t, outer.Context(), m)
		kit.Release(t, outer)
		require.ErrorIs(t, kit.Lost(t, inner), lease.ErrMaxHold)
		require.InDelta(t, 13*time.Second, time.Since(begun), float64(300*time.Millisecond))
		next := hold(t, t.Context(), reentrant.New(kit.Dial(t, s), kit.Name(t)))
		require.Greater(t, next.Token(), outer.Token())
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, info.Suspects, "reaching the maximum is no offence")
		kit.Release(t, next)
	})
}

func TestCloseEndsWaitsAndEntriesAndLeavesNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c, d := kit.Dial(t, s), kit.Dial(t, s)
		m, other, own := reentrant.New(c, name), reentrant.New(d, name), reentrant.New(c, name+":own")
		l := hold(t, t.Context(), other)
		outer := hold(t, t.Context(), own)
		inner := hold(t, outer.Context(), own)
		var calls []*kit.Call[*lease.Lease]
		for i := range 8 {
			calls = append(calls, kit.Lock(reentrant.Owner(t.Context(), "job"), m.Lock))
			kit.Waiting(t, i+1, other.Inspect)
		}
		require.NoError(t, c.Close(t.Context()))
		for _, w := range calls {
			require.ErrorIs(t, w.Err(t), lease.ErrClosed)
		}
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrClientClosed)
		require.ErrorIs(t, outer.Release(t.Context()), lease.ErrClientClosed)
		_, err := own.Lock(context.WithoutCancel(outer.Context()))
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = own.TryLock(t.Context())
		require.EqualError(t, err, `reentrant: try lock "`+name+`:own": client closed`)
		info, err := other.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, info.Queue)
		kit.Free(t, reentrant.New(d, name+":own"))
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		l := hold(t, t.Context(), m)
		waiting := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		again := hold(t, l.Context(), m)
		synctime.Pass(3 * lease.DefaultLease)
		kit.Release(t, l)
		kit.Release(t, again)
		kit.Release(t, waiting.Value(t))
		require.NotEmpty(t, s.List("KEYS", "*{*"))
		synctime.Pass(75 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))
	})
}
