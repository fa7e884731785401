package zklock_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// Goroutines share a Mutex: one releases while the other asks, and looks what it got.
func TestTheTokenOfASharedMutexIsThatOfTheOwnNode(t *testing.T) {
	t.Parallel()
	const cycles = 300
	m := zklock.New(dial(t, zktest.Shared(t)), "one")
	stop := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			l, err := m.Lock(t.Context())
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	wrong := 0
	for range cycles {
		l := locked(t, m)
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		if l.Token() != info.Token {
			wrong++
		}
		kit.Release(t, l)
	}
	close(stop)
	kit.All(t, &other)
	require.Zero(t, wrong, "tokens of %d that are those of another change", cycles)
}
