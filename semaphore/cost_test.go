package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestAnUncontendedCycleIsTwoScriptsAndNothingElse(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 5, headwaiter.WithLease(time.Minute)) // Nothing is renewed.
		l := take(t, x, 1)
		kit.Listening(t, s, 1)
		kit.Release(t, l)
		beside := take(t, y, 2)
		kit.Listening(t, s, 2)
		s.ResetStats()
		const cycles = 50
		for range cycles {
			kit.Release(t, take(t, x, 2))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
		s.ResetStats()
		for range cycles {
			refused(t, x, 4)
		}
		require.Equal(t, map[string]int64{"evalsha": cycles}, kit.Scripts(s))
		kit.Release(t, beside)
	})
}

// The two alternate: each asks while the other holds, so every release hands on.
func TestAHandOffIsTwoScriptsAndOneMessage(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s)}
		x, y := semaphores(t, clients[0], clients[1], 1)
		turn, l := 0, take(t, x, 1)
		handOn := func() {
			turn = 1 - turn
			c := ask(t.Context(), []*semaphore.Semaphore{x, y}[turn], 1)
			kit.Eventually(t, "the other to wait", func() bool { return s.Int("ZCARD", keyOf(x.Name())+":queue") == 1 })
			kit.Release(t, l)
			l = c.Value(t)
		}
		for i := range 4 { // Both subscribe, and the server learns the scripts.
			handOn()
			kit.Listening(t, s, min(i+1, len(clients)))
		}
		checks := clients[0].Stats().Checks + clients[1].Stats().Checks
		s.ResetStats()
		begun := time.Now()
		const handOffs = 50
		for range handOffs {
			handOn()
		}
		got := kit.Scripts(s)
		looked := int64(clients[0].Stats().Checks + clients[1].Stats().Checks - checks)
		// Each client looks about every two seconds while it waits.
		require.LessOrEqual(t, looked, 5+2*int64(time.Since(begun)/time.Second), "checks are for what goes wrong")
		require.LessOrEqual(t, got["evalsha"], 2*handOffs+looked+2)
		delete(got, "evalsha")
		require.Equal(t, map[string]int64{"publish": handOffs, "pubsub|numsub": handOffs}, got)
		kit.Release(t, l)
	})
}

// A release wakes as many heads as fit, in its own script, with one message to each of their clients.
func TestAReleaseWakesAllHeadsThatFitInOneScript(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			clients = 3
			each    = 5
		)
		first := kit.Dial(t, s)
		holder := semaphore.New(first, kit.Name(t), 2*clients*each)
		all := make([]*headwaiter.Client, clients)
		for i := range all {
			all[i] = kit.Dial(t, s)
		}
		kit.Release(t, take(t, holder, 1)) // The server learns the scripts.
		l := take(t, holder, 2*clients*each)
		for range 2 { // The first time the clients subscribe.
			looks, _ := kit.Spent(first, all) // One that has begun by then may run behind the release.
			var calls []*kit.Call[*lease.Lease]
			for i := range clients * each {
				calls = append(calls, ask(t.Context(), semaphore.New(all[i%clients], kit.Name(t), 2*clients*each), 2))
				kit.Waiting(t, i+1, holder.Inspect)
			}
			last := ask(t.Context(), holder, 2*clients*each)
			kit.Waiting(t, clients*each+1, holder.Inspect)
			_, messages := kit.Spent(first, all)
			s.ResetStats()
			kit.Release(t, l)
			var held []*lease.Lease
			for i, c := range calls {
				held = append(held, c.Value(t))
				if i > 0 {
					require.Greater(t, held[i].Token(), held[i-1].Token())
				}
			}
			got := kit.Scripts(s)
			laterLooks, _ := kit.Spent(first, all)
			require.LessOrEqual(t, got["evalsha"]+got["eval"], 1+int64(laterLooks-looks), "the release alone, and looks: %v", got)
			require.EqualValues(t, clients, got["publish"])
			kit.Eventually(t, "one message a client", func() bool { // A look may have been faster.
				_, heard := kit.Spent(first, all)
				return heard-messages == clients
			})
			for _, l := range held {
				kit.Release(t, l)
			}
			l = last.Value(t)
		}
		kit.Release(t, l)
		unused(t, holder)
	})
}

func TestWithinOneClientNothingIsPublished(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		x := semaphore.New(c, kit.Name(t), 3)
		kit.Release(t, take(t, x, 1))
		s.ResetStats()
		var calls []*kit.Call[struct{}]
		for i := range 12 {
			calls = append(calls, kit.Run(func() error {
				for range 15 {
					l, err := x.Acquire(t.Context(), int64(1+i%3))
					if err != nil {
						return err
					}
					if err := l.Release(t.Context()); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, call := range calls {
			call.Value(t)
		}
		got := kit.Scripts(s)
		require.Zero(t, c.Stats().Missed, "nothing was sent that could have been missed")
		require.Zero(t, got["publish"])
		require.LessOrEqual(t, got["subscribe"], int64(1))
	})
}
