package waitqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
)

// A timer that was set back when it had just fired ends its box, and nobody else's when it fires again.
func TestABoxEndsItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, n := &outbox[int]{}, &conn.Node{}
		old, next := &box[int]{}, &box[int]{}
		o.ready = map[*conn.Node]*box[int]{n: old}
		o.mu.Lock()
		o.lingerLocked(n, old)
		o.mu.Unlock()
		o.mu.Lock()
		time.Sleep(linger) // Of the bubble: it fires, and waits for the lock.
		o.lingerLocked(n, old)
		o.mu.Unlock()
		synctest.Wait()
		o.mu.Lock()
		require.NotContains(t, o.ready, n)
		o.ready[n] = next
		o.mu.Unlock()
		time.Sleep(linger) // Of the bubble.
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		require.Same(t, next, o.ready[n])
	})
}
