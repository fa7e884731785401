package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// These run before the tests that run beside each other, so that the goroutines are their own. The
// embedded server is ten times as slow at scripts: it gets a tenth of the cycles.
func TestNothingIsLeftAfter10000Cycles(t *testing.T) { leavesNothing(t, redistest.Start(t), 10_000) }

func TestNothingIsLeftAfter1000CyclesOnTheEmbeddedServer(t *testing.T) {
	leavesNothing(t, redistest.Mini(t), 1000)
}

func leavesNothing(t *testing.T, s redistest.Backend, cycles int) {
	t.Helper()
	start := goleak.IgnoreCurrent()
	const workers, locks = 10, 4
	short := linger(100 * time.Millisecond)
	clients := []*headwaiter.Client{kit.Dial(t, s, short), kit.Dial(t, s, short)}
	name := func(i int) string { return fmt.Sprintf("%s:%d", kit.Name(t), i) }
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range cycles / workers {
				cycle(t, fairlock.New(clients[w%2], name(rand.N(locks))), i)
			}
		})
	}
	all.Wait()
	for i := range locks {
		kit.Eventually(t, "the locks to be free", func() bool {
			info := inspect(t, fairlock.New(clients[0], name(i)))
			return info.Waiting == 0 && !info.Held // What was granted at the last moment is given back.
		})
	}
	kit.Eventually(t, "the subscriptions to end", func() bool { return len(s.List("PUBSUB", "CHANNELS")) == 0 })
	kit.Expiring(t, s)
	for _, c := range clients {
		require.Zero(t, c.Stats().Lost)
		require.NoError(t, c.Close(t.Context()))
	}
	goleak.VerifyNone(t, start)
}

// cycle is one of: a lock, a try, a lock that is given up soon.
func cycle(t *testing.T, m *fairlock.Mutex, i int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := m.Lock
	switch i % 3 {
	case 1:
		get = m.TryLock
	case 2:
		time.AfterFunc(rand.N(3*time.Millisecond), cancel)
	}
	l, err := get(ctx)
	switch {
	case err == nil:
		if err := l.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
	case i%3 == 0:
		t.Errorf("lock: %v", err)
	case i%3 == 1:
		if !errors.Is(err, lease.ErrBusy) {
			t.Errorf("try: %v", err)
		}
	case !errors.Is(err, context.Canceled):
		t.Errorf("a lock given up: %v", err)
	}
}
