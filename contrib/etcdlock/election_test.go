package etcdlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// next waits for news until a value and a token are told.
func next(t *testing.T, news <-chan lease.Leader, value string, token uint64) {
	t.Helper()
	seen := kit.Go(func() (string, error) {
		for l := range news {
			if l.Value == value && l.Token == token {
				return l.Value, l.Err
			}
		}
		return "no more news", nil
	})
	require.Equal(t, value, seen.Value(t))
}

func TestLeadersInTurnAreObserved(t *testing.T) {
	s := shared(t)
	a, b, watching := dial(t, s), dial(t, s), dial(t, s)
	one, two := etcdlock.NewElection(a, "one"), etcdlock.NewElection(b, "one")
	looks := etcdlock.NewElection(watching, "one")
	require.ErrorIs(t, kit.Err(looks.Leader(t.Context())), lease.ErrNoLeader)
	ctx, cancel := context.WithCancel(t.Context())
	news := looks.Observe(ctx)
	next(t, news, "", 0)

	l := kit.Got(one.Campaign(t.Context(), "first"))(t)
	next(t, news, "first", l.Token())
	other := kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) { return two.Campaign(ctx, "second") })
	root := admin(t, s)
	kit.Eventually(t, "another candidate", func() bool { return keys(t, root).Count == 2 })
	require.NoError(t, one.Proclaim(t.Context(), l, "first again"))
	next(t, news, "first again", l.Token())
	require.ErrorIs(t, two.Proclaim(t.Context(), l, "not mine"), lease.ErrNotHeld)

	later := kit.Next(t, l, other)
	next(t, news, "second", later.Token())
	require.ErrorIs(t, one.Proclaim(t.Context(), l, "late"), lease.ErrReleased)
	who := kit.Got(looks.Leader(t.Context()))(t)
	require.Equal(t, "second", who.Value)
	require.True(t, strings.HasPrefix(who.Who, "test@"), who.Who)

	// Taken away: the leader learns it from its proclamation.
	require.NoError(t, kit.Err(looks.ForceRelease(t.Context(), later.Token())))
	require.ErrorIs(t, two.Proclaim(t.Context(), later, "third"), lease.ErrLost)
	require.ErrorIs(t, kit.Lost(t, later), lease.ErrForced)
	next(t, news, "", 0)
	cancel()
	kit.Eventually(t, "the channel to be closed", func() bool { _, open := <-news; return !open })
	empty(t, root)
}

func TestAnObservationEndsWithItsClient(t *testing.T) {
	s := shared(t)
	c := dial(t, s)
	e := etcdlock.NewElection(c, "one")
	news := e.Observe(t.Context())
	next(t, news, "", 0)
	require.NoError(t, c.Shutdown(t.Context()))
	last, open := <-news
	require.True(t, open)
	require.ErrorIs(t, last.Err, lease.ErrClosed)
	_, open = <-news
	require.False(t, open)
	require.ErrorIs(t, (<-e.Observe(t.Context())).Err, lease.ErrClosed)
}

// The server has not yet confirmed the watch of an observation that ends right after its first news.
func TestObservationsThatEndAtOnceLeaveNoWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	c := dial(t, s, lasting(kit.Patience))
	l := locked(t, etcdlock.New(c, "other")) // Its client listens on, by the connection that the watches have too.
	e := etcdlock.NewElection(c, "one")
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		news := e.Observe(ctx)
		require.NoError(t, (<-news).Err)
		cancel()
		_, more := <-news
		require.False(t, more)
	}
	kit.Eventually(t, "one watch to be left", func() bool { return watches(t, s) == 1 })
	kit.Release(t, l)
}

// A proclamation whose answer is lost is not made twice; one that comes late replaces nothing.
func TestAProclamationThatComesLateChangesNothing(t *testing.T) {
	s := shared(t)
	var l loser
	e, root := etcdlock.NewElection(dial(t, s, l.option), "one"), admin(t, s)
	held := kit.Got(e.Campaign(t.Context(), "a"))(t)
	l.lose(txnMethod, 2, nil)
	require.NoError(t, e.Proclaim(t.Context(), held, "b"))
	require.EqualValues(t, 2, keys(t, root).Kvs[0].Version)

	late := make(chan struct{})
	l.lose(txnMethod, 1<<30, late)
	ctx, cancel := context.WithCancel(t.Context())
	unsure := kit.Run(func() error { return e.Proclaim(ctx, held, "c") })
	kit.Eventually(t, "the request to be on its way", l.begun)
	cancel()
	kit.Fails(t, unsure.Err(t), lease.ErrOutcomeUnknown, context.Canceled)
	l.lose(txnMethod, 0, nil)
	require.NoError(t, e.Proclaim(t.Context(), held, "b"), "what it is as yet")
	close(late)
	l.done.Wait()
	require.Equal(t, "b", kit.Got(e.Leader(t.Context()))(t).Value)
	require.ErrorIs(t, e.Proclaim(t.Context(), nil, "d"), lease.ErrNotHeld)
	kit.Release(t, held)
}

// The leases are so long that no renewal and no look at them is within the test.
func TestAHolderIsToldAtOnceThatItWasForcedOut(t *testing.T) {
	s := shared(t)
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
			return kit.Err(n.ForceRelease(ctx, l.Token()))
		}},
		"semaphore": {func(ctx context.Context) (*lease.Lease, error) { return p.Acquire(ctx, 2) },
			func(ctx context.Context, l *lease.Lease) error {
				require.ErrorIs(t, kit.Err(q.ForceRelease(ctx, 0)), lease.ErrInvalid)
				require.ErrorIs(t, kit.Err(q.ForceRelease(ctx, l.Token()+1)), lease.ErrNotHeld)
				freed, err := q.ForceRelease(ctx, l.Token())
				require.Equal(t, l.Token(), freed.Token)
				return err
			}},
		"election": {func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, "me") },
			func(ctx context.Context, l *lease.Lease) error { return kit.Err(f.ForceRelease(ctx, l.Token())) }},
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
	s := shared(t)
	m := etcdlock.New(dial(t, s), "one")
	require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
	l := locked(t, m)
	require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), l.Token()+1)), lease.ErrNotHeld)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
}

// A notice of an earlier hold, that comes late or twice, ends no later one.
func TestANoticeEndsNoOtherHold(t *testing.T) {
	s := shared(t)
	m, root := etcdlock.New(dial(t, s, lasting(time.Hour)), "one"), admin(t, s)
	first, second := locked(t, m), etcdlock.New(dial(t, s), "one")
	kit.Release(t, first)
	l := locked(t, m) // By the same key.
	kv := keys(t, root).Kvs[0]
	notice := etcdlock.Notice(prefix(t), kv.Lease)
	for _, text := range []string{etcdlock.Told(int64(first.Token()), string(kv.Key)), "", "nonsense", "12", "12 "} {
		require.NoError(t, kit.Err(root.Put(t.Context(), notice, text)))
		kit.Eventually(t, "the notice to be taken away", func() bool { return keys(t, root).Count == 1 })
	}
	require.NoError(t, l.Context().Err())
	require.NoError(t, kit.Err(second.ForceRelease(t.Context(), 0)))
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
}

// The connection is broken when the notice comes: it is heard with the next.
func TestANoticeIsHeardAfterABreak(t *testing.T) {
	s := shared(t)
	var w enginetest.Wires
	c := dial(t, s, func(o *etcdlock.Options) { o.Etcd, o.Lease = wired(&w, s), time.Hour })
	other := etcdlock.New(dial(t, s), "one")
	for range 3 {
		l := locked(t, etcdlock.New(c, "one"))
		w.Reset()
		require.NoError(t, kit.Err(other.ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	}
}
