package headwaitertest_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
)

func TestAClientTakesItsOptions(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t, func(o *headwaiter.Options) {
			o.Name = "shipping"
			o.Redis.InitAddress = nil // Not for the caller to say.
		})
		orders := fairlock.New(c, "orders")
		held := lock(t, orders)
		require.Contains(t, kit.Got(orders.Inspect(t.Context()))(t).Holder.Who, "shipping@")
		kit.Release(t, held)
	})
}

func TestAClientMayBeClosedByItsTest(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		lock(t, fairlock.New(c, "orders"))
		require.NoError(t, c.Shutdown(t.Context()))
		kit.Release(t, kit.Got(fairlock.New(s.Client(t), "orders").TryLock(t.Context()))(t))
	})
}

func TestAClientThatIsPausedToTheEndGivesBackWhatItHeld(t *testing.T) {
	t.Parallel()
	s := headwaitertest.Start(t)
	t.Run("paused", func(t *testing.T) {
		c := s.Client(t)
		lock(t, fairlock.New(c, "orders"))
		s.Pause(c)
	})
	kit.Release(t, kit.Got(fairlock.New(s.Client(t), "orders").TryLock(context.Background()))(t))
}

// A batch is read by the server while the client does nothing but write it.
func TestALargeBatchOfCommandsDoesNotStandStill(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		options := s.Redis()
		options.ConnWriteTimeout = time.Minute // For the whole batch, on a busy machine.
		store := kit.Got(rueidis.NewClient(options))(t)
		t.Cleanup(store.Close)
		var batch rueidis.Commands
		for range 5000 {
			batch = append(batch, store.B().Incr().Key("n").Build())
		}
		for _, answer := range store.DoMulti(context.Background(), batch...) {
			require.NoError(t, answer.Error())
		}
	})
}

// Redis leads to the same server: the marks of a guard are there, and an old token is refused.
func TestAFenceOnTheSameServerRefusesWhoWasExpired(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		store := kit.Got(rueidis.NewClient(s.Redis()))(t)
		t.Cleanup(store.Close)
		price := fence.NewRedis(store, "price")
		set := fence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
		write := func(token uint64, value string) error {
			return price.Run(context.Background(), token, set, []string{"price"}, []string{value}).Error()
		}

		held := lock(t, fairlock.New(s.Client(t), "pricing"))
		require.NoError(t, write(held.Token(), "4.10"))
		s.Expire("pricing")
		require.NoError(t, write(lock(t, fairlock.New(s.Client(t), "pricing")).Token(), "4.20"))
		require.ErrorIs(t, write(held.Token(), "4.15"), fence.ErrStale)
		value := kit.Got(store.Do(context.Background(), store.B().Get().Key("price").Build()).ToString())(t)
		require.Equal(t, "4.20", value)
	})
}

// A worker does steps of a second under a lock. One of them has the bug that this package is there to find.
type worker struct {
	lock    *fairlock.Mutex
	careful bool
	steps   atomic.Int64
}

func (w *worker) run(ctx context.Context) error {
	held, err := w.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer held.Release(context.WithoutCancel(ctx))
	work := ctx // The bug: this is the context of the call, which does not end with the hold.
	if w.careful {
		work = held.Context()
	}
	for range 600 {
		select {
		case <-time.After(time.Second):
			w.steps.Add(1)
		case <-work.Done():
			return context.Cause(work)
		}
	}
	return nil
}

func TestAWorkerThatIgnoresTheEndOfItsHoldIsFound(t *testing.T) {
	for _, careful := range []bool{true, false} {
		for how, lose := range map[string]func(*headwaitertest.Server){
			"forced":    func(s *headwaitertest.Server) { s.ForceRelease("import") },
			"expired":   func(s *headwaitertest.Server) { s.Expire("import") },
			"forgotten": (*headwaitertest.Server).Restart,
			"paused":    func(s *headwaitertest.Server) { s.Pause() },
		} {
			t.Run(map[bool]string{true: "careful ", false: "careless "}[careful]+how, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *headwaitertest.Server) {
					w := &worker{lock: fairlock.New(s.Client(t), "import"), careful: careful}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- w.run(ctx) }()
					synctime.Pass(5*time.Second + time.Second/2)
					lose(s)
					synctime.Pass(fairlockLease)
					synctest.Wait()
					before := w.steps.Load()
					synctime.Pass(time.Minute)
					require.Equal(t, careful, w.steps.Load() == before, "steps after the loss: %d", w.steps.Load()-before)
					cancel()
					err := <-ended
					if careful {
						require.ErrorIs(t, err, lease.ErrLost)
					} else {
						require.ErrorIs(t, err, context.Canceled)
					}
				})
			})
		}
	}
}

// fairlockLease is how long a lease is at the most before its loss is known.
const fairlockLease = 10 * time.Second

// spans from the start of a bubble, at a multiple of 100 s, after which a call comes. The embedded server writes a score
// with many zeros at its end as 9.466884e+14, so the times and the ends of leases here are round, and not.
var spans = []time.Duration{
	0, time.Second, 40 * time.Second, 90 * time.Second, 90*time.Second + time.Microsecond, 91 * time.Second,
	990 * time.Second, 999*time.Second + 123456*time.Microsecond, 15190 * time.Second, 999990 * time.Second,
}

// atEach runs a case in a bubble for each span.
func atEach(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Helper()
	for _, after := range spans {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				synctime.Pass(after)
				run(t, s)
			})
		})
	}
}

// seen is what an inspection says of a name that is of one kind.
func seen(ctx context.Context, c *headwaiter.Client, name string) (lease.Info, error) {
	found, err := inspect.Find(ctx, c, name)
	if err != nil || len(found) != 1 {
		return lease.Info{}, fmt.Errorf("%d kinds: %w", len(found), err)
	}
	return found[0].Info, found[0].Err
}

func TestEveryKindIsSeenAndLostAtRoundTimes(t *testing.T) {
	t.Parallel()
	takes := maps.Clone(lockers)
	takes["lock"] = func(c *headwaiter.Client) (*lease.Lease, error) {
		return fairlock.New(c, "orders").Lock(context.Background())
	}
	takes["multilock"] = func(c *headwaiter.Client) (*lease.Lease, error) {
		return multilock.New(c, []string{"orders"}).Lock(context.Background())
	}
	for kind, take := range takes {
		kit.Parallel(t, kind, func(t *testing.T) {
			atEach(t, func(t *testing.T, s *headwaitertest.Server) {
				c, other, third := s.Client(t), s.Client(t), s.Client(t)
				began := time.Now()
				held := kit.Got(take(c))(t)
				info := kit.Got(seen(t.Context(), c, "orders"))(t)
				require.True(t, info.Held)
				require.WithinDuration(t, began, info.Holders[0].Since, time.Millisecond)
				require.InDelta(t, lease.DefaultLease, info.Holders[0].Left, float64(time.Millisecond))
				next := kit.Lock(t.Context(), func(context.Context) (*lease.Lease, error) { return take(other) })
				kit.Eventually(t, "the other to wait, or to read too", func() bool {
					info := kit.Got(seen(t.Context(), c, "orders"))(t)
					return len(info.Holders)+info.Waiting == 2
				})
				s.ForceRelease("orders")
				require.Error(t, kit.Lost(t, held))
				if kind == "reader" {
					require.Error(t, kit.Lost(t, next.Value(t)))
					next = kit.Lock(t.Context(), func(context.Context) (*lease.Lease, error) { return take(other) })
				}
				held = next.Value(t)
				s.Expire("orders")
				again := kit.Got(take(third))(t)
				require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
				kit.Release(t, again)
			})
		})
	}
}

func TestWhatPartiesAndLatchesWaitForIsSeenAtRoundTimes(t *testing.T) {
	t.Parallel()
	atEach(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		latch := countdown.New(c, "parts")
		require.NoError(t, kit.Err(latch.TrySetCount(t.Context(), 1)))
		open := kit.Run(func() error { return latch.Wait(context.Background()) })
		kit.Waiting(t, 1, latch.Inspect)
		require.NoError(t, kit.Err(latch.CountDown(t.Context())))
		require.NoError(t, open.Err(t))

		meet := barrier.New(c, "meet", 2)
		first := kit.Go(func() (int, error) { return meet.Await(context.Background()) })
		kit.Waiting(t, 1, meet.Inspect)
		require.Len(t, kit.Got(meet.Inspect(t.Context()))(t).Holders, 1)
		require.NoError(t, kit.Err(barrier.New(s.Client(t), "meet", 2).Await(t.Context())))
		first.Value(t)
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }

// bubble runs a case with a server in a bubble.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// both runs a case in a bubble and outside.
func both(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	t.Run("in a bubble", func(t *testing.T) { bubble(t, run) })
	kit.Parallel(t, "by the clock on the wall", func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// length is the lease of the locks here: as short as outside a bubble it may be on a busy machine.
const length = 2 * time.Second

// lock takes a lock and fails the test if that cannot be.
func lock(t testing.TB, m *fairlock.Mutex) *lease.Lease {
	t.Helper()
	return kit.Got(m.Lock(context.Background()))(t)
}

// queue begins a call that waits for m, and returns when it stands in the queue as the nth.
func queue(t testing.TB, m *fairlock.Mutex, n int) *kit.Call[*lease.Lease] {
	t.Helper()
	c := kit.Lock(context.Background(), m.Lock)
	kit.Waiting(t, n, m.Inspect)
	return c
}
