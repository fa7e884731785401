package barrier_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

func TestAnActionRunsOnceThoughRepliesAreLost(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		var ran atomic.Int64
		act := barrier.WithAction(func(context.Context) error { ran.Add(1); return nil })
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2, act), dial(t, s, 2)
		for i := range 20 {
			p.LoseReplies(1+i%2, kit.Runs([]*lua.Script{lua.Barrier.Ask, lua.BarrierOpen}[i%2]))
			pass(t, near.comes(t, t.Context(), 1), far.party(t.Context()))
			require.EqualValues(t, i+1, ran.Load())
		}
		replies, _ := p.Lost()
		require.Equal(t, 30, replies)
	})
}

func TestAResetThatIsRepeatedDoesNotBreakTheNextGeneration(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2), dial(t, s, 2)
		for i := range 10 {
			rest(t, far) // Now the server knows the script and the client's new connections, and one request is all.
			old := near.comes(t, t.Context(), 1)
			p.Freeze(faults.ToClient)
			reset := kit.Run(func() error { return far.Reset(t.Context()) })
			fail(t, old)
			next := near.comes(t, t.Context(), 1)
			p.Cut() // Now it is sent again.
			p.Heal()
			require.NoError(t, reset.Err(t))
			require.False(t, next.Returned(), "%d", i)
			pass(t, next, near.party(t.Context()))
		}
	})
}

func TestAServerThatForgetsBreaksTheBarrierForAll(t *testing.T) {
	for fault, do := range map[string]func(redistest.Backend){
		"flush":   func(s redistest.Backend) { s.Do("FLUSHALL") },
		"restart": func(s redistest.Backend) { s.Restart() },
	} {
		kit.EachOf(t, fault, func(t *testing.T, s redistest.Backend) {
			a, b := dial(t, s, 4), dial(t, s, 4)
			views := turns(a, b)
			calls := gathers(t, views)
			begun := time.Now()
			do(s)
			fail(t, calls...)
			require.Less(t, time.Since(begun), 2*hears)
			rest(t, b)
			meet(t, views)
		})
	}
}
