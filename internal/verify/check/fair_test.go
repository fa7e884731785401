package check

import (
	"context"
	"errors"
	"math/rand/v2"
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
	"github.com/headwaiter/headwaiter/lua"
)

// queueSlack is how long a call may take to get its place on a machine that others use too.
const queueSlack = 500 * time.Millisecond

// clockSlack is what the wall clock of the server and that of the recorder may be apart: they are one clock,
// read by two processes.
const clockSlack = 2 * time.Millisecond

// fairHistory is the history of a lock with the places that its holds had in the queue, as the server tells.
func (a *arena) fairHistory() []Op {
	grants := map[uint64]*Grant{}
	for _, g := range a.truth.Grants {
		grants[g.Token] = g
	}
	at := func(us int64) time.Duration { return a.At(time.UnixMicro(us)) }
	var ops []Op
	for _, o := range a.History() {
		if o.Verb == Acquire && o.Outcome != OK {
			continue // What gave up is not known to the model, and what it had of the lock keeps nobody out.
		}
		if o.Verb == Acquire {
			g := grants[o.Token]
			require.NotNil(a.t, g, "the server knows nothing of token %d", o.Token)
			place := Op{Verb: Enqueue, Name: o.Name, Lane: partyLanes + o.Lane, Hold: o.Hold, Call: o.Call, Return: o.Return, Ticket: g.Arrival}
			if g.Queued > 0 {
				place.Return = min(o.Return, at(g.Queued)+clockSlack)
			} else {
				place.Ticket = g.Since
			}
			ops = append(ops, place)
		}
		ops = append(ops, o)
	}
	return ops
}

// Eight clients whom nothing disturbs, of which two give up again and again: nobody is overtaken, and those who
// wait get as much as each other.
func TestALockIsFair(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients, quitters, total = 8, 2, 90
		a := newArena(t, s, clients, lua.Fairlock, 0)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := fairlock.New(c, kit.Name(t))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if lane < quitters {
				defer wait(a.ctx, 30*time.Millisecond) // Their tickets are many enough.
				time.AfterFunc(time.Duration(rng.IntN(8))*time.Millisecond, cancel)
			}
			l, err := a.Acquire(Want{Name: m.Name(), Lane: lane}, func() (*lease.Lease, error) { return m.Lock(ctx) })
			if a.expect(err, context.Canceled) {
				wait(l.Context(), 5*time.Millisecond)
				a.expect(l.Release(context.Background()))
			}
			if a.heldSoFar() >= total {
				a.finish()
			}
		})
		hs := a.Holds(kit.Name(t))
		t.Logf("dropped %v, lapsed %v, %d strays for up to %v", a.truth.Dropped, a.truth.Lapses, a.truth.Strays, a.truth.Astray)
		require.Empty(t, a.errors)
		require.Empty(t, hs.Tokens())
		require.Empty(t, hs.Overlaps(1))
		require.Empty(t, hs.Losses())
		require.Empty(t, hs.Inversions(queueSlack))
		require.Empty(t, a.truth.Wrong)
		require.Less(t, a.truth.Astray, longAstray)
		require.Empty(t, a.truth.Dropped)
		require.Zero(t, a.truth.Lapsed)
		Linearizable(t, Mutex, a.History())
		judged := Linearizable(t, Fair, a.fairHistory())
		patient := slices.DeleteFunc(slices.Clone(hs), func(h Hold) bool { return h.Lane < quitters })
		f := patient.Fairness(queueSlack)
		t.Logf("%d operations, %+v", judged, f)
		require.Zero(t, f.Bypass)
		// On a machine that others use a worker may stand still between two calls.
		require.Greater(t, f.Jain, 0.95)
	})
}

// longAstray is far more than an end takes that is repeated when what it overtook has landed, and less than one
// that is repeated when that can run no more (three seconds), or a grant that lapses.
const longAstray = 1500 * time.Millisecond

// A client whose answers are slow asks in the background. A call that gives up meanwhile ends its ticket. If that
// end comes before the ask it must come again soon: the ticket is in the queue, with nobody behind it (R1).
func TestACallThatGivesUpLeavesNoTicketBehind(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		truth := NewTruth(lua.Fairlock.Keys("headwaiter", name), 0)
		stop := Follow(t, s, truth.Feed)
		holder := fairlock.New(kit.Dial(t, s), name)
		held, err := holder.Lock(t.Context())
		require.NoError(t, err)
		p := kit.Proxy(t, s)
		slow := fairlock.New(kit.Dial(t, s, kit.Through(p)), name)
		// It hears of this lock from here on, so its asks queue.
		patient := kit.Lock(t.Context(), slow.Lock)
		kit.Waiting(t, 1, holder.Inspect)
		// The first answer that is slow is one to a call that does not give up: to give up before the client knows that
		// its answers are slow cuts the connection, and what was under way then may run late.
		p.Delay(130 * time.Millisecond)
		_, err = slow.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		var quitters sync.WaitGroup
		for i := range 8 {
			rng := rand.New(rand.NewPCG(uint64(i), 13))
			quitters.Go(func() {
				for range 40 {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
					if l, err := slow.Lock(ctx); err == nil {
						t.Errorf("two hold the lock: %d and %d", held.Token(), l.Token())
					}
				}
			})
		}
		kit.All(t, &quitters)
		p.Heal()
		kit.Release(t, held)
		if err := patient.Value(t).Release(t.Context()); !errors.Is(err, lease.ErrLost) {
			require.NoError(t, err) // A machine that is too busy to renew for two seconds loses it, which is not the point.
		}
		kit.Eventually(t, "the lock to be free, with nobody in its queue", func() bool {
			info, err := holder.Inspect(t.Context())
			require.NoError(t, err)
			return !info.Held && info.Waiting == 0
		})
		stop()
		truth.Settle()
		t.Logf("%d tickets came behind their ends, for up to %v", truth.Strays, truth.Astray)
		require.Less(t, truth.Astray, longAstray)
		require.Empty(t, truth.Wrong)
	})
}
