package semaphore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 20

func TestAnAskWhoseReplyIsLostHasItsPermitsOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := semaphores(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), 9)
		for i := range cuts {
			p.LoseReplies(1, kit.Runs(lua.Semaphore.Ask))
			n := int64(1 + i%4)
			var l *lease.Lease
			if i%3 == 0 {
				var err error
				l, n, err = far.Drain(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 9, n, "also the repetition tells how many were drained")
			} else {
				l = take(t, far, n)
			}
			available(t, near, 9-n)
			kit.Release(t, l)
			available(t, near, 9)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
	})
}

func TestAnAskWhoseReplyIsLostKeepsOnePlaceInTheQueue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := semaphores(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), 2)
		l := take(t, near, 2)
		for i := range cuts {
			p.LoseReplies(1, kit.Runs(lua.Semaphore.Ask))
			ctx, cancel := context.WithCancel(t.Context())
			c := ask(ctx, far, 2)
			kit.LostReplies(t, p.Faults, i+1)
			kit.Waiting(t, 1, near.Inspect)
			if i%2 == 0 {
				cancel()
				require.ErrorIs(t, c.Err(t), context.Canceled)
				kit.Waiting(t, 0, near.Inspect)
			} else {
				kit.Release(t, l)
				kit.Release(t, c.Value(t))
				l = take(t, near, 2)
			}
			cancel()
		}
		kit.Release(t, l)
		unused(t, near)
	})
}

func TestAReleaseWhoseReplyIsLostGivesBackOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := semaphores(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), 5)
		for i := range cuts {
			l := take(t, far, 3)
			other := take(t, near, 1)
			waiting := queue(t, near, near, 2)[0]
			p.LoseReplies(1, kit.Runs(lua.Semaphore.End))
			require.NoError(t, l.Release(context.Background()), "%d", i)
			require.ErrorIs(t, l.Release(context.Background()), lease.ErrReleased)
			next := waiting.Value(t)
			available(t, near, 2)
			kit.Release(t, next)
			kit.Release(t, other)
			available(t, near, 5)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		unused(t, near)
	})
}

func TestHoldsOutliveLostRepliesToRenewals(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := semaphores(t, kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), 4, headwaiter.WithLease(2*time.Second))
		held := []*lease.Lease{take(t, far, 1), take(t, far, 2)}
		lost := false
		p.LoseReplies(6, func(command []string) bool {
			lost = kit.Runs(lua.Semaphore.Renew)(command) && !lost
			return lost
		})
		kit.LostReplies(t, p.Faults, 6)
		for _, l := range held {
			require.NoError(t, l.Context().Err(), "%v", context.Cause(l.Context()))
			kit.Release(t, l)
		}
		available(t, near, 4)
	})
}

// One message has grants to two tickets of the client; a check finds both, and the miss is counted once.
func TestGrantsWhoseMessageIsLostAreFoundByACheck(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		client := kit.Dial(t, s, kit.Through(p))
		near, far := semaphores(t, kit.Dial(t, s), client, 4, headwaiter.WithLease(time.Second))
		l := take(t, near, 4)
		calls := queue(t, far, far, 1, 2)
		p.LosePushes(1, kit.Notices(lua.MessageGrant))
		kit.Release(t, l)
		for _, c := range calls {
			held := c.Value(t)
			require.NoError(t, held.Context().Err())
			kit.Release(t, held)
		}
		_, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		kit.Eventually(t, "the miss to be counted", func() bool { return client.Stats().Missed == 1 })
		unused(t, near)
		available(t, near, 4)
	})
}

func TestWaitersOutliveTheirSubscriptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 2)
	for range 5 {
		l := take(t, near, 2)
		calls := queue(t, far, far, 1, 2)
		require.Positive(t, s.Int("CLIENT", "KILL", "TYPE", "pubsub")) // A holder may have come to listen too.
		kit.Release(t, l)
		first := calls[0].Value(t)
		kit.Release(t, first)
		kit.Release(t, calls[1].Value(t))
		unused(t, near)
	}
}

// A waiter's connections are down while the permits come free, and it holds soon after they are back.
func TestAReleaseWhileAWaiterIsAwayIsFoundWhenItIsBack(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Through(p)), 2)
		l := take(t, near, 2)
		c := queue(t, far, far, 2)[0]
		p.Refuse()
		p.Cut()
		kit.Eventually(t, "the channel to be gone", func() bool { return len(s.List("PUBSUB", "CHANNELS", "*{*")) == 0 })
		kit.Release(t, l)
		p.Heal()
		begun := time.Now()
		l = c.Value(t)
		t.Logf("back after %v", time.Since(begun))
		kit.Release(t, l)
		unused(t, near)
	})
}

func TestAServerThatForgetsHoldsUpNobody(t *testing.T) {
	forgets := map[string]func(s redistest.Backend, name string){
		"FLUSHALL":      func(s redistest.Backend, _ string) { s.Do("FLUSHALL") },
		"empty restart": func(s redistest.Backend, _ string) { s.Restart() },
		"lock deleted":  func(s redistest.Backend, name string) { s.Do("DEL", keyOf(name)) },
		"holds deleted": func(s redistest.Backend, name string) { s.Do("DEL", keyOf(name)+":holders") },
		"both deleted":  func(s redistest.Backend, name string) { s.Do("DEL", keyOf(name), keyOf(name)+":holders") },
	}
	for what, forget := range forgets {
		t.Run(what, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 4, headwaiter.WithLease(3*time.Second))
				held := []*lease.Lease{take(t, x, 1), take(t, y, 2)}
				calls := queue(t, x, y, 4, 1)
				forget(s, x.Name())
				for _, l := range held {
					require.ErrorIs(t, kit.Lost(t, l), lease.ErrForgotten)
					require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
				}
				// In whatever order: who looks first after that finds nobody queued.
				var work sync.WaitGroup
				for _, c := range calls {
					work.Go(func() { kit.Release(t, c.Value(t)) })
				}
				kit.All(t, &work)
				for _, c := range calls {
					require.Greater(t, c.Value(t).Token(), held[1].Token())
				}
				unused(t, x)
				available(t, y, 4)
			})
		})
	}
}

// keyOf is the hash of a semaphore under the default prefix.
func keyOf(name string) string { return "headwaiter:semaphore:{" + name + "}" }

func TestADeletedQueueIsMendedByTheChecks(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 2, headwaiter.WithLease(5*time.Second))
		l := take(t, x, 2)
		calls := queue(t, y, y, 2, 1)
		s.Do("DEL", keyOf(x.Name())+":queue")
		kit.Waiting(t, 2, x.Inspect)
		kit.Release(t, l)
		first := calls[0].Value(t)
		pending(t, calls[1])
		kit.Release(t, first)
		kit.Release(t, calls[1].Value(t))
		unused(t, x)
	})
}

func TestARefusedMessageLeavesThePermitsToTheChecks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	option := func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = "mute", "mute" }
	s.Do("ACL", "SETUSER", "mute", "on", ">mute", "~*", "&*", "+@all")
	near, far := semaphores(t, kit.Dial(t, s, option), kit.Dial(t, s), 3, headwaiter.WithLease(time.Second))
	l := take(t, near, 3)
	calls := queue(t, far, far, 1, 2)
	s.Do("ACL", "SETUSER", "mute", "-publish")
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrUnwoken)
	for _, c := range calls {
		kit.Release(t, c.Value(t))
	}
	unused(t, near)
	available(t, near, 3)
}
