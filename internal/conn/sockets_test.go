package conn

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// onWrite is a connection that calls f instead of sending.
type onWrite struct {
	net.Conn
	f func()
}

func (w onWrite) Write(b []byte) (int, error) {
	w.f()
	return len(b), nil
}

// With many commands under way, callers that are ready have handed over theirs before the next write; with few nobody waits
// for them.
func TestAWriteWaitsForThoseWhoAreReadyWhereManyAre(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries, ready = 100, 10
	first := func(underWay int) (writes int) { // how many of the writes went ahead of those who were ready
		for range tries {
			all := newSockets()
			for range underWay {
				require.True(t, all.flights.begin())
			}
			var went atomic.Int32
			s := &socket{all: all, Conn: onWrite{f: func() {
				if went.Load() < ready {
					writes++
				}
			}}}
			var callers sync.WaitGroup
			for range ready {
				callers.Go(func() { went.Add(1) })
			}
			n, err := s.Write([]byte("ask"))
			require.NoError(t, err)
			require.Equal(t, 3, n)
			callers.Wait()
		}
		return writes
	}
	require.Less(t, first(crowd+1), tries/2)
	require.Greater(t, first(crowd), tries/2)
}
