package waitqueue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// long is a lease that no test waits for.
const long = time.Hour

// as makes a client with an identity.
func as(identity string) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Identity = identity }
}

// dead makes a client with an identity of which the servers hear nothing any more. The program does not know that.
func dead(t *testing.T, s redistest.Backend, identity string) (c *headwaiter.Client, die func()) {
	p := kit.Proxy(t, s)
	c = kit.Dial(t, s, kit.Through(p), as(identity))
	t.Cleanup(p.Heal)
	return c, func() {
		p.Away()
		waitqueue.Disown((*waitqueue.Client)(c))
	}
}

// mortals are what each primitive can hold, for a long lease.
func mortals() map[string]func(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
	type lock = func(context.Context) (*lease.Lease, error)
	w := headwaiter.WithLease(long)
	return map[string]func(*headwaiter.Client, string) lock{
		"lock":      func(c *headwaiter.Client, n string) lock { return fairlock.New(c, n, w).Lock },
		"history":   func(c *headwaiter.Client, n string) lock { return fairlock.New(c, n, w, fairlock.WithHistory(3)).Lock },
		"cohort":    func(c *headwaiter.Client, n string) lock { return fairlock.New(c, n, w, fairlock.WithCohort(4)).Lock },
		"reentrant": func(c *headwaiter.Client, n string) lock { return reentrant.New(c, n, w).Lock },
		"writer":    func(c *headwaiter.Client, n string) lock { return rwlock.New(c, n, w).Lock },
		"permits": func(c *headwaiter.Client, n string) lock {
			s := semaphore.New(c, n, 3, w)
			return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2) }
		},
		"multi": func(c *headwaiter.Client, n string) lock { return multilock.New(c, []string{n, n + "2"}, w).Lock },
		"stripe": func(c *headwaiter.Client, n string) lock {
			s := striped.New(c, n, 4, w)
			return func(ctx context.Context) (*lease.Lease, error) { return s.Lock(ctx, "key") }
		},
	}
}

// A client that has died holds until its next incarnation is dialled, and no longer: who waits elsewhere holds then.
func TestTheNextIncarnationEndsWhatTheDeadHold(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for kind, of := range mortals() {
			t.Run(kind, func(t *testing.T) {
				name := kit.Name(t)
				c, die := dead(t, s, name)
				kit.Lock(t.Context(), of(c, name)).Value(t)
				die()
				other := kit.Dial(t, s)
				waits := kit.Lock(t.Context(), of(other, name))
				kit.Eventually(t, "the waiter to be queued", func() bool { return other.Stats().AcquireRequests > 0 && other.Stats().Subscribes > 0 })
				require.False(t, waits.Returned())
				next := kit.Dial(t, s, as(name))
				kit.Release(t, waits.Value(t))
				require.Positive(t, next.Stats().Died)
				kit.Release(t, kit.Lock(t.Context(), of(next, name)).Value(t))
			})
		}
	})
}

func TestTicketsOfTheDeadArePassedOver(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		holder := kit.Dial(t, s)
		m := fairlock.New(holder, name, headwaiter.WithLease(long))
		held := kit.Lock(t.Context(), m.Lock).Value(t)
		old := kit.Dial(t, s, as(name)) // It lives, and is subscribed.
		kit.Joins(t, 1, fairlock.New(old, name).Lock, m.Inspect)
		waitqueue.Disown((*waitqueue.Client)(old))
		kit.Dial(t, s, as(name))
		c := kit.Dial(t, s)
		next := kit.Lock(t.Context(), fairlock.New(c, name).Lock)
		kit.Eventually(t, "the next to wait, whether the dead one's ticket is there or not", func() bool {
			waits := func(w lease.Waiter) bool { return w.Client == c.ID() }
			return slices.ContainsFunc(kit.Got(m.Inspect(t.Context()))(t).Queue, waits)
		})
		kit.PassOn(t, held, next)
	})
}

// Two clients with one identity break the promise. The older learns it, for good, and the younger is not disturbed.
func TestTheOlderOfTwoThatLiveIsReplaced(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		old := kit.Dial(t, s, as(name))
		m := fairlock.New(old, name, headwaiter.WithLease(3*time.Second))
		held := kit.Lock(t.Context(), m.Lock).Value(t)
		waitqueue.Disown((*waitqueue.Client)(old))
		young := kit.Dial(t, s, as(name))
		mine := kit.Lock(t.Context(), fairlock.New(young, name).Lock).Value(t)
		kit.Await(t, held.Context().Done(), "the older one to learn it")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrReplaced)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrLost)
		kit.Eventually(t, "the older one to be replaced", func() bool { return old.Stats().Replaced == 1 })
		for _, n := range []string{name, name + " never used"} {
			require.ErrorIs(t, kit.Err(fairlock.New(old, n).TryLock(t.Context())), lease.ErrReplaced)
		}
		require.NoError(t, mine.Context().Err())
		kit.Release(t, mine)
	})
}

// A waiting call of the older one ends too: its next check is refused at the name.
func TestWhoWaitsIsReplaced(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		m := fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(long))
		held := kit.Lock(t.Context(), m.Lock).Value(t)
		old := kit.Dial(t, s, as(name))
		waits := kit.Joins(t, 1, fairlock.New(old, name).Lock, m.Inspect)
		waitqueue.Disown((*waitqueue.Client)(old))
		kit.Dial(t, s, as(name))
		require.ErrorIs(t, waits.Err(t), lease.ErrReplaced)
		kit.Release(t, held)
	})
}

// Who has nothing is buried nowhere: it learns it before its first request about a name.
func TestWhoHasNothingIsReplacedBeforeItAsks(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		old := kit.Dial(t, s, as(name))
		waitqueue.Disown((*waitqueue.Client)(old))
		kit.Dial(t, s, as(name))
		require.ErrorIs(t, kit.Err(fairlock.New(old, name).TryLock(t.Context())), lease.ErrReplaced)
	})
}

func TestASecondClientOfAProcessWithOneIdentityIsRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c := kit.Dial(t, s, as(name))
		held := kit.Lock(t.Context(), fairlock.New(c, name).Lock).Value(t)
		_, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option(), Identity: name})
		require.ErrorIs(t, err, headwaiter.ErrInvalid)
		require.ErrorContains(t, err, name)
		kit.Release(t, held)
		require.NoError(t, c.Close())
		kit.Dial(t, s, as(name))
	})
}

func TestTheDeadLeaveABarrierWhichBreaks(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c, die := dead(t, s, name)
		of := func(c *headwaiter.Client) *barrier.Barrier {
			return barrier.New(c, name, 3, headwaiter.WithLease(long))
		}
		kit.Go(func() (int, error) { return of(c).Await(context.Background()) })
		b := of(kit.Dial(t, s))
		came := func(n int) {
			kit.Eventually(t, fmt.Sprint(n, " to come"), func() bool { return len(kit.Got(b.Inspect(t.Context()))(t).Holders) == n })
		}
		came(1)
		waits := kit.Go(func() (int, error) { return b.Await(t.Context()) })
		came(2)
		die()
		kit.Dial(t, s, as(name))
		require.ErrorIs(t, waits.Err(t), barrier.ErrBroken)
	})
}

func TestADeadLeaderStepsDown(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c, die := dead(t, s, name)
		kit.Got(election.New(c, name, headwaiter.WithLease(long)).Campaign(t.Context(), "one"))(t)
		e := election.New(kit.Dial(t, s), name)
		news := e.Observe(t.Context())
		kit.Eventually(t, "the leader to be seen", func() bool { return (<-news).Value == "one" })
		die()
		kit.Dial(t, s, as(name))
		kit.Eventually(t, "the end of the leadership to be seen", func() bool { return (<-news).Value == "" })
	})
}

func TestAHoldInTransitEndsWithWhoGaveIt(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c := kit.Dial(t, s, as(name), func(o *headwaiter.Options) { o.GrantLease = time.Minute })
		text := kit.Got(kit.Lock(t.Context(), fairlock.New(c, name, headwaiter.WithLease(long)).Lock).Value(t).HandOver(t.Context()))(t)
		waitqueue.Disown((*waitqueue.Client)(c))
		next := kit.Dial(t, s, as(name))
		kit.Release(t, kit.Got(fairlock.New(next, name).TryLock(t.Context()))(t))
		require.ErrorIs(t, kit.Err(fairlock.Adopt(t.Context(), next, text)), lease.ErrLost)
	})
}

// The name of a hold with a minimum rests, whoever died.
func TestADeadHoldersNameRests(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c, die := dead(t, s, name)
		kit.Lock(t.Context(), fairlock.New(c, name, headwaiter.WithLease(long), headwaiter.WithMinHold(long)).Lock).Value(t)
		die()
		next := kit.Dial(t, s, as(name))
		require.ErrorIs(t, kit.Err(fairlock.New(next, name).TryLock(t.Context())), headwaiter.ErrBusy)
		require.EqualValues(t, 1, next.Stats().Died)
	})
}

func TestAThousandNamesOfTheDead(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const names = 1000
		name := kit.Name(t)
		c, die := dead(t, s, name)
		var all []waitqueue.Queue
		for i := range names {
			all = append(all, (*waitqueue.Client)(c).Queue(lua.Fairlock, fmt.Sprint(name, i), waitqueue.Terms{Lease: long}))
		}
		for _, o := range waitqueue.AcquireEach(t.Context(), all...) {
			require.NoError(t, o.Err)
		}
		die()
		next := kit.Dial(t, s, as(name))
		// Dial waits for some seconds at the most, and a busy machine goes on behind it.
		kit.Eventually(t, "all to be ended", func() bool { return next.Stats().Died == names })
		kit.Eventually(t, "the names to be forgotten", func() bool {
			return s.Int("EXISTS", lua.IdentityNames(lua.IdentityKey("headwaiter", name, 0, false), c.ID())) == 0
		})
	})
}

// From the Dial of the next process with an identity to the last hold of what the one before had held, with a waiter for each name.
func BenchmarkRestart(b *testing.B) {
	for name, s := range map[string]interface{ Option() rueidis.ClientOption }{"one master": redistest.Start(b), "three masters": redistest.Cluster(b)} {
		for _, names := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s, %d names", name, names), func(b *testing.B) {
				all := func(c *headwaiter.Client) (all []waitqueue.Queue) {
					for i := range names {
						all = append(all, (*waitqueue.Client)(c).Queue(lua.Fairlock, fmt.Sprint(b.Name(), i), waitqueue.Terms{Lease: long}))
					}
					return all
				}
				for b.Loop() {
					b.StopTimer()
					old, other := kit.Dial(b, s, as(b.Name())), kit.Dial(b, s)
					waitqueue.AcquireEach(b.Context(), all(old)...)
					waitqueue.Disown((*waitqueue.Client)(old))
					waits := kit.Go(func() ([]waitqueue.Outcome, error) { return waitqueue.AcquireEach(b.Context(), all(other)...), nil })
					for _, q := range all(other) {
						kit.Waiting(b, 1, func(ctx context.Context) (lease.Info, error) { return q.Inspect(ctx) })
					}
					b.StartTimer()
					next := kit.Dial(b, s, as(b.Name()))
					for _, o := range waits.Value(b) {
						require.NoError(b, o.Err)
						o.Lease.Unlock()
					}
					b.StopTimer()
					for _, c := range []*headwaiter.Client{other, next, old} {
						require.NoError(b, c.Shutdown(b.Context()))
					}
					b.StartTimer()
				}
			})
		}
	}
}

// An acquire request of the dead that comes after the burial changes nothing, whatever it asks for.
func TestRequestsOfTheDeadThatComeLateAreRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, p := range []*lua.Protocol{lua.Fairlock, lua.Reentrant, lua.Election, lua.Redlock, lua.Semaphore, lua.RWLock, lua.Barrier} {
			name := kit.Name(t)
			keys := p.Keys("headwaiter", name)
			s.Do(append([]string{"EVAL", p.Bury.Source, fmt.Sprint(len(keys.All()) + 1)},
				append(append(keys.All(), lua.GraveKey(keys.Lock, "dead")), "dead", "300000", "0", "1", "0")...)...)
			for _, script := range []*lua.Script{p.Ask, p.Check, lua.Move, lua.MultiAsk} {
				late, lateKeys, args := script.ForMortal("dead", keys.All(), []string{"dead:1:x:1:10000:2000", "wait", lua.Ever})
				if script.Mortal() == nil {
					continue // It takes nothing.
				}
				was := s.Do(append([]string{"EXISTS"}, keys.All()...)...)
				_, err := s.Try(append([]string{"EVAL", late.Source, fmt.Sprint(len(lateKeys))}, append(lateKeys, args...)...)...)
				require.ErrorContains(t, err, "REPLACED", "%s %s", p.Kind, script.Name)
				require.Equal(t, was, s.Do(append([]string{"EXISTS"}, keys.All()...)...))
			}
		}
	})
}

// A server that has lost an identity learns it again, with all its names, from the client that has it.
func TestAnIdentityThatWasLostIsKnownAgain(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c, die := dead(t, s, name)
		kit.Lock(t.Context(), fairlock.New(c, name, headwaiter.WithLease(long)).Lock).Value(t)
		key := lua.IdentityKey("headwaiter", name, 0, false)
		s.Do("DEL", key, lua.IdentityNames(key, c.ID()))
		kit.Lock(t.Context(), fairlock.New(c, name+" next", headwaiter.WithLease(long)).Lock).Value(t)
		die()
		require.EqualValues(t, 2, kit.Dial(t, s, as(name)).Stats().Died)
	})
}

func TestAWitnessEndsOnlyTheRunWhoseDeathItHasSeen(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		c := kit.Dial(t, s, as(name), func(o *headwaiter.Options) { o.Invocation = "two" })
		held := kit.Lock(t.Context(), fairlock.New(c, name, headwaiter.WithLease(3*time.Second)).Lock).Value(t)
		witness := kit.Dial(t, s)
		for identity, run := range map[string]string{name: "one", name + " other": ""} {
			ended, found, err := witness.Bury(t.Context(), identity, run)
			require.NoError(t, err)
			require.False(t, found)
			require.Empty(t, ended)
		}
		require.NoError(t, held.Context().Err())
		for _, again := range []bool{false, true} {
			ended, found, err := witness.Bury(t.Context(), name, "two")
			require.NoError(t, err)
			require.True(t, found)
			if !again {
				require.Equal(t, []headwaiter.Burial{{Kind: "lock", Name: name, Holds: 1}}, ended)
			}
		}
		kit.Release(t, kit.Got(fairlock.New(witness, name).TryLock(t.Context()))(t))
		kit.Await(t, held.Context().Done(), "the client that lives after all to learn it")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrReplaced)
		waitqueue.Disown((*waitqueue.Client)(c))
		kit.Dial(t, s, as(name))
	})
}

func TestIdentitiesThatCannotBe(t *testing.T) {
	for _, o := range []headwaiter.Options{
		{Identity: "a\nb"}, {Identity: strings.Repeat("a", 257)}, {Identity: "a", Invocation: "a\nb"}, {Invocation: "a"},
	} {
		_, err := headwaiter.Dial(o)
		require.ErrorIs(t, err, headwaiter.ErrInvalid)
	}
}

// Without an identity nothing is sent or stored for one.
func TestWithoutAnIdentityNothingIsStored(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		held := kit.Lock(t.Context(), fairlock.New(c, kit.Name(t)).Lock).Value(t)
		require.Empty(t, s.List("KEYS", "*identity*"))
		for script := range kit.Scripts(s) {
			require.NotContains(t, []string{lua.Confirm.Name, lua.Graves.Name, "waitqueue/raise"}, script)
		}
		kit.Release(t, held)
	})
}
