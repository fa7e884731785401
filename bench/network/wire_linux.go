package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Wire leads to one or more servers. One thread does all of it by calls of the system: to schedule goroutines would take
// time in each passage.
type Wire struct {
	// Addrs are where it listens, one for each server.
	Addrs []string

	delay   time.Duration
	epoll   int                         // waits for all sockets, and for stop
	stop    int                         // can be read once the wire is to end
	servers map[int]*unix.SockaddrInet4 // by the socket that listens for their clients
	sides   map[int]*side               // by their sockets
	queue   []parcel                    // on their way, in the order in which they came
	done    chan struct{}               // closed when the thread has ended
}

// A side is one of the two connections of a client: its own, or the one with the server.
type side struct {
	socket int
	far    *side
	ended  bool // The far side has been told that this one has nothing more to say.
}

// A parcel is bytes on their way; none are the end of what comes that way.
type parcel struct {
	due   time.Time
	from  *side
	bytes []byte
}

const (
	// chunk is how many bytes are read at once.
	chunk = 32 << 10
	// early is how long before a parcel is due the thread wakes, and looks at the clock: about as long as waking takes.
	early = 25 * time.Microsecond
	// again is when a side is written to again that could not take all.
	again = 100 * time.Microsecond
)

// Open makes a wire to the servers at the addresses.
func Open(delay time.Duration, servers ...string) (*Wire, error) {
	epoll, failed := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	w := &Wire{
		delay: delay, epoll: epoll, stop: stop, done: make(chan struct{}),
		servers: map[int]*unix.SockaddrInet4{}, sides: map[int]*side{},
	}
	err = errors.Join(failed, err, w.watch(stop))
	for _, server := range servers {
		err = errors.Join(err, w.listen(server))
	}
	if err != nil {
		w.closeAll()
		return nil, fmt.Errorf("network: %w", err)
	}
	go w.run()
	return w, nil
}

// Close ends all connections, and returns when nothing of the wire runs any more.
func (w *Wire) Close() error {
	_, err := unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	return err
}

func (w *Wire) watch(socket int) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(socket)})
}

func (w *Wire) listen(server string) error {
	far, err := net.ResolveTCPAddr("tcp4", server)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.servers[socket] = &unix.SockaddrInet4{Port: far.Port, Addr: far.AddrPort().Addr().Unmap().As4()}
	err = errors.Join(unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(socket, unix.SOMAXCONN), w.watch(socket))
	name, _ := unix.Getsockname(socket)
	if at, ok := name.(*unix.SockaddrInet4); ok {
		w.Addrs = append(w.Addrs, fmt.Sprintf("127.0.0.1:%d", at.Port))
	}
	return err
}

// run is the thread.
func (w *Wire) run() {
	defer close(w.done)
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // A thread may be woken 50 µs late otherwise.
	events, buffer, words := make([]unix.EpollEvent, 64), make([]byte, chunk), make([]byte, 64)
	for {
		n := w.wait(events)
		for _, e := range events[:n] {
			switch socket := int(e.Fd); {
			case socket == w.stop:
				w.closeAll()
				return
			case w.servers[socket] != nil:
				w.accept(socket)
			default:
				w.read(w.sides[socket], buffer, words)
			}
		}
		w.deliver()
	}
}

// wait returns what has come, once something has or the next parcel is due.
func (w *Wire) wait(events []unix.EpollEvent) int {
	var timeout *unix.Timespec
	if len(w.queue) > 0 {
		t := unix.NsecToTimespec(int64(max(time.Until(w.queue[0].due)-early, 0)))
		timeout = &t
	}
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(w.epoll), Events: unix.POLLIN}}, timeout, nil) // A signal does no harm.
	n, _ := unix.EpollWait(w.epoll, events, 0)
	return max(n, 0)
}

// accept connects a client with its server.
func (w *Wire) accept(listener int) {
	client, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return // It has gone.
	}
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(server, w.servers[listener])
	}
	a, b := &side{socket: client}, &side{socket: server}
	a.far, b.far = b, a
	for _, s := range []*side{a, b} {
		w.sides[s.socket] = s
		if err == nil {
			err = errors.Join(unix.SetNonblock(s.socket, true), w.watch(s.socket),
				unix.SetsockoptInt(s.socket, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
				unix.SetsockoptInt(s.socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW, 1))
		}
	}
	if err != nil {
		w.close(a) // As a server that is not there.
	}
}

func (w *Wire) close(s *side) {
	for _, s := range []*side{s, s.far} {
		_ = unix.Close(s.socket)
		delete(w.sides, s.socket)
	}
}

// read sends off what comes from one side. Its time begins when the system had it, not when this thread came to it.
func (w *Wire) read(from *side, buffer, words []byte) {
	n, told, _, _, err := unix.Recvmsg(from.socket, buffer, words, 0)
	now := time.Now()
	due := now.Add(w.delay)
	switch {
	case n > 0:
		if told >= unix.CmsgSpace(16) {
			at, word := words[unix.CmsgLen(0):], binary.NativeEndian.Uint64
			due = due.Add(-max(now.Sub(time.Unix(int64(word(at)), int64(word(at[8:])))), 0))
		}
		w.queue = append(w.queue, parcel{due, from, bytes.Clone(buffer[:n])})
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, from.socket, nil)
		w.queue = append(w.queue, parcel{due, from, nil})
	}
}

// deliver hands on what is due.
func (w *Wire) deliver() {
	for len(w.queue) > 0 {
		p := &w.queue[0]
		now := time.Now()
		if now.Before(p.due) {
			return
		}
		if p.bytes == nil {
			w.end(p.from)
		} else if n, err := unix.Write(p.from.far.socket, p.bytes); n < len(p.bytes) && (err == nil || errors.Is(err, unix.EAGAIN)) {
			p.bytes, p.due = p.bytes[max(n, 0):], now.Add(again)
			return
		} // A side that is gone ends its own reading.
		w.queue = w.queue[1:]
	}
}

// end tells the far side that this one has nothing more to say. Where both have said so, the connections are closed.
func (w *Wire) end(s *side) {
	_ = unix.Shutdown(s.far.socket, unix.SHUT_WR) // It may be gone.
	if s.ended = true; s.far.ended {
		w.close(s)
	}
}

func (w *Wire) closeAll() {
	for socket := range w.sides {
		_ = unix.Close(socket)
	}
	for socket := range w.servers {
		_ = unix.Close(socket)
	}
	_, _ = unix.Close(w.epoll), unix.Close(w.stop)
}
