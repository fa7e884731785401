package zklock

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAClientKeepsFewGoroutinesAndNoneWhenItIsClosed(t *testing.T) {
	c, err := Dial(Options{Servers: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	for range 3 {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 10 * mostIdle {
			all.Add(1)
			require.NoError(t, c.spawn(func() { <-begin; all.Done() }))
		}
		close(begin)
		all.Wait()
		kit.Eventually(t, "the goroutines to have nothing to do", func() bool { return c.rest.Load() == mostIdle })
	}
	require.NoError(t, c.Close(t.Context())) // It waits for all.
	require.ErrorIs(t, c.spawn(func() {}), lease.ErrClosed)
}
