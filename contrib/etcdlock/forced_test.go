package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// The leases are so long that no renewal and no look at them is within the test.
func TestAHolderIsToldAtOnceThatItWasForcedOut(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	a, b, root := dial(t, s, lasting(time.Hour)), dial(t, s, lasting(time.Hour)), admin(t, s)
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	p, q := etcdlock.NewSemaphore(a, "some", 2), etcdlock.NewSemaphore(b, "some", 2)
	e, f := etcdlock.NewElection(a, "lead"), etcdlock.NewElection(b, "lead")
	other := locked(t, etcdlock.New(a, "other"))
	for name, kind := range map[string]struct {
		lock  func(context.Context) (*lease.Lease, error)
		force func(context.Context, *lease.Lease) error
	}{
		"mutex": {m.Lock, func(ctx context.Context, l *lease.Lease) error {
			_, err := n.ForceRelease(ctx, l.Token())
			return err
		}},
		"semaphore": {func(ctx context.Context) (*lease.Lease, error) { return p.Acquire(ctx, 2) },
			func(ctx context.Context, l *lease.Lease) error {
				_, err := q.ForceRelease(ctx, 0)
				require.ErrorIs(t, err, lease.ErrInvalid)
				_, err = q.ForceRelease(ctx, l.Token()+1)
				require.ErrorIs(t, err, lease.ErrNotHeld)
				freed, err := q.ForceRelease(ctx, l.Token())
				require.Equal(t, l.Token(), freed.Token)
				return err
			}},
		"election": {func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, "me") },
			func(ctx context.Context, l *lease.Lease) error {
				_, err := f.ForceRelease(ctx, l.Token())
				return err
			}},
	} {
		for range 3 {
			l := kit.Lock(t.Context(), kind.lock).Value(t)
			waits := kit.Lock(t.Context(), kind.lock)
			require.NoError(t, kind.force(t.Context(), l), name)
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced, name)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced, name)
			next := waits.Value(t)
			require.Greater(t, next.Token(), l.Token(), name)
			kit.Release(t, next)
		}
	}
	require.NoError(t, other.Context().Err(), "another hold of the client has nothing to do with it")
	kit.Release(t, other)
	empty(t, root) // No notice either.
}

func TestForceReleaseTellsThatThereWasNothing(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	m := etcdlock.New(dial(t, s), "one")
	_, err := m.ForceRelease(t.Context(), 0)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	l := locked(t, m)
	_, err = m.ForceRelease(t.Context(), l.Token()+1)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
}

// A notice of an earlier hold, that comes late or twice, ends no later one.
func TestANoticeEndsNoOtherHold(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	m, root := etcdlock.New(dial(t, s, lasting(time.Hour)), "one"), admin(t, s)
	first, second := locked(t, m), etcdlock.New(dial(t, s), "one")
	kit.Release(t, first)
	l := locked(t, m) // By the same key.
	kv := keys(t, root).Kvs[0]
	notice := etcdlock.Notice(prefix(t), kv.Lease)
	for _, text := range []string{etcdlock.Told(int64(first.Token()), string(kv.Key)), "", "nonsense", "12", "12 "} {
		_, err := root.Put(t.Context(), notice, text)
		require.NoError(t, err)
		kit.Eventually(t, "the notice to be taken away", func() bool { return keys(t, root).Count == 1 })
	}
	require.NoError(t, l.Context().Err())
	_, err := second.ForceRelease(t.Context(), 0)
	require.NoError(t, err)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
}

// The connection is broken when the notice comes: it is heard with the next.
func TestANoticeIsHeardAfterABreak(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	var w enginetest.Wires
	c := dial(t, s, func(o *etcdlock.Options) { o.Etcd, o.Lease = wired(&w, s), time.Hour })
	other := etcdlock.New(dial(t, s), "one")
	for range 3 {
		l := locked(t, etcdlock.New(c, "one"))
		w.Reset()
		_, err := other.ForceRelease(t.Context(), 0)
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	}
}
