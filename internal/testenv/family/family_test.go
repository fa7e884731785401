package family

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// meet lets a latch and a barrier of that name do their work.
func meet(ctx context.Context, t *testing.T, c, other *headwaiter.Client, name string) {
	t.Helper()
	latch, late := countdown.New(c, name), countdown.New(other, name)
	require.True(t, kit.Got(latch.TrySetCount(ctx, 1))(t))
	wait := kit.Run(func() error { return late.Wait(t.Context()) })
	kit.Waiting(t, 1, latch.Inspect)

	act := barrier.WithAction(func(context.Context) error { return nil })
	one, two := barrier.New(c, name, 2, act), barrier.New(other, name, 2, act)
	for range 3 {
		first := kit.Go(func() (int, error) { return one.Await(ctx) })
		second := kit.Go(func() (int, error) { return two.Await(t.Context()) })
		require.Equal(t, 1, first.Value(t)+second.Value(t))
	}
	ctx, cancel := context.WithCancel(ctx)
	alone := kit.Go(func() (int, error) { return one.Await(ctx) })
	kit.Waiting(t, 1, two.Inspect)

	require.NoError(t, kit.Err(latch.CountDown(ctx)))
	require.NoError(t, wait.Err(t))
	require.True(t, kit.Got(latch.Remove(ctx))(t))
	require.False(t, alone.Returned())
	kit.Cancel(t, cancel, alone)
	kit.Eventually(t, "the barrier to be broken", func() bool { return kit.Got(two.Broken(t.Context()))(t) })
	require.NoError(t, two.Reset(t.Context()))
}

// Kinds keep their keys apart: a name may be used for one of each at the same time.
func TestObjectsOfOneNameDoNotMeet(t *testing.T) {
	kit.Two(t, func(t *testing.T, s redistest.Backend, c, other *headwaiter.Client) {
		for _, name := range []string{
			"one", "{one}x", "a}b {one}", "ünïcode:*?[one]", "{", "{}x", "%d%s", `"quoted"`, `back\slash`, "$1", "日本語/🔒", "a:queue", "a:calls",
			":", "--", "'; return 1", strings.Repeat("x", lease.MaxName),
		} {
			ctx, held := t.Context(), map[string]*lease.Lease{}
			for kind, k := range kinds {
				if k.proto == nil {
					continue
				}
				l, err := k.of(c, name, nil).lock(ctx)
				require.NoError(t, err, kind)
				ctx, held[kind] = l.Context(), l // Nor does one kind's hold mean anything to another.
			}
			waiting := map[string]*kit.Call[*lease.Lease]{}
			for kind := range held {
				waiting[kind] = kit.Lock(t.Context(), kinds[kind].of(other, name, nil).lock)
			}
			meet(ctx, t, c, other, name)
			for kind, l := range held {
				require.False(t, waiting[kind].Returned(), kind)
				require.NoError(t, l.Context().Err(), kind)
				kit.PassOn(t, l, waiting[kind])
			}
			for _, p := range []*lua.Protocol{lua.Fairlock, lua.Reentrant, lua.Barrier} {
				require.EqualValues(t, 1, s.Int("EXISTS", p.Keys("headwaiter", name).Lock), p.Kind)
			}
		}
	})
}

// A user with the rights of the page, also on a server that gives new users all channels, as Redis 6.2 does. What is
// refused to it at the start is the one question whether the server is a cluster.
func TestTheLineOfThePageIsTakenAndItsUserIsRefusedNothing(t *testing.T) {
	s := kit.Start(t)
	page := kit.Got(os.ReadFile("../../../docs/deploy.md"))(t)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	s.Do("CONFIG", "SET", "acl-pubsub-default", "allchannels")
	s.Do(append([]string{"ACL", "SETUSER", "lock"}, strings.Fields(found[1])...)...)
	for _, x := range []struct {
		single  bool
		refused []string
	}{{false, []string{"cluster|slots"}}, {true, nil}} {
		s.Do("ACL", "LOG", "RESET")
		o := s.Option()
		o.Username, o.Password, o.ForceSingleClient = "lock", "secret", x.single
		require.NoError(t, kit.Got(headwaiter.Dial(headwaiter.Options{Redis: o}))(t).Shutdown(t.Context()))
		var refused []string
		for _, entry := range s.Do("ACL", "LOG").([]any) {
			fields := entry.([]any)
			refused = append(refused, fields[slices.Index(fields, any("object"))+1].(string))
			require.EqualValues(t, 1, fields[slices.Index(fields, any("count"))+1])
		}
		require.Equal(t, x.refused, refused)
	}
}

var line = regexp.MustCompile(`(?m)^ACL SETUSER headwaiter (on >secret .*)$`)

func TestTheRightsOfThePageAreEnoughForAll(t *testing.T) {
	s := kit.Start(t)
	page := kit.Got(os.ReadFile("../../../docs/deploy.md"))(t)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	s.Do(append([]string{"ACL", "SETUSER", "lock", "reset"}, strings.Fields(found[1])...)...)
	as := func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = "lock", "secret" }
	c, other := kit.Dial(t, s, as), kit.Dial(t, s, as)
	s.Do("ACL", "LOG", "RESET")

	for kind, k := range kinds {
		if k.proto == nil {
			continue
		}
		mine, theirs := k.of(c, "one", nil), k.of(other, "one", nil)
		l := mine.hold(t)
		waiting := kit.Lock(t.Context(), theirs.lock)
		inner := kit.Lock(l.Context(), mine.lock)
		if kind == "semaphore" {
			kit.Waiting(t, 1, semaphore.New(c, "one", 1).Inspect)
			require.NoError(t, semaphore.New(c, "one", 1).Resize(t.Context(), 3))
		}
		if err := inner.Err(t); err == nil {
			kit.Release(t, inner.Value(t))
		}
		kit.PassOn(t, l, waiting)
	}
	m := rwlock.New(c, "two", headwaiter.WithLease(2*time.Second))
	l := kit.Got(m.Lock(t.Context()))(t)
	reader := kit.Joins(t, 1, rwlock.New(other, "two").RLock, m.Inspect)
	require.NoError(t, m.Downgrade(t.Context(), l))
	kit.Eventually(t, "a renewal", func() bool { return c.Stats().Renewals > 1 })
	both := map[string]*lease.Lease{c.ID(): l, other.ID(): reader.Value(t)}
	info := kit.Got(m.Inspect(t.Context()))(t)
	require.Len(t, info.Holders, 2)
	for _, h := range info.Holders {
		require.NoError(t, kit.Err(m.ForceReleaseHolder(t.Context(), h)))
		require.ErrorIs(t, kit.Lost(t, both[h.Client]), lease.ErrForced)
	}
	meet(t.Context(), t, c, other, "one")

	for _, entry := range s.Do("ACL", "LOG").([]any) {
		// The connection introduces itself, and nobody minds if it may not.
		require.Contains(t, entry, "client|setinfo")
	}
}

func TestConformance(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		require.Empty(t, conformance.Run(t, Engine(s.Option, Patient)))
	})
}

// What users get who set no option. It minds the time more than others, so nothing else runs.
func TestConformanceAsDelivered(t *testing.T) {
	kit.Long(t, "TestConformance has the same cases, with a patient grant")
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		require.Empty(t, conformance.Run(t, Engine(s.Option)))
	})
}

// A client with an identity enters names before it asks, and its requests are refused once it is dead: nobody else sees that.
func TestConformanceOfClientsWithIdentities(t *testing.T) {
	kit.Long(t, "TestConformance has the same cases, without identities")
	s := redistest.Start(t)
	var clients atomic.Int64
	require.Empty(t, conformance.Run(t, Engine(s.Option, Patient, func(o *headwaiter.Options) { o.Identity = fmt.Sprint("client ", clients.Add(1)) })))
}

// Where nothing can be subscribed to, all is as ever, for clients that also set nothing else.
func TestConformanceWithoutSubscriptions(t *testing.T) {
	kit.Long(t, "TestConformance has the same cases, with subscriptions")
	s := redistest.Start(t)
	require.Empty(t, conformance.Run(t, Uncounted(Engine(s.Option, Polling))))
	for _, command := range []string{"subscribe", "psubscribe", "ssubscribe"} {
		require.Zero(t, s.CommandStats()[command], command)
	}
}

// What a call costs the server, in scripts and messages, where no machine that is busy makes a look of its own due. A campaign has its proclamation too: see package election.

func eachCosts(t *testing.T, run func(t *testing.T, s *redistest.Embedded, k kind)) {
	eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		if k.proto != kinds["election"].proto {
			run(t, s, k)
		}
	})
}

func TestAnUncontendedCycleIsTwoScriptsAndATryThatFailsIsOne(t *testing.T) {
	eachCosts(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		o, other := k.dial(t, s, headwaiter.WithLease(time.Minute)), k.dial(t, s) // Nothing is renewed.
		l := o.hold(t)
		require.ErrorIs(t, kit.Err(other.try(t.Context())), lease.ErrBusy)
		kit.Listening(t, s, 1)
		kit.Release(t, l)
		s.ResetStats()
		const cycles = 50
		for range cycles {
			kit.Release(t, o.hold(t))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
		l = o.hold(t)
		s.ResetStats()
		for range cycles {
			require.ErrorIs(t, kit.Err(other.try(t.Context())), lease.ErrBusy)
		}
		require.Equal(t, map[string]int64{"evalsha": cycles}, kit.Scripts(s))
		kit.Release(t, l)
	})
}

// The two alternate: each asks while the other holds, so every release hands on.
func TestAHandOffIsTwoScriptsAndOneMessage(t *testing.T) {
	eachCosts(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s)}
		objects := []object{k.object(t, clients[0]), k.object(t, clients[1])}
		turn, l := 0, objects[0].hold(t)
		handOn := func() {
			turn = 1 - turn
			c := kit.Lock(t.Context(), objects[turn].lock)
			kit.Eventually(t, "the other to wait", func() bool { return s.Int("ZCARD", k.keys(t).Queue) == 1 })
			l = kit.Next(t, l, c)
		}
		for i := range 4 { // Both subscribe, and the server learns the scripts.
			handOn()
			kit.Listening(t, s, min(i+1, len(clients)))
		}
		looks, messages := kit.Spent(clients[0], clients[1:])
		s.ResetStats()
		const handOffs = 100
		for range handOffs {
			handOn()
		}
		got := kit.Scripts(s)
		looked, heard := kit.Spent(clients[0], clients[1:])
		// One of each client may have been under way when the counting began.
		require.LessOrEqual(t, got["evalsha"], int64(2*handOffs)+int64(looked-looks)+2)
		require.GreaterOrEqual(t, got["evalsha"], int64(2*handOffs))
		delete(got, "evalsha")
		require.Equal(t, map[string]int64{"publish": handOffs, "pubsub|numsub": handOffs}, got)
		kit.Eventually(t, "one message a hand-off", func() bool { // A look may have been faster.
			_, heard = kit.Spent(clients[0], clients[1:])
			return heard-messages == handOffs
		})
		kit.Release(t, l)
	})
}

func TestWithinOneClientNothingIsPublished(t *testing.T) {
	eachCosts(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		c := kit.Dial(t, s)
		o := k.object(t, c)
		kit.Release(t, o.hold(t))
		s.ResetStats()
		var workers sync.WaitGroup
		for range 16 {
			workers.Go(func() {
				for range 12 {
					l, err := o.lock(t.Context())
					if assert.NoError(t, err) {
						assert.NoError(t, l.Release(t.Context()))
					}
				}
			})
		}
		kit.All(t, &workers)
		got := kit.Scripts(s)
		require.Zero(t, c.Stats().Missed, "nothing was sent that could have been missed")
		require.Zero(t, got["publish"])
		require.Zero(t, got["pubsub|numsub"])
		require.LessOrEqual(t, got["subscribe"], int64(1))
	})
}

// The first call of a client that is refused does not listen yet; the second client's calls do.
func TestEveryQueueEndsAtItsLimit(t *testing.T) {
	const limit = 2
	for name, k := range kinds {
		if !k.queue {
			continue
		}
		kit.EachOf(t, name, func(t *testing.T, s redistest.Backend) {
			early, late := k.dial(t, s, headwaiter.WithQueueLimit(limit)), k.dial(t, s, headwaiter.WithQueueLimit(limit))
			held := early.hold(t)
			waits := []*kit.Call[*lease.Lease]{early.waits(t, t.Context(), 1), early.waits(t, t.Context(), 2)}
			for _, o := range []object{late, early, late} {
				err := kit.Lock(t.Context(), o.lock).Err(t)
				var full *lease.QueueFullError
				require.ErrorIs(t, err, lease.ErrQueueFull)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorAs(t, err, &full)
				require.Equal(t, limit, full.Waiting)
				require.Positive(t, full.Oldest)
				require.Regexp(t, `: the queue is full: 2 wait, the first for `, err.Error())
			}
			kit.Waiting(t, limit, early.inspect)
			held = kit.Next(t, held, waits[0])
			waits = append(waits, late.waits(t, t.Context(), limit)) // There is room again.
			kit.PassOn(t, held, waits[1], waits[2])
		})
	}
}

// Calls that wait for each other in their client are no waiters in Redis: only their leader is.
func TestMatesOfACohortAreNoWaiters(t *testing.T) {
	s := redistest.Mini(t)
	holder := fairlock.New(kit.Dial(t, s), kit.Name(t))
	m := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1), fairlock.WithCohort(8))
	held := kit.Lock(t.Context(), holder.Lock).Value(t)
	all := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), m.Lock)}
	kit.Waiting(t, 1, holder.Inspect)
	for range 3 {
		all = append(all, kit.Lock(t.Context(), m.Lock))
	}
	other := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1))
	require.ErrorIs(t, kit.Lock(t.Context(), other.Lock).Err(t), lease.ErrQueueFull)
	kit.Release(t, held)
	for len(all) > 0 {
		kit.Eventually(t, "one of them to hold", func() bool { return slices.ContainsFunc(all, (*kit.Call[*lease.Lease]).Returned) })
		i := slices.IndexFunc(all, (*kit.Call[*lease.Lease]).Returned)
		kit.Release(t, all[i].Value(t))
		all = slices.Delete(all, i, i+1)
	}
}
