package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// Latches that all clients set, look at, count down once and wait for, one after the other.
func TestALatchInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 6
		a := newArena(t, s, clients, nil, 0)
		var passed atomic.Int64
		var rounds [clients]int
		a.trouble(func() int { return int(passed.Load()) })
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			rounds[lane]++
			name := fmt.Sprintf("%s:%d", kit.Name(t), rounds[lane])
			l := countdown.New(c, name)
			ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
			defer cancel()
			a.expect(a.Set(name, lane, clients, func() (bool, error) { return l.TrySetCount(ctx, clients) }))
			// It is repeated for three seconds only; what has no answer is not judged, as it changes nothing.
			_ = a.Count(name, lane, func() (int64, error) { return l.Count(ctx) })
			wait(a.ctx, time.Duration(rng.IntN(10))*time.Millisecond)
			a.expect(a.Down(name, lane, func() (int64, error) { return l.CountDown(ctx) }))
			// When it is over, those who wait for one that has stopped to come give up.
			if a.expect(a.Wait(name, lane, func() error { return l.Wait(a.ctx) }), context.Canceled) {
				passed.Add(1)
			}
		})
		require.Empty(t, a.errors)
		judged := Linearizable(t, Latch, a.History())
		replies, pushes := a.proxy.Lost()
		t.Logf("%d latches, %d waits, %d operations, %d replies and %d messages lost", rounds[0], passed.Load(), judged, replies, pushes)
		require.GreaterOrEqual(t, int(passed.Load()), enough)
		require.Positive(t, replies)
	})
}

// What it tells is what is left when the answer comes, as its documentation says.
func TestACountDownWhoseAnswerIsLostCountsOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		first := countdown.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t))
		second := countdown.New(kit.Dial(t, s), kit.Name(t))
		_, err := second.TrySetCount(t.Context(), 4)
		require.NoError(t, err)
		_, err = second.CountDown(t.Context()) // From here on the server knows the script.
		require.NoError(t, err)
		p.LoseReplies(1, kit.Runs(lua.LatchDown.Script))
		p.Refuse()
		call := kit.Go(func() (int64, error) { return first.CountDown(t.Context()) })
		kit.LostReplies(t, p.Faults, 1)
		left, err := second.CountDown(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, left)
		p.Heal()
		require.EqualValues(t, 1, call.Value(t))
		left, err = second.Count(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, left)
	})
}

// A barrier at which parties meet, of whom some give up; whoever finds it broken resets it.
func TestABarrierInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const parties = 4
		a := newArena(t, s, parties, nil, 0)
		var passed, broken atomic.Int64
		a.trouble(func() int { return int(passed.Load()) })
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			b := barrier.New(c, kit.Name(t), parties, headwaiter.WithLease(shortLease))
			lasts := 2 * time.Second // Who waits longer waits for one who has stopped to come.
			if rng.IntN(40) == 0 {
				lasts = time.Duration(rng.IntN(20)) * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), lasts)
			defer cancel()
			wait(a.ctx, time.Duration(5+rng.IntN(10))*time.Millisecond) // More rounds than can be judged are no use.
			_, err := a.Await(b.Name(), lane, shortLease, func() (int, error) { return b.Await(ctx) })
			switch {
			case err == nil:
				passed.Add(1)
			case errors.Is(err, barrier.ErrBroken):
				broken.Add(1)
				ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
				defer cancel()
				a.expect(a.Reset(b.Name(), lane, func() error { return b.Reset(ctx) }))
			default:
				a.expect(err)
			}
		})
		require.Empty(t, a.errors)
		judged := Linearizable(t, Barrier(parties), a.History())
		replies, pushes := a.proxy.Lost()
		t.Logf("%d passes, %d times broken, %d operations, %d replies and %d messages lost", passed.Load(), broken.Load(), judged, replies, pushes)
		require.GreaterOrEqual(t, int(passed.Load()), enough)
		require.Positive(t, replies)
	})
}
