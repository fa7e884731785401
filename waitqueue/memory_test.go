package waitqueue

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A client that waits has three connections. Most of what it takes is theirs: buffers, and the room that rueidis makes
// ahead for requests: 192 KiB and 140.
func TestAClientThatWaitsTakesLittleMemory(t *testing.T) {
	const clients, most = 32, 420 << 10
	s := redistest.Start(t)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	held, err := queueOf(dial(t, s), "crowd").Acquire(t.Context())
	require.NoError(t, err)
	before := heap()
	var got []<-chan *lease.Lease
	for range clients {
		got = append(got, acquire(t.Context(), queueOf(dial(t, s), "crowd")))
	}
	queue := lua.Fairlock.Keys("headwaiter", "crowd").Queue
	require.Eventually(t, func() bool { return s.Int("ZCARD", queue) == clients }, 20*time.Second, 5*time.Millisecond)
	require.Less(t, (heap()-before)/clients, most)
	require.NoError(t, held.Release(t.Context()))
	var released sync.WaitGroup // In the order in which they queued, which need not be that in which they were begun.
	for _, one := range got {
		released.Go(func() { assert.NoError(t, (<-one).Release(t.Context())) })
	}
	released.Wait()
}
