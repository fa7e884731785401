package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range from which systems take the local ports of connections (32768 and up on Linux,
// 49152 elsewhere), so that a server that was restarted finds its port free again.
const (
	firstPort = 20000
	lastPort  = 32768 // and its neighbour below is the last that is taken
)

// Port returns a loopback port on which nobody listens, and keeps it until release is called from whoever takes ports
// here, in other processes too: also while the caller does not listen. Somebody else may listen before the caller does.
func Port() (port int, release func(), err error) {
	port, release, err = free(claim, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("daemon: %w", err)
	}
	return port, release, nil
}

// free finds a port that can be claimed together with those at the distances beside it.
func free(claim func(port int) (release func(), ok bool), beside []int) (port int, release func(), err error) {
	last := lastPort
	if len(beside) > 0 {
		last -= beside[len(beside)-1]
	}
	span := last - firstPort
	first := rand.IntN(span)
	for i := range span {
		port := firstPort + (first+i)%span
		var claims releases
		claimed := func(distance int) bool {
			release, ok := claim(port + distance)
			if ok {
				claims = append(claims, release)
			}
			return ok
		}
		all := claimed(0)
		for _, distance := range beside {
			all = all && claimed(distance)
		}
		if all {
			return port, claims.all, nil
		}
		claims.all()
	}
	return 0, nil, fmt.Errorf("no free port from %d to %d", firstPort, last)
}

// releases give back ports.
type releases []func()

func (r releases) all() {
	for _, release := range r {
		release()
	}
}

// claim takes a port, unless somebody has claimed it or listens.
func claim(port int) (release func(), ok bool) {
	release, ok = lock(port)
	if ok && listens(port) {
		release()
		return nil, false
	}
	return release, ok
}

// listens says whether somebody has the port.
func listens(port int) bool {
	l, err := net.Listen("tcp", Loopback(port))
	if err == nil {
		_ = l.Close()
	}
	return err != nil
}
