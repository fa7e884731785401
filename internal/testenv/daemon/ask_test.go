package daemon

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestOnlyAnAnswerThatAllIsWellIsOne(t *testing.T) {
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/well" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("body"))
	}))
	defer well.Close()
	require.Equal(t, "body", must.Got(Fetch(t.Context(), well.URL+"/well"))(t))
	require.ErrorContains(t, must.Err(Fetch(t.Context(), well.URL+"/ill")), "503")
}

func TestAFreePortIsBelowThoseOfConnectionsAndHasItsNeighbours(t *testing.T) {
	t.Parallel()
	const distance = 10000
	none := func(int) bool { return false }
	for range 1000 {
		port := must.Got(free(none, []int{1, distance}))(t)
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
	require.Equal(t, only, must.Got(free(allBut(only, only+1, only+distance), []int{1, distance}))(t))
	require.ErrorContains(t, must.Err(free(allBut(only, only+distance), []int{1, distance})), "no free port from 20000 to 22768")
}

func TestAPortIsTakenWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	l := must.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.True(t, listens(l.Addr().(*net.TCPAddr).Port))
	require.NoError(t, l.Close())

	require.GreaterOrEqual(t, must.Got(Port())(t), firstPort)
}

func TestPortsThatAreChosenTogetherAreDifferent(t *testing.T) {
	t.Parallel()
	const many = 1000 // Enough for chance to choose one of them twice.
	s := server(t, "kind", func(o *Options, _ func() *Server) { o.Ports = many })
	require.NoError(t, place([]*Server{s}))
	different := map[int]bool{}
	for i := range many {
		different[s.Port(i)] = true
	}
	require.Len(t, different, many)
}

// Alone, as tests beside it would reserve the port that it gives back.
func TestAPortIsReservedWhileItsServerIsDown(t *testing.T) {
	s := server(t, "kind")
	require.NoError(t, s.Start())
	port := s.Port(0)
	s.Kill()
	require.True(t, listens(port), "nobody listens, and nobody else gets it")
	require.False(t, reserve([]int{port}))
	require.NoError(t, s.Start())
	require.Equal(t, port, s.Port(0))
	require.True(t, ours(port))
	s.Stop()
	require.False(t, ours(port), "it is given back in the end")
}

// Alone for the same reason.
func TestPortsAreReservedTogetherOrNotAtAll(t *testing.T) {
	port := must.Got(Port())(t)
	require.False(t, reserve([]int{port - 1, port}))
	require.False(t, ours(port-1))
}

// ours says whether this process has reserved a port.
func ours(port int) bool {
	reserved.Lock()
	defer reserved.Unlock()
	return reserved.sockets[port] != nil
}

type counted struct{ stops *int }

func (c counted) Stop() { *c.stops++ }

type tests func() int

func (f tests) Run() int { return f() }

func TestASharedServerIsStartedOnceAndEndsWithTheTests(t *testing.T) {
	starts, stops := 0, 0
	s := Shared[counted]{Start: func() (counted, error) { starts++; return counted{&stops}, nil }}
	require.Zero(t, s.Around(tests(func() int { return 0 })).Run())
	require.Zero(t, stops, "nobody asked for it")
	code := s.Around(tests(func() int {
		for range 2 {
			require.NoError(t, must.Err(s.Get()))
		}
		require.Zero(t, stops)
		return 7
	})).Run()
	require.Equal(t, 7, code)
	require.Equal(t, 1, starts)
	require.Equal(t, 1, stops)
}

func TestASharedServerThatCannotBeHadIsTriedOnce(t *testing.T) {
	starts := 0
	s := Shared[counted]{Start: func() (counted, error) { starts++; return counted{}, errors.New("no") }}
	for range 2 {
		require.EqualError(t, must.Err(s.Get()), "no")
	}
	require.Equal(t, 1, starts)
	require.Zero(t, s.Around(tests(func() int { return 0 })).Run()) // And stops nothing.
}
