package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// Ports are taken from below the range from which systems take the local ports of connections (32768 and up on Linux,
// 49152 elsewhere), so that a server that was restarted finds its port free again.
const (
	firstPort = 20000
	lastPort  = 32768 // and its neighbour below is the last that is taken
)

// Port returns a loopback port on which nobody listens. It is reserved while this process lives: the next call, also
// in another process, gets another one. So a server that was killed finds its port free again.
func Port() (int, error) {
	port, err := take(nil)
	if err != nil {
		return 0, fmt.Errorf("daemon: %w", err)
	}
	return port, nil
}

// reserved are the ports of this process, each with a UDP socket of the same number: no server uses one, it is seen from
// other processes, and it goes with this one.
var reserved = struct {
	sync.Mutex
	sockets map[int]net.PacketConn
}{sockets: map[int]net.PacketConn{}}

// take finds a port that is free, as are the ports at the distances above it, and reserves them.
func take(distances []int) (int, error) {
	for range placings {
		port, err := free(listens, distances)
		if err != nil {
			return 0, err
		}
		if reserve(append(above(port, distances), port)) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port could be reserved in %d tries", placings)
}

// above returns the ports at the distances above one.
func above(port int, distances []int) []int {
	ports := make([]int, 0, len(distances)+1)
	for _, distance := range distances {
		ports = append(ports, port+distance)
	}
	return ports
}

// reserve reserves all of the ports, or none if somebody else has one.
func reserve(ports []int) bool {
	for i, port := range ports {
		socket, err := net.ListenPacket("udp", Loopback(port))
		if err != nil {
			release(ports[:i])
			return false
		}
		reserved.Lock()
		reserved.sockets[port] = socket
		reserved.Unlock()
	}
	return true
}

// release gives ports back.
func release(ports []int) {
	reserved.Lock()
	defer reserved.Unlock()
	for _, port := range ports {
		if socket := reserved.sockets[port]; socket != nil {
			_ = socket.Close()
			delete(reserved.sockets, port)
		}
	}
}

// free finds a port that is not taken, nor are the ports at the distances above it.
func free(taken func(port int) bool, distances []int) (int, error) {
	last := lastPort
	if len(distances) > 0 {
		last -= distances[len(distances)-1]
	}
	span := last - firstPort
	first := rand.IntN(span)
	for i := range span {
		port := firstPort + (first+i)%span
		if !taken(port) && !slices.ContainsFunc(distances, func(distance int) bool { return taken(port + distance) }) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", firstPort, last)
}

// listens says whether somebody has the port, or has reserved it: then its server is not disturbed by a look.
func listens(port int) bool {
	socket, err := net.ListenPacket("udp", Loopback(port))
	if err != nil {
		return true
	}
	defer func() { _ = socket.Close() }()
	l, err := net.Listen("tcp", Loopback(port))
	if err == nil {
		_ = l.Close()
	}
	return err != nil
}
