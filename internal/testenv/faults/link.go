package faults

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

var errRefused = errors.New("faults: connection refused")

// link is one connection between a client and the server.
type link struct {
	faults *Faults
	lanes  [directions]*lane

	// The rest is guarded by faults.mu.
	over    bool
	listens bool                         // somebody has subscribed over it
	look    func(Direction, []byte) bool // of a protocol that has it
	pending []bool                       // for each reply that the server owes, whether it is to be lost
}

// lane is one direction of a link. One goroutine reads all there is into the queue, another passes it on.
type lane struct {
	link     *link
	dir      Direction
	from, to net.Conn
	wake     chan struct{} // has a token after each change that the second goroutine should see

	// The rest is guarded by faults.mu.
	queue  []item
	frozen bool // as all that were there when that was asked for
	holed  bool // something was dropped
	done   bool // the end of the stream has been passed on
}

// item is a message on its way.
type item struct {
	raw []byte
	due time.Time
	end bool // nothing comes after it
	cut bool // a reply to be lost, and its connection with it
}

// connect joins a client's connection and one to the server, unless connections are refused. It owns
// both from then on, in either case.
func (f *Faults) connect(client, server net.Conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusesLocked() {
		client.Close()
		server.Close()
		return errRefused
	}
	l := &link{faults: f}
	if f.wire.Look != nil {
		l.look = f.wire.Look()
	}
	l.lanes[ToServer] = &lane{link: l, dir: ToServer, from: client, to: server}
	l.lanes[ToClient] = &lane{link: l, dir: ToClient, from: server, to: client}
	f.links[l] = struct{}{}
	for _, lane := range l.lanes {
		lane.wake = make(chan struct{}, 1)
		f.work.Go(lane.read)
		f.work.Go(lane.pass)
	}
	return nil
}

// refused returns whether a new connection is to be refused.
func (f *Faults) refused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusesLocked()
}

// refusesLocked is refused under the lock.
func (f *Faults) refusesLocked() bool {
	if f.refuse && !f.closed {
		evidence.Fault(f.t, "connection refused", 1)
	}
	return f.closed || f.refuse
}

// cut closes the connection at both ends. The caller has the lock.
func (l *link) cut() {
	if l.over {
		return
	}
	l.over = true
	delete(l.faults.links, l)
	for _, lane := range l.lanes {
		lane.to.Close()
		lane.queue = nil
		lane.poke()
	}
}

// poke makes the lane look again.
func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// read takes in everything that comes, whatever becomes of it.
func (l *lane) read() {
	r := bufio.NewReader(l.from)
	read := l.link.faults.wire.Read
	if read == nil {
		read = ReadMessage
	}
	for {
		raw, err := read(r)
		l.take(raw, err != nil)
		if err != nil {
			return
		}
	}
}

// take queues a message, and what it means for the replies that are owed.
func (l *lane) take(raw []byte, end bool) {
	f := l.link.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.link.over || l.done {
		return
	}
	due := time.Now().Add(f.delay[l.dir])
	if f.delay[l.dir] > 0 && len(raw) > 0 {
		f.delayed++
	}
	if len(raw) > 0 && !l.lost(raw) {
		it := item{raw: raw, due: due}
		if l.dir == ToClient && raw[0] != '>' && len(l.link.pending) > 0 {
			it.cut, l.link.pending = l.link.pending[0], l.link.pending[1:]
		}
		l.queue = append(l.queue, it)
	}
	if end {
		l.queue = append(l.queue, item{due: due, end: true})
	}
	l.poke()
}

// lost returns whether the message is a push that is to be lost. The caller has the lock.
func (l *lane) lost(raw []byte) bool {
	f := l.link.faults
	if l.dir != ToClient || raw[0] != '>' || f.pushes.left == 0 || !f.pushes.take(Words(raw)) {
		return false
	}
	f.pushes.lost++
	evidence.Fault(f.t, "message lost", 1)
	return true
}

// pass hands on what was read, when its time has come.
func (l *lane) pass() {
	for {
		it, wait, ok := l.next()
		switch {
		case !ok:
			return
		case wait == idle:
			// Without a timer: in a bubble it would set the clock.
			<-l.wake
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-l.wake:
			}
		default:
			if _, err := l.to.Write(it.raw); err != nil {
				// The receiver is gone. Its own lane tells the sender; until then nothing piles up here.
				l.drain()
				return
			}
		}
	}
}

// idle is the wait of a lane that has nothing to hand on.
const idle = time.Duration(-1)

// next returns the next message to hand on, or how long to wait before another look; not ok means that
// the lane is over.
func (l *lane) next() (it item, wait time.Duration, ok bool) {
	f := l.link.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case l.link.over || l.done:
			return item{}, 0, false
		case len(l.queue) == 0 || f.frozen[l.dir] || l.frozen:
			return item{}, idle, true
		}
		it := l.queue[0]
		if wait := time.Until(it.due); wait > 0 {
			return item{}, wait, true
		}
		l.queue = l.queue[1:]
		switch {
		case f.drop[l.dir]:
			l.holed = true
			f.dropped++
		case it.cut:
			f.replies.lost++
			evidence.Fault(f.t, "reply cut", 1)
			l.link.cut()
		case it.end:
			l.finish()
		case l.link.look != nil && !l.link.look(l.dir, it.raw):
			l.link.cut()
		default:
			l.expect(it.raw)
			return it, 0, true
		}
	}
}

// expect notes that the server will owe a reply to a command, and whether that one is to be lost. The
// caller has the lock.
func (l *lane) expect(raw []byte) {
	if l.dir != ToServer || l.link.faults.wire.Read != nil {
		return
	}
	command := Words(raw)
	// Their confirmations are pushes, one for each channel.
	if len(command) == 0 {
		return
	}
	if strings.HasSuffix(strings.ToUpper(command[0]), "SUBSCRIBE") {
		l.link.listens = true
		return
	}
	l.link.pending = append(l.link.pending, l.link.faults.replies.take(command))
}

// finish passes the end of the stream on. With both ends passed on the link is over. The caller has the
// lock.
func (l *lane) finish() {
	l.done = true
	if l.link.lanes[1-l.dir].done {
		l.link.cut()
		return
	}
	if half, ok := l.to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	l.to.Close()
}

// drain ends a lane whose receiver is gone.
func (l *lane) drain() {
	f := l.link.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	l.queue = nil
	l.finish()
}
