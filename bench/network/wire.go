// Package network puts a delay between clients and servers of a benchmark: what a network takes that loopback does not.
//
// A wire listens on loopback, dials its server for each connection, and hands on what comes, each way the delay later and
// in order. It has no limit of bytes and loses nothing. What it takes itself, as a process that each message passes, is
// measured with a delay of 0. Connecting is not delayed, closing is. A side that does not read holds up all others of its
// wire, so it is for clients that read or die.
package network

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// A Wire leads to one or more servers.
type Wire struct {
	// Addrs are where it listens, one for each server.
	Addrs []string

	delay     time.Duration
	listeners []net.Listener
	queue     chan parcel
	owned     sync.WaitGroup // the goroutines that accept and read
	done      chan struct{}  // closed when nothing is handed on any more

	mu     sync.Mutex // guards the fields below
	links  map[*link]bool
	closed bool
}

// A link is the two connections of one client.
type link struct {
	client, server net.Conn
	ended          int // sides that have nothing more to say; the deliverer's
}

// A parcel is bytes on their way; none are the end of what comes that way.
type parcel struct {
	due   time.Time
	link  *link
	to    net.Conn
	bytes []byte
}

const (
	// room is how many parcels may be under way.
	room = 1 << 16
	// chunk is how many bytes are read at once.
	chunk = 32 << 10
)

// Open makes a wire to the servers at the addresses.
func Open(delay time.Duration, servers ...string) (*Wire, error) {
	w := &Wire{delay: delay, queue: make(chan parcel, room), done: make(chan struct{}), links: map[*link]bool{}}
	go w.deliver()
	for _, server := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("network: %w", err), w.Close())
		}
		w.listeners, w.Addrs = append(w.listeners, l), append(w.Addrs, l.Addr().String())
		w.owned.Go(func() { w.accept(l, server) })
	}
	return w, nil
}

// Close ends all connections, and returns when nothing of the wire runs any more.
func (w *Wire) Close() error {
	var errs []error
	for _, l := range w.listeners {
		errs = append(errs, l.Close())
	}
	w.mu.Lock()
	w.closed = true
	for l := range w.links {
		l.close()
	}
	w.mu.Unlock()
	w.owned.Wait()
	close(w.queue)
	<-w.done
	return errors.Join(errs...)
}

func (w *Wire) accept(from net.Listener, server string) {
	for {
		client, err := from.Accept()
		if err != nil {
			return // It is closed.
		}
		far, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close() // As a server that is not there.
			continue
		}
		l := &link{client: client, server: far}
		if !w.own(l) {
			l.close()
			return
		}
		w.owned.Go(func() { w.read(l, client, far) })
		w.owned.Go(func() { w.read(l, far, client) })
	}
}

// own keeps a link until its end, unless the wire is closed.
func (w *Wire) own(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.links[l] = true
	}
	return !w.closed
}

func (l *link) close() {
	_ = l.client.Close() // Either side may have closed its own before.
	_ = l.server.Close()
}

// read sends off what comes from one side.
func (w *Wire) read(l *link, from, to net.Conn) {
	for {
		bytes := make([]byte, chunk)
		n, err := from.Read(bytes)
		if n > 0 {
			w.queue <- parcel{time.Now().Add(w.delay), l, to, bytes[:n]}
		}
		if err != nil {
			w.queue <- parcel{time.Now().Add(w.delay), l, to, nil}
			return
		}
	}
}

// deliver hands parcels on when they are due. As all take as long, the one that was sent off first is due first.
func (w *Wire) deliver() {
	defer close(w.done)
	// A thread of its own that the system wakes to the microsecond: timers of Go are as coarse as a millisecond.
	runtime.LockOSThread()
	precise()
	for p := range w.queue {
		until(p.due)
		if p.bytes != nil {
			_, _ = p.to.Write(p.bytes) // A side that is gone ends its own reading.
			continue
		}
		w.end(p)
	}
}

// end tells one side that the other has nothing more to say. Where both have said so, the connection is closed.
func (w *Wire) end(p parcel) {
	if tcp, ok := p.to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // It may be gone.
	}
	if p.link.ended++; p.link.ended == 2 {
		p.link.close()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.links, p.link)
	}
}
