package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Processes are killed and started again, calls are cancelled, connections are cut, and after a minute nothing
// shows that anybody was ever there. The minute passes on the server's own clock.
func TestNothingIsLeftAfterKillsAndCancels(t *testing.T) {
	for range either(1, 4) { // What one of them was told is judged, and forgotten, before the next.
		t.Run("round", leavesNothing)
	}
}

func leavesNothing(t *testing.T) {
	clock := redistest.NewClock(t)
	cycles := either(1_500, 2_500_000)
	r := begin(t, "cycles", func(o *options) {
		o.server = []redistest.Option{redistest.WithClock(clock)}
		o.processes, o.plan.Cancel = 3, 200
		o.outcomes = []string{"expired"}
		o.plan.Hold = 3 * time.Millisecond
		if long() { // As fast as it goes: so many names that Redis has something to do while one waits for the end of a lease.
			o.plan.Hold, o.plan.Clients = time.Millisecond, 1
			for i := range 63 {
				o.plan.Names = append(o.plan.Names, fmt.Sprint("load", i))
			}
		}
	})
	before := runtime.NumGoroutine()
	var mine [4]*headwaiter.Client
	for i := range mine {
		c, err := headwaiter.Dial(headwaiter.Options{Redis: r.server.Option(), Linger: time.Second})
		require.NoError(t, err)
		mine[i] = c
	}
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var own, quits atomic.Int64
	for i := range either(16, 2) { // What these do is in no history.
		m := fairlock.New(mine[i%len(mine)], "cycles", headwaiter.WithLease(2*time.Second))
		work.Go(func() { cycle(t, ctx, m, &own, &quits) })
	}
	kills := 0
	victim := r.load[2]
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for replaced := time.Now(); r.load.count() < cycles || kills < 3; <-tick.C {
		if time.Since(replaced) < time.Second {
			continue
		}
		victim.kill()
		kills++
		p := victim.plan
		p.Index = 3 + kills
		victim = newProcess(t, p)
		r.load = append(r.load, victim)
		r.server.Int("CLIENT", "KILL", "TYPE", []string{"pubsub", "normal"}[kills%2])
		replaced = time.Now()
	}
	stop()
	work.Wait()
	total := r.load.count() + int(own.Load())
	for _, c := range mine {
		require.NoError(t, c.Close(context.Background()))
	}
	victim.kill()
	r.everybody()
	r.finish()
	// Those that follow the processes have ended with them.
	goroutines := runtime.NumGoroutine() - before
	channels := len(r.server.List("PUBSUB", "CHANNELS", "*"))
	clock.Shift(time.Minute + 15*time.Second) // From the last use of a lock, whose lease is 3 s.
	keys := r.server.List("KEYS", "*")
	t.Logf("%d cycles, %d calls given up beside them, %d kills", total, quits.Load(), kills)
	require.Empty(t, keys)
	require.Zero(t, channels)
	require.LessOrEqual(t, goroutines, 0)
}

// cycle locks and releases, and now and then gives up. It counts its holds, and the calls that gave up.
func cycle(t *testing.T, ctx context.Context, m *fairlock.Mutex, done, quits *atomic.Int64) {
	for ctx.Err() == nil {
		mine, cancel := ctx, context.CancelFunc(func() {})
		if rand.IntN(3) == 0 {
			mine, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
		}
		l, err := m.Lock(mine)
		ended := mine.Err()
		cancel()
		if err != nil {
			if ended == nil || !errors.Is(err, ended) {
				t.Errorf("a call failed: %v", err)
				return
			}
			quits.Add(1)
			continue
		}
		done.Add(1)
		if how := outcome(l.Release(context.Background())); how != released && how != "expired" {
			t.Errorf("a release failed: %v", how)
		}
	}
}
