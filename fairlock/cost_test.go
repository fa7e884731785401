package fairlock_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAnUncontendedCycleIsTwoScriptsAndNothingElse(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		l := hold(t, m) // The server learns the scripts.
		kit.Listening(t, s, 1)
		kit.Release(t, l)
		s.ResetStats()
		const cycles = 200
		for range cycles {
			kit.Release(t, hold(t, m))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
	})
}

// Eleven objects are this library's and two of rueidis; with the race detector, which empties pools, two more. The server is
// another process, as what it allocates would count here.
func TestAnUncontendedCycleAllocatesLittle(t *testing.T) {
	m := dialMutex(t, redistest.Start(t))
	ctx := t.Context()
	cycle := func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	cycle()
	require.LessOrEqual(t, testing.AllocsPerRun(200, cycle), 17.0)
}

func TestATryThatFailsIsOneScript(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, other := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		_, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Listening(t, s, 1)
		s.ResetStats()
		for range 50 {
			_, err := other.TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy)
		}
		require.Equal(t, map[string]int64{"evalsha": 50}, kit.Scripts(s))
		kit.Release(t, l)
	})
}

// The two alternate: each asks while the other holds, so every release hands on.
func TestAHandOffOfAHotLockIsTwoScriptsAndOneMessage(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s)}
		ms := []*fairlock.Mutex{fairlock.New(clients[0], kit.Name(t)), fairlock.New(clients[1], kit.Name(t))}
		turn, l := 0, hold(t, ms[0])
		handOn := func() {
			turn = 1 - turn
			asks := clients[turn].Stats().Asks
			c := begin(t.Context(), ms[turn])
			_, queue, _ := keysOf(kit.Name(t))
			kit.Eventually(t, "the other to wait", func() bool { return s.Int("ZCARD", queue) == 1 })
			require.Equal(t, asks+1, clients[turn].Stats().Asks)
			kit.Release(t, l)
			l = c.Value(t)
		}
		for i := range 4 { // Both subscribe, and the server learns the scripts.
			handOn()
			kit.Listening(t, s, min(i+1, len(clients)))
		}
		heard := clients[0].Stats().Messages + clients[1].Stats().Messages
		checks := clients[0].Stats().Checks + clients[1].Stats().Checks
		s.ResetStats()
		begun := time.Now()
		const handOffs = 200
		for range handOffs {
			handOn()
		}
		got := kit.Scripts(s)
		looked := clients[0].Stats().Checks + clients[1].Stats().Checks - checks
		// Each client looks about every two seconds while it waits, and this may take some on a busy machine.
		require.LessOrEqual(t, looked, 5+2*uint64(time.Since(begun)/time.Second), "checks are for what goes wrong")
		// One of each client may have been under way when the counting began.
		require.LessOrEqual(t, got["evalsha"], int64(2*handOffs)+int64(looked)+2)
		require.GreaterOrEqual(t, got["evalsha"], int64(2*handOffs))
		require.Equal(t, int64(handOffs), got["publish"])
		delete(got, "evalsha")
		require.Equal(t, map[string]int64{"publish": handOffs, "pubsub|numsub": handOffs}, got)
		kit.Eventually(t, "one message a hand-off", func() bool { // A check may have been faster.
			return clients[0].Stats().Messages+clients[1].Stats().Messages == heard+handOffs
		})
		kit.Release(t, l)
	})
}

func TestOnlyTheHeadIsWoken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		clients := make([]*headwaiter.Client, 10)
		calls := make([]*call, len(clients))
		for i := range clients {
			clients[i] = kit.Dial(t, s)
			calls[i] = begin(t.Context(), fairlock.New(clients[i], kit.Name(t)))
			queued(t, holder, i+1)
		}
		heard := func() (all []uint64) {
			for _, c := range clients {
				all = append(all, c.Stats().Messages)
			}
			return all
		}
		want := make([]uint64, len(clients))
		require.Equal(t, want, heard())
		for i, c := range calls {
			kit.Release(t, l)
			l = c.Value(t)
			want[i] = 1
			kit.Eventually(t, "a message to the head alone", func() bool { return slices.Equal(want, heard()) })
		}
		kit.Release(t, l)
		require.Equal(t, want, heard())
	})
}

func TestWithinOneClientNothingIsPublished(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		kit.Release(t, hold(t, m))
		s.ResetStats()
		var inside exclusive
		var workers sync.WaitGroup
		for range 16 {
			workers.Go(func() {
				for range 20 {
					l, err := m.Lock(t.Context())
					if !inside.enter(t, l, err) {
						return
					}
					inside.leave()
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		workers.Wait()
		require.Equal(t, 16*20, inside.entries)
		got := kit.Scripts(s)
		require.Zero(t, c.Stats().Missed, "nothing was sent that could have been missed")
		require.Zero(t, got["publish"])
		require.Zero(t, got["pubsub|numsub"])
		require.LessOrEqual(t, got["subscribe"], int64(1))
	})
}

// exclusive is what a lock protects. Its mutex is for the race detector's sake alone: entering while
// another is inside is an error.
type exclusive struct {
	mu      sync.Mutex
	inside  bool
	token   uint64
	entries int
}

// enter notes that the holder of l came in, and reports whether it did.
func (e *exclusive) enter(t testing.TB, l interface{ Token() uint64 }, err error) bool {
	if err != nil {
		t.Errorf("lock: %v", err)
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inside {
		t.Errorf("two holders: tokens %d and %d", e.token, l.Token())
	}
	if l.Token() <= e.token {
		t.Errorf("token %d came after %d", l.Token(), e.token)
	}
	e.inside, e.token = true, l.Token()
	e.entries++
	return true
}

func (e *exclusive) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inside = false
}
