package daemon

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFreePortIsBelowThoseOfConnectionsAndHasItsNeighbours(t *testing.T) {
	t.Parallel()
	const distance = 10000
	held := 0
	granted := func(int) (func(), bool) {
		held++
		return func() { held-- }, true
	}
	for range 1000 {
		port, release, err := free(granted, []int{1, distance})
		require.NoError(t, err)
		require.GreaterOrEqual(t, port, firstPort)
		require.Less(t, port+distance, lastPort)
		require.Equal(t, 3, held)
		release()
		require.Zero(t, held)
	}
	only := firstPort + 100
	among := func(free ...int) func(int) (func(), bool) {
		return func(port int) (func(), bool) {
			if !slices.Contains(free, port) {
				return nil, false
			}
			return granted(port)
		}
	}
	port, release, err := free(among(only, only+1, only+distance), []int{1, distance})
	require.NoError(t, err)
	require.Equal(t, only, port)
	require.Equal(t, 3, held)
	release()
	_, _, err = free(among(only, only+distance), []int{1, distance})
	require.ErrorContains(t, err, "no free port from 20000 to 22768")
	require.Zero(t, held, "what was claimed beside one that is taken")
}

func TestAPortIsTakenWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.True(t, listens(l.Addr().(*net.TCPAddr).Port))
	require.NoError(t, l.Close())

	port, release, err := Port()
	require.NoError(t, err)
	require.GreaterOrEqual(t, port, firstPort)
	release()
}

func TestPortsThatAreChosenTogetherAreDifferent(t *testing.T) {
	t.Parallel()
	const many = 500 // So many that chance would choose one of them twice.
	s := server(t, "kind", func(o *Options, _ func() *Server) { o.Ports = many })
	require.NoError(t, place([]*Server{s}))
	different := map[int]bool{}
	for i := range many {
		different[s.Port(i)] = true
	}
	require.Len(t, different, many)
}
