package rwlock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/rwlock"
)

func TestADowngradeLetsTheReadersAtTheHeadIn(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		w := write(t, t.Context(), m)
		readers := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), other.RLock)}
		kit.Waiting(t, 1, m.Inspect)
		readers = append(readers, kit.Lock(t.Context(), m.RLock))
		kit.Waiting(t, 2, m.Inspect)
		writer, late := kit.Joins(t, 3, other.Lock, m.Inspect), kit.Joins(t, 4, other.RLock, m.Inspect)

		require.NoError(t, m.Downgrade(t.Context(), w))
		for _, c := range readers {
			require.Greater(t, c.Value(t).Token(), w.Token(), "it has written")
			require.Equal(t, readers[0].Value(t).Token(), c.Value(t).Token(), "they hold beside each other")
		}
		beside := kit.Must(rwlock.New(a, kit.Name(t)+":free").Lock(t.Context()))
		free, from := rwlock.New(a, kit.Name(t)+":free"), rwlock.New(b, kit.Name(t)+":free")
		require.NoError(t, free.Downgrade(t.Context(), beside))
		first := read(t, t.Context(), from)
		require.Greater(t, first.Token(), beside.Token(), "also of one that has not waited")
		next := read(t, t.Context(), free)
		require.Equal(t, first.Token(), next.Token())
		kit.Release(t, beside, first, next)
		require.NoError(t, w.Context().Err())
		counts(t, m, w.Context(), 1, 0)
		require.NoError(t, m.Downgrade(t.Context(), w), "twice is once")
		require.False(t, writer.Returned() || late.Returned())
		info := kit.Got(m.Inspect(t.Context()))(t)
		require.EqualValues(t, []int64{3, 2}, []int64{info.Used, int64(info.Waiting)})

		kit.Release(t, w)
		for _, c := range readers {
			require.False(t, writer.Returned() || late.Returned())
			kit.Release(t, c.Value(t))
		}
		l := writer.Value(t)
		require.Greater(t, l.Token(), w.Token())
		require.False(t, late.Returned())
		kit.PassOn(t, l, late)
		kit.Free(t, m)
	})
}

// What one writer has written is what it reads after the downgrade, however many writers wait.
func TestNoWriterGetsInBetweenAWriteAndItsDowngrade(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			clients = 3
			rounds  = 30
		)
		var value int // What the lock protects: the race detector watches, too.
		var calls []*kit.Call[struct{}]
		for range clients {
			m := rwlock.New(kit.Dial(t, s), kit.Name(t))
			calls = append(calls, kit.Run(func() error {
				for range rounds {
					l, err := m.Lock(context.Background())
					if err != nil {
						return err
					}
					value++
					mine := value
					if err := m.Downgrade(context.Background(), l); err != nil {
						return err
					}
					if value != mine {
						t.Errorf("%d was written, and %d read", mine, value)
					}
					if err := l.Release(context.Background()); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, c := range calls {
			c.Value(t)
		}
		require.Equal(t, clients*rounds, value)
	})
}

func TestOtherWritesOnTheHoldKeepItExclusive(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		w := write(t, t.Context(), m)
		again := write(t, w.Context(), m)
		require.NoError(t, m.Downgrade(t.Context(), w))
		counts(t, m, w.Context(), 1, 1)
		readable(t, other, false)
		third, err := m.Lock(w.Context())
		require.NoError(t, err, "the hold is still one for writing")
		kit.Release(t, again)
		readable(t, other, false)
		require.NoError(t, m.Downgrade(t.Context(), third))
		counts(t, m, w.Context(), 2, 0)
		readable(t, other, true)
		require.ErrorIs(t, kit.Err(m.Lock(w.Context())), lease.ErrUpgrade)
		kit.Release(t, w, third)
		kit.Free(t, other)
	})
}

func TestADowngradeOfWhatIsNoWriteHold(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		m, other := rwlock.New(c, kit.Name(t)), rwlock.New(c, kit.Name(t)+":other")
		r := read(t, t.Context(), m)
		require.NoError(t, m.Downgrade(t.Context(), r), "it is one for reading already")
		require.ErrorIs(t, other.Downgrade(t.Context(), r), lease.ErrNotHeld)
		require.ErrorIs(t, rwlock.New(kit.Dial(t, s), m.Name()).Downgrade(t.Context(), r), lease.ErrNotHeld)
		kit.Release(t, r)
		err := m.Downgrade(t.Context(), r)
		require.ErrorIs(t, err, lease.ErrReleased)
		require.Regexp(t, `^rwlock: downgrade ".*": `, err.Error())

		w := write(t, t.Context(), m)
		inner := write(t, w.Context(), m)
		require.NoError(t, kit.Err(rwlock.New(kit.Dial(t, s), m.Name()).ForceRelease(t.Context(), holder(t, m).Token)))
		require.ErrorIs(t, kit.Lost(t, w), lease.ErrForced)
		require.ErrorIs(t, m.Downgrade(t.Context(), w), lease.ErrForced)
		require.ErrorIs(t, kit.Lost(t, inner), lease.ErrForced)
		require.ErrorIs(t, w.Release(t.Context()), lease.ErrForced)
		kit.Free(t, m)
	})
}

// holder is the hold whose lease ends first.
func holder(t testing.TB, m *rwlock.RWMutex) lease.Holder {
	t.Helper()
	info := kit.Got(m.Inspect(context.Background()))(t)
	require.True(t, info.Held)
	return info.Holder
}

// Nobody waits for the answer, which is no reason to keep readers out for as long as what is left of the hold lasts.
func TestAWriteThatIsReleasedByAContextThatHasEndedLetsReadersIn(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		w := write(t, t.Context(), m)
		inner := read(t, w.Context(), m)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.Release(ended), lease.ErrUnconfirmed)
		kit.Release(t, kit.Lock(t.Context(), other.RLock).Value(t))
		require.NoError(t, inner.Context().Err())
		kit.Release(t, inner)
		kit.Free(t, other)
	})
}

func TestADowngradeFindsOutThatTheHoldIsLost(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := rwlock.New(kit.Dial(t, s), kit.Name(t))
		w := write(t, t.Context(), m)
		s.Do("FLUSHALL")
		require.ErrorIs(t, m.Downgrade(t.Context(), w), lease.ErrForgotten)
		require.ErrorIs(t, kit.Lost(t, w), lease.ErrForgotten)
		kit.Free(t, m)
	})
}

func TestADowngradeWhoseReplyIsLostIsOne(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		m, other := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		kit.Release(t, read(t, t.Context(), m))
		for i := range 30 {
			w := write(t, t.Context(), m)
			r, writer := kit.Joins(t, 1, other.RLock, other.Inspect), kit.Joins(t, 2, other.Lock, other.Inspect)
			p.LoseReplies(1, kit.Runs(lua.Downgrade.Script))
			require.NoError(t, m.Downgrade(t.Context(), w))
			replies, _ := p.Lost()
			require.Equal(t, i+1, replies)
			require.Greater(t, r.Value(t).Token(), w.Token())
			require.False(t, writer.Returned())
			require.EqualValues(t, 2, kit.Got(other.Inspect(t.Context()))(t).Used)
			kit.PassOn(t, w, r, writer)
		}
		kit.Free(t, other)
	})
}

func TestADowngradedHoldIsRenewedAsAReader(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		w := write(t, t.Context(), m)
		require.NoError(t, m.Downgrade(t.Context(), w))
		synctime.Pass(5 * lease.DefaultLease)
		require.NoError(t, w.Context().Err())
		readable(t, other, true)
		require.ErrorIs(t, kit.Err(other.TryLock(t.Context())), lease.ErrBusy)
		kit.Release(t, w)
		kit.Free(t, other)
	})
}

// An interrupted context has something done when it is first asked whether it has ended.
type interrupted struct {
	context.Context
	once sync.Once
	do   func()
}

func (c *interrupted) Err() error {
	c.once.Do(c.do)
	return c.Context.Err()
}

// The release of a hold overtakes the news that it is one for reading: its leases are released at the same time, or one
// is released while it is downgraded. The server does not know the hold then, which is no loss.
func TestAHoldThatIsReleasedOnTheWayToADowngradeIsNotLost(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := rwlock.New(kit.Dial(t, s), kit.Name(t))
		w := write(t, t.Context(), m)
		r := read(t, w.Context(), m)
		ctx := &interrupted{Context: t.Context(), do: func() { kit.Release(t, r) }}
		require.NoError(t, w.Release(ctx))
		require.ErrorIs(t, r.Release(t.Context()), lease.ErrReleased, "it was released in between")

		w = write(t, t.Context(), m)
		ctx = &interrupted{Context: t.Context(), do: func() { kit.Release(t, w) }}
		require.ErrorIs(t, m.Downgrade(ctx, w), lease.ErrReleased)
		kit.Free(t, m)
	})
}
