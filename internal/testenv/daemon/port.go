package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
)

// Ports are taken from below the range from which systems take the local ports of connections (32768 and up on Linux,
// 49152 elsewhere), so that a server that was restarted finds its port free again.
const (
	firstPort = 20000
	lastPort  = 32768 // and its neighbour below is the last that is taken
)

// Port returns a loopback port on which nobody listens. Somebody may before the caller does.
func Port() (int, error) {
	port, err := free(listens, nil)
	if err != nil {
		return 0, fmt.Errorf("daemon: %w", err)
	}
	return port, nil
}

// free finds a port that is not taken, nor are those at the distances beside it.
func free(taken func(port int) bool, beside []int) (int, error) {
	last := lastPort
	if len(beside) > 0 {
		last -= beside[len(beside)-1]
	}
	span := last - firstPort
	first := rand.IntN(span)
	for i := range span {
		port := firstPort + (first+i)%span
		if !taken(port) && !slices.ContainsFunc(beside, func(distance int) bool { return taken(port + distance) }) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", firstPort, last)
}

// listens says whether somebody has the port.
func listens(port int) bool {
	l, err := net.Listen("tcp", Loopback(port))
	if err == nil {
		_ = l.Close()
	}
	return err != nil
}
