package daemon

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFreePortIsBelowThoseOfConnectionsAndHasItsNeighbours(t *testing.T) {
	t.Parallel()
	const distance = 10000
	none := func(int) bool { return false }
	for range 1000 {
		port, err := free(none, []int{1, distance})
		require.NoError(t, err)
		require.GreaterOrEqual(t, port, firstPort)
		require.Less(t, port+distance, lastPort)
	}
	only := firstPort + 100
	allBut := func(free ...int) func(int) bool {
		return func(port int) bool {
			for _, f := range free {
				if f == port {
					return false
				}
			}
			return true
		}
	}
	port, err := free(allBut(only, only+1, only+distance), []int{1, distance})
	require.NoError(t, err)
	require.Equal(t, only, port)
	_, err = free(allBut(only, only+distance), []int{1, distance})
	require.ErrorContains(t, err, "no free port from 20000 to 22768")
}

func TestAPortIsTakenWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.True(t, listens(l.Addr().(*net.TCPAddr).Port))
	require.NoError(t, l.Close())

	port, err := Port()
	require.NoError(t, err)
	require.GreaterOrEqual(t, port, firstPort)
}

func TestPortsThatAreChosenTogetherAreDifferent(t *testing.T) {
	t.Parallel()
	const many = 1000 // So many that chance would choose one of them twice.
	s := server(t, "kind", func(o *Options, _ func() *Server) { o.Ports = many })
	require.NoError(t, place([]*Server{s}))
	different := map[int]bool{}
	for i := range many {
		different[s.Port(i)] = true
	}
	require.Len(t, different, many)
}

func TestAPortIsReservedWhileItsServerIsDown(t *testing.T) {
	t.Parallel()
	s := server(t, "kind")
	require.NoError(t, s.Start())
	port := s.Port(0)
	s.Kill()
	require.True(t, listens(port), "nobody listens, and nobody else gets it")
	require.False(t, reserve([]int{port}))
	require.NoError(t, s.Start())
	require.Equal(t, port, s.Port(0))
	s.Stop()
	require.False(t, listens(port), "it is given back in the end")
}

func TestPortsAreReservedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	port, err := Port()
	require.NoError(t, err)
	require.False(t, reserve([]int{port - 1, port}))
	reserved.Lock()
	defer reserved.Unlock()
	require.NotContains(t, reserved.sockets, port-1)
}
