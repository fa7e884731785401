package family

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 20

// What is asked again because its reply was lost has its effect once: one hold, one place, one release.
func TestARequestWhoseReplyIsLostHasItsEffectOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
		p := kit.Proxy(t, s)
		far, near := k.object(t, kit.Dial(t, s, kit.Through(p))), k.dial(t, s)
		kit.Release(t, far.hold(t)) // Now the server knows the scripts.
		lost := func(n int) { kit.LostReplies(t, p.Faults, n) }
		for i := range cuts {
			p.LoseReplies(1, kit.Runs(k.proto.Ask))
			l := far.hold(t)
			lost(3*i + 1)
			near.stands(t, l)
			p.LoseReplies(1, kit.Runs(k.proto.End))
			kit.Release(t, l)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)

			// A place in the queue, that is given up or gets its turn; and the release that gives it.
			held := near.hold(t)
			p.LoseReplies(1, kit.Runs(k.proto.Ask))
			ctx, cancel := context.WithCancel(t.Context())
			c := kit.Lock(ctx, far.lock)
			lost(3*i + 3)
			kit.Waiting(t, 1, near.inspect)
			if i%2 == 0 {
				kit.Cancel(t, cancel, c)
				kit.Waiting(t, 0, near.inspect)
				kit.Release(t, held)
			} else {
				kit.PassOn(t, held, c)
			}
			cancel()
			near.free(t)
		}
	})
}

// The repetition of a release comes when the next holds, and does not free it.
func TestAReleaseThatIsRepeatedFreesNobodyElse(t *testing.T) {
	eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
		p := kit.Proxy(t, s)
		far, near := k.object(t, kit.Dial(t, s, kit.Through(p))), k.dial(t, s)
		for i := range cuts {
			l := far.hold(t)
			next := near.waits(t, t.Context(), 1)
			p.LoseReplies(1, kit.Runs(k.proto.End))
			kit.Release(t, l)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
			kit.LostReplies(t, p.Faults, i+1)
			near.stands(t, next.Value(t))
			kit.Release(t, next.Value(t))
		}
		near.free(t)
	})
}

// A look finds the grant whose message was lost, and the client subscribes anew, and hears again.
func TestAGrantWhoseMessageIsLostIsFoundByACheckAndCounted(t *testing.T) {
	eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		d := faults.NewDialer(t, s.Dial)
		client := kit.Dial(t, s, kit.Over(d))
		near, far := k.dial(t, s, headwaiter.WithLease(time.Second)), k.object(t, client)
		pass := func(lose func()) {
			l := near.hold(t)
			c := far.waits(t, t.Context(), 1)
			lose()
			kit.Release(t, l)
			near.stands(t, c.Value(t))
			kit.Release(t, c.Value(t))
			near.free(t)
		}
		pass(func() { d.LosePushes(1, kit.Notices(wire.MessageGrant)) })
		_, lost := d.Lost()
		require.Equal(t, 1, lost)
		kit.Eventually(t, "the miss to be counted", func() bool { return client.Stats().Missed == 1 })
		before := client.Stats()
		pass(func() {})
		pass(func() {})
		require.EqualValues(t, 1, client.Stats().Missed)
		require.GreaterOrEqual(t, client.Stats().Messages, before.Messages+2)
	})
}

// ending is one way in which a hold is lost.
type ending struct {
	opts  []option.Any
	lose  func(t *testing.T, s redistest.Backend, c *headwaiter.Client, k kind)
	cause error
}

var endings = map[string]ending{
	"by force": {nil, func(t *testing.T, s redistest.Backend, _ *headwaiter.Client, k kind) {
		k.dial(t, s).frees(t)
	}, lease.ErrForced},
	"by FLUSHALL": {nil, func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ kind) { s.Do("FLUSHALL") }, lease.ErrForgotten},
	"by deletion of the key": {nil, func(t *testing.T, s redistest.Backend, _ *headwaiter.Client, k kind) {
		s.Do("DEL", k.keys(t).Lock)
	}, lease.ErrForgotten},
	"by deletion of all keys": {nil, func(t *testing.T, s redistest.Backend, _ *headwaiter.Client, k kind) {
		s.Do(append([]string{"DEL"}, k.keys(t).All()...)...)
	}, lease.ErrForgotten},
	"by an empty restart": {nil, func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ kind) { s.Restart() }, lease.ErrForgotten},
	"by Close of the client": {nil, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client, _ kind) {
		require.NoError(t, c.Shutdown(t.Context()))
	}, lease.ErrClientClosed},
	"at the maximum": {[]option.Any{headwaiter.WithMaxHold(200 * time.Millisecond)}, nil, lease.ErrMaxHold},
	"at the maximum, after renewals": {
		[]option.Any{headwaiter.WithLease(500 * time.Millisecond), headwaiter.WithMaxHold(1200 * time.Millisecond)}, nil, lease.ErrMaxHold},
	"without progress": {
		[]option.Any{headwaiter.WithLease(500 * time.Millisecond), headwaiter.WithMaxStall(700 * time.Millisecond)}, nil, lease.ErrStalled},
	"by a server that is gone": {nil, func(_ *testing.T, s redistest.Backend, _ *headwaiter.Client, _ kind) { s.Kill() }, lease.ErrExpired},
}

// All leases on the hold end, the next has a higher token, and no release frees it.
func TestALossEndsAllLeasesOfAHoldSaysWhyAndFreesNobody(t *testing.T) {
	for name, e := range endings {
		t.Run(name, func(t *testing.T) {
			eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) { e.happens(t, s, k) })
			kit.Parallel(t, "redis", func(t *testing.T) { e.happens(t, redistest.Start(t), kinds["fairlock"]) })
		})
	}
}

func (e ending) happens(t *testing.T, s redistest.Backend, k kind) {
	c := kit.Dial(t, s)
	o := k.object(t, c, append([]option.Any{headwaiter.WithLease(2 * time.Second)}, e.opts...)...)
	held := k.more(t, o, o.hold(t), 3)
	child, cancel := context.WithCancel(held[0].Context())
	defer cancel()
	if e.lose != nil {
		e.lose(t, s, c, k)
	}
	for _, l := range held {
		require.ErrorIs(t, kit.Lost(t, l), e.cause)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		require.ErrorIs(t, l.Context().Err(), context.Canceled)
	}
	kit.Await(t, child.Done(), "a child of the hold's context to end")
	require.ErrorIs(t, context.Cause(child), e.cause)
	if e.cause == lease.ErrExpired {
		require.ErrorIs(t, held[0].Release(t.Context()), lease.ErrExpired)
		return
	}
	other := k.dial(t, s)
	next := other.hold(t)
	require.Greater(t, next.Token(), held[0].Token())
	for _, l := range held {
		require.ErrorIs(t, l.Release(t.Context()), e.cause)
		require.ErrorIs(t, l.Release(t.Context()), e.cause)
	}
	other.stands(t, next)
	kit.Release(t, next)
}

// The release itself finds out what nobody has told the holder yet.
func TestAReleaseAfterAnUnnoticedLossSaysSo(t *testing.T) {
	for name, e := range map[string]ending{
		"forced": endings["by force"], "FLUSHALL": endings["by FLUSHALL"], "key": endings["by deletion of the key"],
	} {
		t.Run(name, func(t *testing.T) {
			eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) {
				o, other := k.dial(t, s), k.dial(t, s)
				l := o.hold(t)
				s.DropPublish(1) // Nobody tells of the force.
				e.lose(t, s, nil, k)
				next := other.hold(t)
				require.NoError(t, l.Context().Err(), "nobody could have told")
				require.ErrorIs(t, l.Release(t.Context()), e.cause)
				other.stands(t, next)
				kit.Release(t, next)
			})
		})
	}
}

// Ways to be done with a name. Each takes a client that can be cut off and another.
var uses = map[string]func(t *testing.T, cut func(), o, other object){
	"released": func(t *testing.T, _ func(), o, other object) {
		l := o.hold(t)
		c := other.waits(t, t.Context(), 1)
		synctime.Pass(30 * time.Second)
		kit.Release(t, l)
		synctime.Pass(30 * time.Second)
		kit.Release(t, c.Value(t))
	},
	"waited for in vain": func(t *testing.T, _ func(), o, other object) {
		l := o.hold(t)
		ctx := kit.Within(t, 3*time.Second)
		require.ErrorIs(t, kit.Lock(ctx, other.lock).Err(t), context.DeadlineExceeded)
		kit.Release(t, l)
	},
	"held by one that died": func(t *testing.T, cut func(), o, _ object) {
		o.hold(t)
		synctime.Pass(time.Minute)
		cut()
	},
	"waited for by one that died": func(t *testing.T, cut func(), o, other object) {
		l := other.hold(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o.waits(t, ctx, 1)
		cut()
		kit.Release(t, l)
	},
	"granted to one that died": func(t *testing.T, cut func(), o, other object) {
		l := other.hold(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := o.waits(t, ctx, 1)
		kit.Release(t, l)
		c.Value(t)
		cut()
	},
	"forced": func(t *testing.T, _ func(), o, other object) {
		l := o.hold(t)
		other.frees(t)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	},
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) {
				d := faults.NewDialer(t, s.Dial)
				mortal := k.object(t, kit.Dial(t, s, kit.Over(d)))
				use(t, func() {
					d.Away()
				}, mortal, k.dial(t, s))
				require.NotEmpty(t, s.List("KEYS", "*{*"))
				for _, key := range s.List("KEYS", "*{*") {
					left := s.Int("PTTL", key)
					require.True(t, left > 0 && left <= (lease.DefaultLease+61*time.Second).Milliseconds(), "%s: %d", key, left)
				}
				synctime.Pass(lease.DefaultLease + 65*time.Second)
				require.Empty(t, s.List("KEYS", "*{*"))
			})
		})
	}
}

// Where the key is gone tokens begin at the clock. It is there until they are no longer ahead of it, for a day at the most.
func TestAKeyLivesUntilItsTokenIsNotAheadOfTheClock(t *testing.T) {
	for name, d := range map[string]time.Duration{"a short lease": 10 * time.Second, "a long lease": time.Minute} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
				c := kit.Dial(t, s)
				waitqueue.Above((*waitqueue.Client)(c), uint64(kit.ServerTime(s)+time.Hour.Microseconds())) // Seen at another name, or node.
				o, other := k.object(t, c, headwaiter.WithLease(d)), k.dial(t, s)
				lives := func() {
					t.Helper()
					left := kit.Lives(t, s, k.keys(t))
					require.Greater(t, left, time.Hour-kit.Patience)
					require.Less(t, left, time.Hour+3*time.Minute)
				}
				l := o.hold(t)
				lives()
				kit.Release(t, l)
				lives()
				l = other.hold(t)
				kit.PassOn(t, l, o.waits(t, t.Context(), 1))
				lives()
			})
		})
	}
}

// Who holds, and who waits in which order, as any client is told.
func TestInspectTellsHoldersAndWaitersInTheirOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		o, other := k.object(t, a), k.object(t, b)
		info := kit.Got(o.inspect(t.Context()))(t)
		require.False(t, info.Held)
		l := o.hold(t)
		ctx, leave := context.WithCancel(t.Context())
		gone := other.waits(t, ctx, 1)
		next, last := other.waits(t, t.Context(), 2), o.waits(t, t.Context(), 3)
		info = kit.Got(other.inspect(t.Context()))(t)
		require.Equal(t, a.ID(), info.Holder.Client)
		require.Equal(t, l.Token(), info.Holder.Token)
		require.Equal(t, max(info.Limit, 1), max(info.Holder.Permits, 1), "all there is")
		require.Contains(t, info.Holder.Who, "test@")
		require.Positive(t, info.Holder.Left)
		require.Equal(t, []string{b.ID(), b.ID(), a.ID()}, []string{info.Queue[0].Client, info.Queue[1].Client, info.Queue[2].Client})
		kit.Cancel(t, leave, gone)
		kit.Waiting(t, 2, o.inspect)
		for _, c := range []*kit.Call[*lease.Lease]{next, last} {
			l = kit.Next(t, l, c)
			other.stands(t, l)
		}
		kit.Release(t, l)
		o.free(t)
	})
}

// Neither on what is held, nor behind a queue.
func TestATryThatFailsLeavesNoTrace(t *testing.T) {
	eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
		holder, other := k.dial(t, s), k.dial(t, s)
		if holder.try == nil {
			return // A campaign always waits.
		}
		l := holder.hold(t)
		require.ErrorIs(t, kit.Err(other.try(t.Context())), lease.ErrBusy) // A semaphore notes who is its newest client, once.
		fails := func() {
			t.Helper()
			before := kit.Contents(t, s)
			for _, o := range []object{other, holder} {
				got, err := o.try(t.Context())
				require.Nil(t, got)
				require.ErrorIs(t, err, lease.ErrBusy)
				require.Regexp(t, fmt.Sprintf(`^[a-z]+: [a-z ]+ %q: busy`, kit.Name(t)), err.Error())
			}
			require.Equal(t, before, kit.Contents(t, s))
		}
		fails()
		c := k.dial(t, s).waits(t, t.Context(), 1)
		fails()
		kit.PassOn(t, l, c)
	})
}

// Whichever way a hold ends, the next gets the name when its time is over, and not before.
func TestANameStaysTakenHoweverItsHoldEnds(t *testing.T) {
	ways := map[string]func(c *headwaiter.Client, d *faults.Dialer, l *lease.Lease) error{
		"release": func(_ *headwaiter.Client, _ *faults.Dialer, l *lease.Lease) error {
			return l.Release(context.Background())
		},
		"unlock": func(_ *headwaiter.Client, _ *faults.Dialer, l *lease.Lease) error { l.Unlock(); return nil },
		"close":  func(c *headwaiter.Client, _ *faults.Dialer, _ *lease.Lease) error { return c.Close() },
		"death": func(_ *headwaiter.Client, d *faults.Dialer, _ *lease.Lease) error {
			d.Freeze(faults.ToServer)
			return nil
		},
	}
	for name, seen := range map[string]string{
		"fairlock": "fairlock", "reentrant": "reentrant", "semaphore": "semaphore", "each": "fairlock", "multilock": "fairlock",
	} {
		for way, end := range ways {
			for _, waits := range []bool{false, true} {
				kit.BubbleOf(t, fmt.Sprint(name, " ", way, " ", waits), func(t *testing.T, s *redistest.Embedded) {
					d := faults.NewDialer(t, s.Dial)
					c, begun := kit.Dial(t, s, kit.Over(d)), time.Now()
					l, next := kinds[name].object(t, c, headwaiter.WithMinHold(time.Minute)).hold(t), kinds[seen].dial(t, s)
					var waiting *kit.Call[*lease.Lease]
					if waits {
						waiting = next.waits(t, t.Context(), 1)
					}
					synctime.Pass(5 * time.Second) // And it is renewed.
					require.NoError(t, end(c, d, l))
					synctime.Pass(30 * time.Second)
					require.Error(t, l.Context().Err(), "the lease has ended as always")
					h := kit.Got(next.inspect(t.Context()))(t).Holders
					require.Len(t, h, 1)
					require.True(t, h[0].Rests)
					require.Equal(t, way == "death", h[0].Expired)
					require.WithinDuration(t, begun.Add(time.Minute), time.Now().Add(h[0].Left), 100*time.Millisecond)
					synctime.Pass(time.Until(begun.Add(time.Minute - time.Second)))
					require.ErrorIs(t, kit.Err(next.try(t.Context())), lease.ErrBusy)
					if waits {
						kit.Release(t, waiting.Value(t))
						require.GreaterOrEqual(t, time.Since(begun), time.Minute)
						require.Less(t, time.Since(begun), 65*time.Second)
					}
					synctime.Pass(2 * time.Second)
					d.Heal()
					kit.Release(t, next.hold(t))
					next.free(t)
				})
			}
		}
	}
}
