package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestThirtyTwoClientsHoldInOrder(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Shared(t)).ClientsHoldInOrder(t)
}

// On a server of its own, whose watches and connections are those of the test.
func TestNothingStaysAfterAThousandCyclesWithCancels(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	r := rig(t, s)
	a, b := r.Dial(t, kit.Patience), r.Dial(t, kit.Patience)
	r.CyclesWithCancels(t, a, b)
	require.Zero(t, kit.Got(s.Watches())(t))
	require.Equal(t, 3, s.Connections())
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()))
	kit.Eventually(t, "one connection to be left, the test's", func() bool { return s.Connections() == 1 })
}

// The token is not always asked for: where nothing else has happened it is the zxid of the parent's last change.
func TestTokensAreWhereTheNodesWereMade(t *testing.T) {
	s := shared(t)
	root := admin(t, s)
	const clients, cycles = 6, 40
	var group sync.WaitGroup
	var last uint64
	for n := range clients {
		m := zklock.New(dial(t, s, lasting(kit.Patience)), "one")
		group.Go(func() {
			for i := range cycles {
				ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
				if (i+n)%5 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
				}
				l, err := m.Lock(ctx)
				cancel()
				if err != nil {
					continue
				}
				info, err := m.Inspect(t.Context())
				if err != nil || info.Token != l.Token() || info.Token <= last {
					t.Errorf("token %d after %d, the node was made at %d: %v", l.Token(), last, info.Token, err)
				}
				last = l.Token()
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	kit.All(t, &group)
	empty(t, root)
}

// Curator's locks and those of the library stand in the same line.
func TestOtherLibrariesStandInTheSameLine(t *testing.T) {
	s := shared(t)
	m, root := zklock.New(dial(t, s), "one"), admin(t, s)
	other := zk.NewLock(root, one(t), zk.WorldACL(zk.PermAll))
	l := locked(t, m)
	theirs := kit.Run(other.Lock)
	kit.Waiting(t, 1, m.Inspect)
	next := queued(t, m, 2)
	require.False(t, theirs.Returned())
	kit.Release(t, l)
	require.NoError(t, theirs.Err(t))
	require.False(t, next.Returned())
	require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
	require.NoError(t, other.Unlock())
	kit.Release(t, next.Value(t))
}

// Many calls that give up waiting for one holder leave one watch, at the server and in the library, not one each.
func TestCallsThatGiveUpShareAWatch(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	r := zktest.NewRelay(t, s)
	long := lasting(3 * kit.Patience) // So that the only watches are those of who waits.
	m, n := zklock.New(dial(t, s, long), "one"), zklock.New(dial(t, s, through(r), long), "one")
	l := locked(t, m)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		call := kit.Lock(ctx, n.Lock)
		kit.Waiting(t, 1, m.Inspect)
		if i == 0 {
			kit.Eventually(t, "the watch to be asked for", func() bool { return r.Count(zktest.GetData) == 1 })
		}
		kit.Cancel(t, cancel, call)
		kit.Waiting(t, 0, m.Inspect)
	}
	waits := kit.Joins(t, 1, n.Lock, m.Inspect)
	require.False(t, waits.Returned())
	kit.PassOn(t, l, waits)
	require.Equal(t, 1, r.Count(zktest.GetData))
	kit.Eventually(t, "all watches to be gone", func() bool { return kit.Got(s.Watches())(t) == 0 })
}

// A parent can count to 2³¹. Near that, calls wait until the line is empty, and the next parent counts anew.
func TestALineThatHasCountedItsMostBeginsAnew(t *testing.T) {
	s := zktest.Shared(t)
	defer zklock.SetMaxNumber(zklock.SetMaxNumber(5))
	m, n, root := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s), "one"), admin(t, s)
	l := locked(t, m)
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		call := kit.Lock(ctx, n.Lock)
		kit.Waiting(t, 1, m.Inspect)
		require.True(t, strings.HasSuffix(queue(t, m)[0].Ticket, fmt.Sprintf("-lock-%010d", i+1)))
		kit.Cancel(t, cancel, call)
		kit.Waiting(t, 0, m.Inspect)
	}
	waits := kit.Lock(t.Context(), n.Lock)
	kit.Eventually(t, "the call to have tried", func() bool {
		_, stat, err := root.Get(one(t))
		require.NoError(t, err)
		return stat.Cversion > 13 // Seven were made, and six removed.
	})
	require.ErrorIs(t, kit.Err(n.TryLock(t.Context())), lease.ErrBusy)
	require.False(t, waits.Returned())
	next := kit.Next(t, l, waits)
	info := kit.Got(m.Inspect(t.Context()))(t)
	require.True(t, strings.HasSuffix(info.Holder.Ticket, "-lock-0000000000"), info.Holder.Ticket)
	kit.Release(t, next)
	empty(t, root)
}

// The look at who is left comes with the release before, so the next one holds at the first word of its turn.
func TestNothingIsAskedBetweenAReleaseAndTheNextHold(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	m, n := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s, through(r), lasting(kit.Patience)), "one")
	looks := func() int { return r.Count(zktest.GetChildren) }
	held, second, third := locked(t, m), queued(t, m, 1), queued(t, n, 2)
	before := looks()
	held = kit.Next(t, held, second)
	kit.Eventually(t, "the last to look", func() bool { return looks() > before })
	before = looks()
	kit.PassOn(t, held, third)
	require.Equal(t, before, looks())
}

func TestAnObserverIsToldOfCallsAndHolds(t *testing.T) {
	s := shared(t)
	o := &kit.Observer{}
	mine := zklock.New(dial(t, s, func(x *zklock.Options) { x.Observer = o }), "one")
	theirs := zklock.New(dial(t, s), "one")
	enginetest.AnObserverIsTold(t, o, "one", mine, theirs, func() error {
		return kit.Err(theirs.ForceRelease(t.Context(), 0))
	})
}

func TestTheServerIsSeenToGoAndComeBack(t *testing.T) {
	t.Parallel()
	s, o := zktest.Own(t), &kit.Requests{}
	c := dial(t, s, lasting(enginetest.Short), func(x *zklock.Options) { x.Observer, x.Name = o, "observed" })
	rig(t, s).TheServerIsSeenToGoAndComeBack(t, o, zklock.New(c, "one").Lock, "zookeeper")
}

// Goroutines share a Mutex: one releases while the other asks, and looks what it got.
func TestTheTokenOfASharedMutexIsThatOfTheOwnNode(t *testing.T) {
	t.Parallel()
	const cycles = 300
	m, stop := zklock.New(dial(t, zktest.Shared(t)), "one"), make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			l, err := m.Lock(t.Context())
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	wrong := 0
	for range cycles {
		l := locked(t, m)
		info := kit.Got(m.Inspect(t.Context()))(t)
		if l.Token() != info.Token {
			wrong++
		}
		kit.Release(t, l)
	}
	close(stop)
	kit.All(t, &other)
	require.Zero(t, wrong, "tokens of %d that are those of another change", cycles)
}

func TestConformance(t *testing.T) {
	s := zktest.Shared(t)
	missed := conformance.Run(t, conformance.Engine{
		Dial: func(t testing.TB) conformance.Client { return conforming(t, s) },
		Fair: true, Fenced: true, Told: true, Lease: enginetest.Short,
		Errors: enginetest.Errors,
	})
	require.Equal(t, notOffered, missed)
}

// notOffered is what zklock does not have.
var notOffered = []string{
	"mutex: a holder that asks is told when somebody waits: it is not told when it is Wanted",
	"mutex: a hold is told how the one before it ended: it does not say that it Remembers",
	"mutex: a hold is handed over once, ahead of the queue: the client has no Adopt",
	"mutex: a full queue refuses at once, and nobody who waits: the client has no Limited",
	"mutex: what a client keeps is given back to who wants it: the client has no Kept",
	"mutex: kinds of one name do not meet: nothing else is offered",
	"reentrant: it is not offered",
	"rwlock: it is not offered",
	"semaphore: it is not offered",
	"latch: it is not offered",
	"barrier: it is not offered",
}

func conforming(t testing.TB, s *zktest.Server) conformance.Client {
	t.Helper()
	w := &enginetest.Wires{}
	c := kit.Got(zklock.Dial(zklock.Options{Servers: []string{s.Address()}, Lease: enginetest.Short, Name: "conformance", Dialer: w.Connect}))(t)
	return conformance.Client{
		Mutex: func(name string, _ time.Duration) conformance.Mutex {
			return enginetest.Conforming{Forcible: zklock.New(c, name)}
		},
		Close: c.Shutdown,
		Cut:   w.Cut, Silence: w.Silence,
	}
}
