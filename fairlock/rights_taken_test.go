package fairlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// ward is a server on which a user may do everything until rights are taken from it.
type ward struct {
	*redistest.Server
	free *fairlock.Mutex // of a client that keeps all rights
}

func newWard(t *testing.T) ward {
	s := redistest.Start(t)
	w := ward{Server: s, free: dialMutex(t, s)}
	w.may("allkeys", "allchannels", "allcommands")
	return w
}

// may changes what the user may do.
func (w ward) may(rules ...string) {
	w.Do(append([]string{"ACL", "SETUSER", "lock", "on", ">secret"}, rules...)...)
}

// member is the lock of the test as a client of the user sees it.
func (w ward) member(t *testing.T, opts ...fairlock.Option) *fairlock.Mutex {
	return fairlock.New(kit.Dial(t, w, as("lock")), kit.Name(t), opts...)
}

func TestAReleaseThatMayNotPublishSaysSoAndTheNextGetsInByItself(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	a, b := s.member(t), s.member(t)
	l := hold(t, a)
	c := begin(t.Context(), b)
	queued(t, a, 1)
	s.may("-publish")
	err := l.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrUnwoken)
	require.ErrorContains(t, err, "+publish")
	info := inspect(t, s.free)
	require.True(t, !info.Held && info.Waiting == 1 || info.Held && info.Waiting == 0, "half done: %+v", info)
	next := c.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Expiring(t, s)
	kit.Release(t, next)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
}

// An end that has to come again with all keys has changed nothing: others may run scripts before it does.
func TestAnEndThatMayNotPublishLeavesTheHoldAsItWas(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	lock, queue, _ := keysOf(kit.Name(t))
	l := hold(t, s.free)
	c := begin(t.Context(), s.member(t))
	queued(t, s.free, 1)
	user, end := wired(t, s)
	defer end()
	ticket := s.Text("HGET", lock, "owner")
	release := func(floor string) int64 {
		n, err := user.Do(t.Context(), user.B().Eval().Script(lua.Fairlock.End.Source).Numkeys(2).Key(lock, queue).Arg(ticket, floor).Build()).AsInt64()
		require.NoError(t, err)
		return n
	}
	s.may("-publish")
	s.Do("HSET", lock, "since", s.Text("HGET", lock, "token")+":1") // As of a token that was ahead of the clock.
	before := contents(t, s)
	for _, floor := range []string{"0", "5000000"} {
		require.Equal(t, int64(lua.MoreKeys), release(floor))
		require.Equal(t, before, contents(t, s))
	}
	s.may("+publish")
	kit.Release(t, l)
	kit.Release(t, c.Value(t))
}

// wired is a connection of the user.
func wired(t *testing.T, s ward) (rueidis.Client, func()) {
	w, err := waitqueue.WiringOf(kit.Dial(t, s, as("lock")))
	require.NoError(t, err)
	rc, end, err := w.Dial(t.Context(), s.Addr())
	require.NoError(t, err)
	return rc, end
}

// Where the message of a grant is refused, the ticket is put back: into a queue that was empty for a moment, and whose
// key has to expire as it did before.
func TestATicketThatIsPutBackDoesNotStayForEver(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	wire := faults.NewProxy(t, s.Addr())
	a := s.member(t)
	b := fairlock.New(kit.Dial(t, s, as("lock"), kit.Through(wire)), kit.Name(t))
	l := hold(t, a)
	c := begin(t.Context(), b)
	queued(t, a, 1)
	s.may("-publish")
	wire.Freeze(faults.ToServer) // So that it does not get in by itself.
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrUnwoken)
	require.Equal(t, 1, inspect(t, s.free).Waiting)
	kit.Expiring(t, s)
	wire.Heal()
	kit.Release(t, c.Value(t))
}

func TestAWaiterWhoseChannelsAreTakenGetsInByItsOwnChecks(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]string{{"resetchannels"}, {"-subscribe", "-unsubscribe"}, {"-pubsub"}} {
		t.Run(rules[0], func(t *testing.T) {
			t.Parallel()
			s := newWard(t)
			m := s.member(t)
			l := hold(t, s.free)
			c := begin(t.Context(), m)
			queued(t, s.free, 1)
			s.may(rules...)
			s.Do("CLIENT", "KILL", "TYPE", "pubsub")
			begun := time.Now()
			kit.Release(t, l)
			next := c.Value(t)
			require.Less(t, time.Since(begun), 5*time.Second)
			require.Greater(t, next.Token(), l.Token())
			kit.Release(t, next)
			queued(t, s.free, 0)
		})
	}
}

func TestAUserThatMayDoNothingAnyMoreIsToldAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"-evalsha", "-@all", "resetkeys"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			s := newWard(t)
			holder, waiter := s.member(t, headwaiter.WithLease(2*time.Second)), s.member(t)
			l := hold(t, holder)
			c := begin(t.Context(), waiter)
			queued(t, s.free, 1)
			s.may(rule)
			before := contents(t, s)
			_, err := waiter.TryLock(t.Context())
			denied(t, err)
			denied(t, begin(t.Context(), holder).Err(t))
			_, err = waiter.Inspect(t.Context())
			denied(t, err)
			_, err = waiter.ForceRelease(t.Context(), 0)
			denied(t, err)
			require.Equal(t, before, contents(t, s))

			denied(t, c.Err(t))
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrExpired)
			next := begin(t.Context(), s.free).Value(t) // The queue has a ticket of the one that may not leave.
			require.Greater(t, next.Token(), l.Token())

			s.may("allkeys", "allchannels", "allcommands")
			again := begin(t.Context(), waiter)
			kit.Eventually(t, "the user to wait again", func() bool { return inspect(t, s.free).Waiting > 0 })
			kit.Release(t, next)
			kit.Release(t, again.Value(t))
			kit.Expiring(t, s)
		})
	}
}

// A release that is refused frees nothing, and says so.
func TestAReleaseThatIsRefusedIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	m := s.member(t)
	l := hold(t, m)
	s.may("-evalsha", "-eval")
	before := contents(t, s)
	err := l.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	denied(t, err)
	require.Equal(t, before, contents(t, s))
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased, "a second release is not another try")
}

// denied asserts that an error says that a right is missing, and where to look it up.
func denied(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "NOPERM")
	require.ErrorContains(t, err, "the user lacks a right: see docs/deploy.md")
}
