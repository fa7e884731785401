package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// The ways to the nodes take each contender another time, so votes are split again and again. The clock of a bubble
// shows for how long nobody holds, and not how busy the machine is.
func TestR5ThreeContendersOnFiveNodesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t, 5)
		var contenders []*redlock.Mutex
		for range 3 {
			contenders = append(contenders, mutex(t, b.connect()))
		}
		for i, ways := range b.ways {
			for k, d := range ways {
				d.Delay(time.Duration(1+(2*i+3*k)%5) * time.Millisecond)
			}
		}
		g := newGuard()
		stop := g.contend(t, contenders...)
		for range 5 {
			g.reached(t, 40)
		}
		stop()
		entries, longest := g.sound(t)
		t.Logf("%d holds, the longest time without one %v", entries, longest)
		require.Less(t, longest, time.Second)
		for _, m := range contenders {
			require.NoError(t, m.Wait(t.Context()))
		}
	})
}

// Of five nodes two vote for one, two for another and one for a third, and then each asks the others. That is the
// worst that a race can come to: nobody has a quorum, and nobody releases.
func TestR5AVoteThatIsSplitInThreeComesTogether(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	votes := []int{0, 1, 0, 1, 2} // who is first at each node
	ways, contenders := make([][]*faults.Proxy, 3), make([]*redlock.Mutex, 3)
	ids := make([]string, len(all)) // of the client that each node is to vote for
	for k := range contenders {
		clients := make([]*headwaiter.Client, len(all))
		for i, s := range all {
			p := kit.Proxy(t, s)
			clients[i] = kit.Dial(t, s, kit.Through(p))
			if votes[i] == k {
				ids[i] = clients[i].ID()
			} else {
				p.Freeze()
			}
			ways[k] = append(ways[k], p)
		}
		// Nobody is taken for silent while the ways are closed.
		contenders[k] = mutex(t, clients, redlock.WithTimeout(5*time.Second))
	}
	g := newGuard()
	var calls []*kit.Call[struct{}]
	for _, m := range contenders {
		calls = append(calls, kit.Run(func() error {
			l, err := m.Lock(soon(t))
			if err != nil {
				return err
			}
			g.enter(l)
			g.leave(l)
			return l.Release(soon(t))
		}))
	}
	for i, s := range all {
		kit.Eventually(t, "a node to vote as it should", func() bool {
			return strings.HasPrefix(s.Text("HGET", keys(t).Lock, "owner"), ids[i])
		})
	}
	for _, way := range ways {
		for _, p := range way {
			p.Heal()
		}
	}
	for _, c := range calls {
		c.Value(t)
	}
	entries, longest := g.sound(t)
	require.Equal(t, 3, entries)
	t.Logf("the longest time without a hold was %v", longest)
}

// A guard stands at what a lock protects. It notes two that are in at once, tokens that do not rise, and for how long
// nobody came.
type guard struct {
	mu      sync.Mutex // guards the fields below
	inside  *lease.Lease
	token   uint64
	entries int
	newest  time.Time
	longest time.Duration
	faults  []string
}

func newGuard() *guard { return &guard{newest: time.Now()} }

func (g *guard) enter(l *lease.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside != nil && g.inside.Context().Err() == nil {
		g.faults = append(g.faults, fmt.Sprintf("token %d is in beside %d", l.Token(), g.inside.Token()))
	}
	if l.Token() <= g.token {
		g.faults = append(g.faults, fmt.Sprintf("token %d after %d", l.Token(), g.token))
	}
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.newest))
	g.inside, g.token, g.newest = l, l.Token(), now
	g.entries++
}

func (g *guard) leave(l *lease.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == l {
		g.inside = nil
	}
}

// sound checks that nothing was noted, and returns how many came and how long nobody did.
func (g *guard) sound(t testing.TB) (entries int, longest time.Duration) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(t, g.faults)
	return g.entries, max(g.longest, time.Since(g.newest))
}

// reached waits until more others have come.
func (g *guard) reached(t testing.TB, more int) {
	t.Helper()
	g.mu.Lock()
	want := g.entries + more
	g.mu.Unlock()
	kit.Eventually(t, fmt.Sprintf("%d more holds", more), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.entries >= want
	})
}

// contend lets mutexes pass the guard in turns until stop is called, which waits for their end.
func (g *guard) contend(t testing.TB, mutexes ...*redlock.Mutex) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for _, m := range mutexes {
		workers.Go(func() {
			for ctx.Err() == nil {
				l, err := m.Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("to lock among others: %v", err)
					}
					return
				}
				g.enter(l)
				g.leave(l)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("to release among others: %v", err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		cancel()
		kit.All(t, &workers)
	}
}

// nodes are servers of a bubble, and the way to each.
type nodes struct {
	t    *testing.T
	all  []*redistest.Embedded
	ways [][]*faults.Dialer // of each server
}

func bubble(t *testing.T, n int) *nodes {
	t.Helper()
	b := &nodes{t: t, ways: make([][]*faults.Dialer, n)}
	for range n {
		b.all = append(b.all, redistest.Bubble(t))
	}
	return b
}

// connect returns a client of each node.
func (b *nodes) connect() []*headwaiter.Client {
	clients := make([]*headwaiter.Client, len(b.all))
	for i, s := range b.all {
		d := faults.NewDialer(b.t, s.Dial)
		b.ways[i] = append(b.ways[i], d)
		clients[i] = kit.Dial(b.t, s, kit.Over(d))
	}
	return clients
}

// ailments are what can happen to a node of a bubble.
var ailments = map[string]func(s *redistest.Embedded, d *faults.Dialer){
	"killed":                func(s *redistest.Embedded, _ *faults.Dialer) { s.Kill() },
	"empty after a restart": func(s *redistest.Embedded, _ *faults.Dialer) { s.Restart() },
	"slow by a second":      func(_ *redistest.Embedded, d *faults.Dialer) { d.Delay(time.Second) },
	"silent":                func(_ *redistest.Embedded, d *faults.Dialer) { d.Freeze() },
}

// strike lets something happen to the first n nodes.
func (b *nodes) strike(n int, ail func(s *redistest.Embedded, d *faults.Dialer)) {
	for i := range n {
		for _, d := range b.ways[i] {
			ail(b.all[i], d)
		}
	}
}

// heal makes all ways as they were.
func (b *nodes) heal() {
	for _, ways := range b.ways {
		for _, d := range ways {
			d.Heal()
		}
	}
}

// The clock of a bubble stands still while anybody works, so it shows what calls wait for, and not how busy the
// machine is.
func TestR1AMinorityInTroubleCostsNobodyMoreThanOneAndAHalfTimeouts(t *testing.T) {
	for name, ail := range ailments {
		kit.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, 5)
				options := []redlock.Option{redlock.WithTimeout(timeout), headwaiter.WithLease(lasts)}
				x, y, z := mutex(t, b.connect(), options...), mutex(t, b.connect(), options...), mutex(t, b.connect(), options...)
				held := kit.Got(x.Lock(t.Context()))(t)
				synctest.Wait() // All nodes have voted.
				b.strike(2, ail)

				within := func(what string, do func()) {
					t.Helper()
					begun := time.Now()
					do()
					require.Less(t, time.Since(begun), timeout*3/2, what)
				}
				within("to release", func() { kit.Release(t, held) })
				for range 10 {
					within("to lock", func() { held = kit.Got(x.Lock(t.Context()))(t) })
					next := kit.Lock(t.Context(), y.Lock)
					within("to be told that it is busy", func() {
						require.ErrorIs(t, kit.Err(z.TryLock(t.Context())), lease.ErrBusy)
					})
					within("to hand on", func() {
						held = kit.Next(t, held, next)
					})
					within("to release", func() { kit.Release(t, held) })
				}
				b.heal()
			})
		})
	}
}

func TestR2AMajorityThatIsSilentIsAnErrorWithinFourTimeouts(t *testing.T) {
	for name, ail := range ailments {
		if name == "empty after a restart" {
			continue // They answer.
		}
		kit.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, 5)
				m := mutex(t, b.connect(), redlock.WithTimeout(timeout), headwaiter.WithLease(lasts))
				b.strike(3, ail)
				begun := time.Now()
				_, err := m.Lock(t.Context())
				kit.Fails(t, err, redlock.ErrNoQuorum, `redlock: lock "TestR2`, "no quorum: 3 of 5 nodes did not answer: ")
				require.LessOrEqual(t, time.Since(begun), 4*timeout)
				begun = time.Now()
				require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), redlock.ErrNoQuorum)
				require.LessOrEqual(t, time.Since(begun), 2*timeout, "its time-out, and one to give back what it has got")
				b.heal()
				if name == "killed" {
					for _, s := range b.all[:3] {
						s.Restart()
					}
				}
				synctime.Pass(2 * lasts) // What was on its way may run now, and is over.
				for _, s := range b.all {
					require.Empty(t, voter(t, s))
					require.Zero(t, s.Int("ZCARD", keys(t).Queue))
				}
				kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
				require.NoError(t, m.Wait(t.Context()))
			})
		})
	}
}

func TestAForceAndAReleaseWaitForSilentNodesOnceAndTwiceATimeout(t *testing.T) {
	for name, ail := range ailments {
		if name == "empty after a restart" {
			continue // They answer.
		}
		kit.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, 5)
				options := []redlock.Option{redlock.WithTimeout(timeout), headwaiter.WithLease(lasts)}
				m, other := mutex(t, b.connect(), options...), mutex(t, b.connect(), options...)
				held := kit.Got(m.Lock(t.Context()))(t)
				synctest.Wait() // All nodes have voted.
				b.strike(3, ail)
				begun := time.Now()
				_, err := other.ForceRelease(t.Context(), held.Token()+1)
				require.ErrorContains(t, err, "3 of 5 nodes did not answer, and may still hold it")
				require.LessOrEqual(t, time.Since(begun), timeout)
				begun = time.Now()
				require.ErrorIs(t, held.Release(t.Context()), lease.ErrUnconfirmed)
				require.LessOrEqual(t, time.Since(begun), 2*timeout)
				b.heal()
			})
		})
	}
}
