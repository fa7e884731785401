package rwlock_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestLostRepliesToReadersAndWritersHaveTheirEffectOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := locks(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s))
		const cuts = 20
		for i := range cuts {
			lock, want := far.RLock, int64(1)
			if i%2 == 0 {
				lock, want = far.Lock, lua.AllReaders
			}
			if i%4 < 2 {
				p.LoseReplies(1, kit.Runs(lua.RWLock.Ask))
			}
			l := kit.Lock(t.Context(), lock).Value(t)
			info, err := near.Inspect(t.Context())
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			require.Equal(t, want, info.Used)
			if i%4 >= 2 {
				p.LoseReplies(1, kit.Runs(lua.RWLock.End))
			}
			kit.Release(t, l)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
			info, err = near.Inspect(t.Context())
			require.NoError(t, err)
			require.Zero(t, info.Used)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		kit.Free(t, near)
	})
}

// The message that lets a group of readers in is lost for one of their clients.
func TestAGroupWhoseMessageIsLostIsFoundByACheck(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		near, far := locks(t, kit.Dial(t, s), kit.Dial(t, s, kit.Through(p)), headwaiter.WithLease(time.Second))
		w := write(t, t.Context(), near)
		calls := make([]*kit.Call[*lease.Lease], 3)
		for i := range calls {
			calls[i] = kit.Lock(t.Context(), far.RLock)
			kit.Waiting(t, i+1, near.Inspect)
		}
		p.LosePushes(1, kit.Notices(lua.MessageGrant))
		kit.Release(t, w)
		for _, c := range calls {
			require.NoError(t, c.Value(t).Context().Err())
		}
		_, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
		kit.Free(t, near)
	})
}

func TestALossEndsAllLeasesOnAHold(t *testing.T) {
	for what, lose := range map[string]struct {
		do    func(t *testing.T, s redistest.Backend, m *rwlock.RWMutex)
		cause error
	}{
		"by force": {func(t *testing.T, s redistest.Backend, m *rwlock.RWMutex) {
			_, err := rwlock.New(kit.Dial(t, s), m.Name()).ForceRelease(t.Context(), holder(t, m).Token)
			require.NoError(t, err)
		}, lease.ErrForced},
		"by FLUSHALL": {func(_ *testing.T, s redistest.Backend, _ *rwlock.RWMutex) { s.Do("FLUSHALL") }, lease.ErrForgotten},
		"by a lost key": {func(_ *testing.T, s redistest.Backend, m *rwlock.RWMutex) {
			s.Do("DEL", keyOf(m.Name())+":holders")
		}, lease.ErrForgotten},
	} {
		t.Run(what, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(3*time.Second))
				w := write(t, t.Context(), m)
				leases := []*lease.Lease{w, write(t, w.Context(), m), read(t, w.Context(), m)}
				waiting := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), other.RLock)}
				kit.Waiting(t, 1, other.Inspect)
				waiting = append(waiting, kit.Lock(t.Context(), other.RLock))
				kit.Waiting(t, 2, other.Inspect)
				lose.do(t, s, m)
				for _, l := range leases {
					require.ErrorIs(t, kit.Lost(t, l), lose.cause)
					require.ErrorIs(t, l.Release(t.Context()), lose.cause)
				}
				counts(t, m, w.Context(), 0, 0)
				for _, c := range waiting {
					l := c.Value(t)
					require.Greater(t, l.Token(), w.Token())
					kit.Release(t, l)
				}
				again := write(t, context.WithoutCancel(w.Context()), m)
				require.Greater(t, again.Token(), w.Token())
				kit.Release(t, again)
				kit.Free(t, other)
			})
		})
	}
}

// Each reader has a lease of its own: what one cannot renew ends, and the others stand.
// Readers who hold together have one token, which does not say whose hold is meant.
func TestTheVeryReaderThatIsMeantIsReleasedByForce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		x, y := locks(t, a, b)
		first, second := read(t, t.Context(), x), read(t, t.Context(), y)
		require.Equal(t, first.Token(), second.Token())
		_, err := x.ForceRelease(t.Context(), first.Token())
		require.ErrorIs(t, err, lease.ErrInvalid)
		info, err := x.Inspect(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(info.Holders, func(h lease.Holder) bool { return h.Client == b.ID() })
		_, err = x.ForceReleaseHolder(t.Context(), info.Holders[i])
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, second), lease.ErrForced)
		_, err = x.ForceReleaseHolder(t.Context(), info.Holders[i])
		require.ErrorIs(t, err, lease.ErrNotHeld, "not that of somebody who came after it")
		require.NoError(t, first.Context().Err())
		kit.Release(t, first)
	})
}

func TestAReaderThatIsCutOffLosesItsHoldAlone(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		near, far := locks(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)))
		living, cut := read(t, t.Context(), near), read(t, t.Context(), far)
		writer := kit.Lock(t.Context(), near.Lock)
		kit.Waiting(t, 1, near.Inspect)
		d.Refuse()
		d.Cut()
		require.ErrorIs(t, kit.Lost(t, cut), lease.ErrExpired)
		synctime.Pass(lease.DefaultLease)
		require.NoError(t, living.Context().Err())
		require.False(t, writer.Returned())
		released := time.Now()
		kit.Release(t, living)
		w := writer.Value(t)
		require.Less(t, time.Since(released), time.Second)
		kit.Release(t, w)
		d.Heal()
		kit.Release(t, read(t, t.Context(), far))
		kit.Free(t, near)
	})
}

func TestCloseGivesBackReadsAndWritesAndLeavesTheQueue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m, gone := locks(t, kit.Dial(t, s), c)
		mine, theirs := read(t, t.Context(), m), read(t, t.Context(), gone)
		again := read(t, theirs.Context(), gone)
		blocked := kit.Lock(t.Context(), gone.Lock)
		kit.Waiting(t, 1, m.Inspect)
		behind := kit.Lock(t.Context(), m.RLock)
		kit.Waiting(t, 2, m.Inspect)
		require.NoError(t, c.Close(t.Context()))
		require.ErrorIs(t, blocked.Err(t), lease.ErrClosed)
		kit.Release(t, behind.Value(t)) // The writer that kept it out has left.
		for _, l := range []*lease.Lease{theirs, again} {
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrClientClosed)
		}
		_, err := gone.TryRLock(t.Context())
		require.EqualError(t, err, `rwlock: try read lock "`+m.Name()+`": client closed`)
		require.ErrorIs(t, gone.Downgrade(t.Context(), theirs), lease.ErrClientClosed)
		kit.Release(t, mine)
		kit.Free(t, m)
	})
}

func TestUnusableNamesAndTimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		s.ResetStats()
		for _, bad := range []struct {
			m  *rwlock.RWMutex
			is error
		}{
			{rwlock.New(c, ""), lease.ErrInvalid},
			{rwlock.New(c, "}x"), lease.ErrInvalid},
			{rwlock.New(c, "a\nb"), lease.ErrInvalid},
			{rwlock.New(c, strings.Repeat("x", lease.MaxName+1)), lease.ErrTooLarge},
			{rwlock.New(c, "n", headwaiter.WithLease(0)), lease.ErrInvalid},
			{rwlock.New(c, "n", headwaiter.WithMaxHold(-1)), lease.ErrInvalid},
			{rwlock.New(c, "n", headwaiter.WithPriority(math.MinInt)), lease.ErrTooLarge},
		} {
			for _, lock := range []func(context.Context) (*lease.Lease, error){bad.m.Lock, bad.m.RLock, bad.m.TryLock, bad.m.TryRLock} {
				_, err := lock(t.Context())
				require.ErrorIs(t, err, bad.is)
				require.Regexp(t, `^rwlock: \P{C}*$`, err.Error())
			}
			require.ErrorIs(t, bad.m.Do(t.Context(), nil), bad.is)
			require.ErrorIs(t, bad.m.RDo(t.Context(), nil), bad.is)
			reads, writes := bad.m.HoldCount(t.Context())
			require.Zero(t, reads+writes)
		}
		require.Empty(t, kit.Scripts(s))
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		r := read(t, t.Context(), m)
		w := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		synctime.Pass(3 * lease.DefaultLease)
		kit.Release(t, r)
		require.NoError(t, other.Downgrade(t.Context(), w.Value(t)))
		synctime.Pass(3 * lease.DefaultLease)
		kit.Release(t, w.Value(t))
		require.NotEmpty(t, s.List("KEYS", "*{*"))
		synctime.Pass(75 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))
	})
}
