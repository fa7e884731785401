package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func TestARelease(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		l := hold(t, m)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		require.ErrorIs(t, l.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
		require.NotErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		require.False(t, inspect(t, m).Held)

		other := hold(t, dialMutex(t, s))
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
		require.Equal(t, other.Token(), inspect(t, m).Token)
		require.True(t, inspect(t, m).Held, "a second release must free nobody else's hold")
		kit.Release(t, other)
	})
}

// ending is one way in which a hold is lost.
type ending struct {
	name  string
	opts  []fairlock.Option
	lose  func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex)
	cause error
}

var endings = []ending{
	{"by force", []fairlock.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {
			_, err := dialMutexNamed(t, s, m.Name()).ForceRelease(t.Context(), 0)
			require.NoError(t, err)
		}, lease.ErrForced},
	{"by FLUSHALL", []fairlock.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) { s.Do("FLUSHALL") },
		lease.ErrForgotten},
	{"by deletion of the key", []fairlock.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {
			lock, _, _ := keysOf(m.Name())
			s.Do("DEL", lock)
		}, lease.ErrForgotten},
	{"by an empty restart", []fairlock.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) { s.Restart() },
		lease.ErrForgotten},
	{"by Close of the client", nil,
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {
			require.NoError(t, c.Close(t.Context()))
		}, lease.ErrClientClosed},
	{"at the maximum", []fairlock.Option{headwaiter.WithMaxHold(200 * time.Millisecond)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {}, lease.ErrMaxHold},
	{"at the maximum, after renewals",
		[]fairlock.Option{headwaiter.WithLease(time.Second), headwaiter.WithMaxHold(2500 * time.Millisecond)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {}, lease.ErrMaxHold},
	{"without progress", []fairlock.Option{headwaiter.WithLease(time.Second), headwaiter.WithMaxStall(1500 * time.Millisecond)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) {}, lease.ErrStalled},
	{"by a server that is gone", []fairlock.Option{headwaiter.WithLease(2 * time.Second)},
		func(t *testing.T, s redistest.Backend, c *headwaiter.Client, m *fairlock.Mutex) { s.Kill() },
		lease.ErrExpired},
}

func dialMutexNamed(t testing.TB, s redistest.Backend, name string) *fairlock.Mutex {
	return fairlock.New(kit.Dial(t, s), name)
}

func TestALostHoldSaysWhyAndItsReleaseFreesNobody(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				m := fairlock.New(c, kit.Name(t), e.opts...)
				l := hold(t, m)
				child, cancel := context.WithCancel(l.Context())
				defer cancel()
				e.lose(t, s, c, m)

				cause := kit.Lost(t, l)
				require.ErrorIs(t, cause, e.cause)
				require.ErrorIs(t, cause, lease.ErrLost)
				require.ErrorIs(t, l.Context().Err(), context.Canceled)
				kit.Await(t, child.Done(), "a child of the hold's context to end")
				require.ErrorIs(t, context.Cause(child), e.cause)
				if e.cause == lease.ErrExpired {
					require.ErrorIs(t, l.Release(t.Context()), lease.ErrExpired)
					return
				}
				other := dialMutex(t, s)
				next := hold(t, other)
				require.ErrorIs(t, l.Release(t.Context()), e.cause)
				require.ErrorIs(t, l.Release(t.Context()), e.cause)
				info := inspect(t, other)
				require.True(t, info.Held)
				require.Equal(t, next.Token(), info.Token)
				kit.Release(t, next)
			})
		})
	}
}

// The release itself finds out what nobody has told the holder yet.
func TestAReleaseAfterAnUnnoticedLossSaysSo(t *testing.T) {
	for name, lose := range map[string]struct {
		do    func(t *testing.T, s redistest.Backend, m *fairlock.Mutex)
		cause error
	}{
		"forced":   {func(t *testing.T, _ redistest.Backend, m *fairlock.Mutex) { force(t, m) }, lease.ErrForced},
		"FLUSHALL": {func(_ *testing.T, s redistest.Backend, _ *fairlock.Mutex) { s.Do("FLUSHALL") }, lease.ErrForgotten},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				m, other := dialMutex(t, s), dialMutex(t, s)
				l := hold(t, m)
				lose.do(t, s, other)
				next := hold(t, other)
				require.NoError(t, l.Context().Err(), "nobody could have told")
				err := l.Release(t.Context())
				require.ErrorIs(t, err, lose.cause)
				require.ErrorIs(t, err, lease.ErrLost)
				require.True(t, inspect(t, m).Held)
				require.Equal(t, next.Token(), inspect(t, m).Token)
				kit.Release(t, next)
			})
		})
	}
}

func force(t *testing.T, m *fairlock.Mutex) {
	t.Helper()
	_, err := m.ForceRelease(t.Context(), 0)
	require.NoError(t, err)
}

func TestTheNextHoldsAtOnceWhenTheMaximumIsReached(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		short := dialMutex(t, s, headwaiter.WithMaxHold(13*time.Second))
		l := hold(t, short)
		begun := time.Now()
		next := begin(t.Context(), dialMutex(t, s)).Value(t)
		require.InDelta(t, 13*time.Second, time.Since(begun), float64(300*time.Millisecond))
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrMaxHold)
		require.Greater(t, next.Token(), l.Token())
		require.Empty(t, inspect(t, short).Suspects, "reaching the maximum is no offence")
		kit.Release(t, next)
	})
}

// A hold whose work moves on outlasts its longest stall many times; one that hangs ends then, though its client renews it.
func TestTheNextHoldsAtOnceWhenTheWorkStalls(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s, headwaiter.WithMaxStall(13*time.Second))
		l := hold(t, m)
		waits := begin(t.Context(), dialMutex(t, s))
		for range 10 {
			time.Sleep(12 * time.Second) // A step of the work.
			require.NoError(t, l.Context().Err())
			l.Progress()
		}
		require.False(t, waits.Returned())
		begun := time.Now()
		require.LessOrEqual(t, l.Deadline(), begun.Add(13*time.Second))
		next := waits.Value(t)
		require.InDelta(t, 13*time.Second, time.Since(begun), float64(300*time.Millisecond))
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
		require.ErrorContains(t, context.Cause(l.Context()), "no progress for 13s")
		l.Progress()
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrStalled)
		require.Greater(t, next.Token(), l.Token())
		require.Empty(t, inspect(t, m).Suspects, "its client is well")
		kit.Release(t, next)
	})
}

type key struct{}

func TestTheContextOfAHoldHasTheValuesOfTheCallAndOutlivesIt(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
		l, err := m.Lock(ctx)
		require.NoError(t, err)
		require.Equal(t, "value", l.Context().Value(key{}))
		_, has := l.Context().Deadline()
		require.False(t, has)
		cancel()
		require.NoError(t, l.Context().Err())
		_, err = other.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, l)

		ctx, cancel = context.WithCancel(t.Context())
		l, err = other.TryLock(ctx)
		require.NoError(t, err)
		cancel()
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

func TestTheDeadlineOfAHoldIsWithinItsLeaseAndMovesWithRenewals(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		begun := time.Now()
		l := hold(t, dialMutex(t, s))
		first := l.Deadline()
		require.WithinRange(t, first, begun.Add(lease.DefaultLease*9/10), begun.Add(lease.DefaultLease))
		synctime.Pass(lease.DefaultLease / 2)
		require.WithinRange(t, l.Deadline(), first.Add(lease.DefaultLease/4), time.Now().Add(lease.DefaultLease))
		kit.Release(t, l)
	})
}

func TestDoReleasesAndJoinsWhatWentWrong(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		mine := errors.New("mine")
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			_, err := other.TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy)
			return ctx.Err()
		}))
		require.False(t, inspect(t, m).Held)
		require.Equal(t, mine, m.Do(t.Context(), func(context.Context) error { return mine }))

		err := m.Do(t.Context(), func(context.Context) error { force(t, other); return mine })
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, lease.ErrForced)
		require.ErrorContains(t, err, `lease lost: `+kit.Name(t)+`: released elsewhere by force`)

		require.PanicsWithValue(t, "oops", func() {
			_ = m.Do(t.Context(), func(context.Context) error { panic("oops") })
		})
		require.False(t, inspect(t, m).Held, "Do must release when f panics")
	})
}

func TestTheContextOfDoEndsWithThatOfTheCaller(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		err := m.Do(ctx, func(ctx context.Context) error {
			cancel(cause)
			kit.Await(t, ctx.Done(), "the context of Do to end")
			return context.Cause(ctx)
		})
		require.Equal(t, cause, err)
		require.False(t, inspect(t, m).Held, "Do must release though its caller's context has ended")
	})
}
