package check

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// take makes a call for a hold; some calls are tries and some give up.
func (a *arena) take(w Want, rng *rand.Rand, lock, try func(context.Context) (*lease.Lease, error)) (*Lease, bool) {
	ctx, cancel := patient(rng)
	defer cancel()
	if w.Try = rng.IntN(6) == 0; w.Try {
		lock = try
	}
	l, err := a.Acquire(w, func() (*lease.Lease, error) { return lock(ctx) })
	return l, a.expect(err, lease.ErrBusy)
}

func TestALockInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 6, lua.Fairlock, 0)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(shortLease))
			if l, ok := a.take(Want{Name: m.Name(), Lane: lane}, rng, m.Lock, m.TryLock); ok {
				a.hold(l)
			}
		})
		a.judge(Mutex, 1)
	})
}

// Calls of one client pass the lock on among themselves. The server learns of that when the hold ends, by its last token.
func TestALockWithCohortsInTrouble(t *testing.T) {
	const passes, mates = 3, 4
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 4, lua.Fairlock, 0)
		a.passes = passes
		a.clients = slices.Repeat(a.clients, mates)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(shortLease), fairlock.WithCohort(passes))
			if l, ok := a.take(Want{Name: m.Name(), Lane: lane}, rng, m.Lock, m.TryLock); ok {
				a.hold(l)
			}
		})
		a.judge(Mutex, 1)
		require.Less(t, a.truth.Granted, len(a.Holds(kit.Name(t))), "nothing was passed on")
	})
}

// judgeBesides judges holds of other names, where nobody followed what the server did.
func (a *arena) judgeBesides(names []string) {
	a.t.Helper()
	for _, name := range names {
		require.Empty(a.t, a.Holds(name).Wrong(1))
	}
}

func threeNames(t *testing.T) []string {
	return []string{kit.Name(t), kit.Name(t) + "-b", kit.Name(t) + "-c"}
}

// someOf chooses some of the names, in any order, and says that the same is wanted of each.
func someOf(names []string, rng *rand.Rand, of Want) (some []string, wants []Want) {
	for _, i := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
		of.Name = names[i]
		some, wants = append(some, of.Name), append(wants, of)
	}
	return some, wants
}

// Each call takes some of the names, in any order, or one of them alone.
func TestSeveralNamesInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 6, lua.Fairlock, 0)
		names := threeNames(t)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			taken, wants := someOf(names, rng, Want{Lane: lane, Try: rng.IntN(6) == 0})
			m := multilock.New(c, taken, headwaiter.WithLease(shortLease), multilock.WithBound(shortLease/8))
			lock := m.Lock
			if wants[0].Try {
				lock = m.TryLock
			}
			ctx, cancel := patient(rng)
			defer cancel()
			l, err := a.AcquireAll(wants, func() (*lease.Lease, error) { return lock(ctx) })
			if a.expect(err, lease.ErrBusy) {
				a.hold(l)
			}
		})
		a.judge(Mutex, 1)
		a.judgeBesides(names[1:])
	})
}

// Calls take batches of names.
func TestBatchesInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 6, lua.Fairlock, 0)
		names := threeNames(t)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			taken, wants := someOf(names, rng, Want{Lane: lane, Try: rng.IntN(3) == 0})
			locks := make([]*fairlock.Mutex, len(taken))
			for i, name := range taken {
				locks[i] = fairlock.New(c, name, headwaiter.WithLease(shortLease))
			}
			take := fairlock.LockEach
			if wants[0].Try {
				take = fairlock.TryLockEach
			}
			// Two batches may wait for each other.
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(1500))*time.Millisecond)
			defer cancel()
			got, errs := a.AcquireEach(wants, func() []fairlock.Outcome { return take(ctx, locks...) })
			for _, err := range errs {
				a.expect(err, lease.ErrBusy, lease.ErrLost) // While it waits for the others of the batch.
			}
			if len(got) > 0 {
				wait(got[0].Context(), holdTime)
			}
			ctx, cancel = context.WithTimeout(context.Background(), kit.Patience)
			defer cancel()
			a.ReleaseEach(ctx, got)
		})
		a.judge(Mutex, 1)
		a.judgeBesides(names[1:])
	})
}

// Each call takes the stripe of a key, and is judged as a hold of both: so a key that another client has in another stripe
// is seen, and a stripe that is not the one it is called. Some clients state another number of stripes, and never hold.
func TestStripesInTrouble(t *testing.T) {
	const stripes, members, strangers = 3, 6, 2
	keys := []string{"a", "b", "c", "d"}
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, members+strangers, nil, 0)
		of := func(c *headwaiter.Client, n int) *striped.Mutex {
			return striped.New(c, kit.Name(t), n, headwaiter.WithLease(shortLease))
		}
		first := of(a.clients[0], stripes)
		require.NoError(t, first.Do(t.Context(), keys[0], func(context.Context) error { return nil })) // Its number counts.
		var refused atomic.Int64
		a.trouble(func() int { return len(a.Holds(keys[0])) * len(keys) })
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			key, m, also := keys[rng.IntN(len(keys))], of(c, stripes), []error{lease.ErrBusy}
			if lane >= members {
				m, also = of(c, stripes+1), append(also, lease.ErrMismatch)
				wait(a.ctx, holdTime)
			}
			ctx, cancel := patient(rng)
			defer cancel()
			wants := []Want{{Name: m.Stripe(key), Lane: lane, Try: rng.IntN(6) == 0}, {Name: key, Lane: lane}}
			l, err := a.AcquireAll(wants, func() (*lease.Lease, error) {
				if wants[0].Try {
					return m.TryLock(ctx, key)
				}
				return m.Lock(ctx, key)
			})
			if errors.Is(err, lease.ErrMismatch) {
				refused.Add(1)
			}
			if a.expect(err, also...) {
				a.hold(l)
			}
		})
		require.Empty(t, a.errors)
		require.Positive(t, refused.Load(), "nobody stated another number")
		other := of(a.clients[members], stripes+1)
		for _, key := range keys {
			require.Empty(t, a.Holds(other.Stripe(key)), "two numbers of stripes hold")
			require.NotEmpty(t, a.Holds(first.Stripe(key)))
			a.judgeBesides([]string{key, first.Stripe(key)})
		}
		t.Logf("%d operations judged, %d calls with another number refused", Linearizable(t, Mutex, a.History()), refused.Load())
	})
}

// Candidates lead, change their values, resign and look who leads.
func TestAnElectionInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 6, lua.Election, 0)
		var values atomic.Int64
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			e := election.New(c, kit.Name(t), headwaiter.WithLease(shortLease))
			look := func() {
				ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
				defer cancel()
				// What has no answer is not judged, as it changes nothing.
				_ = a.Look(e.Name(), lane, func() (int64, uint64, error) {
					l, err := e.Leader(ctx)
					value, _ := strconv.ParseInt(l.Value, 10, 64)
					return value, l.Token, err
				})
			}
			look()
			ctx, cancel := patient(rng)
			defer cancel()
			w := Want{Name: e.Name(), Lane: lane, Value: values.Add(1)}
			l, err := a.Acquire(w, func() (*lease.Lease, error) { return e.Campaign(ctx, strconv.FormatInt(w.Value, 10)) })
			if !a.expect(err, lease.ErrLost) {
				return
			}
			look()
			if value := values.Add(1); rng.IntN(2) == 0 {
				ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
				defer cancel()
				a.expect(l.Proclaim(value, func(l *lease.Lease) error {
					return e.Proclaim(ctx, l, strconv.FormatInt(value, 10))
				}), lease.ErrLost, lease.ErrUnwoken, lease.ErrOutcomeUnknown)
				look()
			}
			a.hold(l)
			look()
			wait(a.ctx, time.Duration(rng.Int64N(int64(12*holdTime)))) // So that at times nobody leads.
		})
		a.judge(Election, 1)
	})
}

func TestAReentrantLockInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 6, lua.Reentrant, 0)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := reentrant.New(c, kit.Name(t), headwaiter.WithLease(shortLease))
			l, ok := a.take(Want{Name: m.Name(), Lane: lane}, rng, m.Lock, m.TryLock)
			if !ok {
				return
			}
			for range rng.IntN(3) {
				inner, err := l.Enter(m.Lock)
				if a.expect(err) {
					defer a.hold(inner)
				}
			}
			a.hold(l)
		})
		a.judge(Mutex, 1)
	})
}

func TestASemaphoreInTrouble(t *testing.T) {
	const limit = 4
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 8, lua.Semaphore, limit)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := semaphore.New(c, kit.Name(t), limit, headwaiter.WithLease(shortLease))
			n := 1 + rng.Int64N(3)
			lock := func(ctx context.Context) (*lease.Lease, error) { return m.Acquire(ctx, n) }
			try := func(ctx context.Context) (*lease.Lease, error) { return m.TryAcquire(ctx, n) }
			if l, ok := a.take(Want{Name: m.Name(), Lane: lane, Permits: n}, rng, lock, try); ok {
				a.hold(l)
			}
		})
		a.judge(Semaphore(limit), limit)
	})
}

func TestAReadWriteLockInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a := newArena(t, s, 8, lua.RWLock, wire.AllReaders)
		a.trouble(a.heldSoFar)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := rwlock.New(c, kit.Name(t), headwaiter.WithLease(shortLease))
			if rng.IntN(3) > 0 {
				if l, ok := a.take(Want{Name: m.Name(), Lane: lane, Shared: true}, rng, m.RLock, m.TryRLock); ok {
					a.hold(l)
				}
				return
			}
			l, ok := a.take(Want{Name: m.Name(), Lane: lane, Writes: true}, rng, m.Lock, m.TryLock)
			if !ok {
				return
			}
			if rng.IntN(3) == 0 {
				wait(l.Context(), holdTime)
				_ = l.Downgrade(func(l *lease.Lease) error {
					ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
					defer cancel()
					return m.Downgrade(ctx, l)
				})
			}
			a.hold(l)
		})
		a.judge(RWLock, wire.AllReaders)
	})
}
