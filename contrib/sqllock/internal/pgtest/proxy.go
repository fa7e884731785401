package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// A Proxy stands between a server and those who connect through it, and may swallow what is sent.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	conns   map[net.Conn]struct{}
	frozen  bool                  // all is held back
	mute    bool                  // replies are
	stalled map[net.Conn]struct{} // what comes from these is
	deaf    bool                  // replies are lost
	thawed  chan struct{}         // closed by Heal
	waiting int                   // what is held back, in pieces
}

// Through returns a proxy and the address that leads through it. It ends with the test.
func Through(t testing.TB, address string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	p := &Proxy{
		listener: listener, target: u.Host, conns: map[net.Conn]struct{}{}, stalled: map[net.Conn]struct{}{},
		thawed: make(chan struct{}),
	}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.work.Go(func() { p.pass(client, server, false) })
		p.work.Go(func() { p.pass(server, client, true) })
	}
}

// pass carries one direction until its end.
func (p *Proxy) pass(from, to net.Conn, replies bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if thawed := p.held(from, replies); thawed != nil {
			<-thawed
		}
		p.mu.Lock()
		lost := replies && p.deaf
		p.mu.Unlock()
		if n > 0 && !lost {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	delete(p.conns, from)
	delete(p.stalled, from)
	p.mu.Unlock()
	_ = from.Close()
	_ = to.Close()
}

// held is what ends the wait of what came from a connection, or nil if it may pass.
func (p *Proxy) held(from net.Conn, reply bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, is := p.stalled[from]; is || p.frozen || p.mute && reply {
		p.waiting++
		return p.thawed
	}
	return nil
}

// Holds reports whether something has been held back, and is yet.
func (p *Proxy) Holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0
}

// Freeze holds back all that is sent, the ends of connections too, until Heal.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// HoldReplies holds back what the server sends, until Heal.
func (p *Proxy) HoldReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Stall holds back all that is sent on the connections that there are, until Heal. New ones work.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		p.stalled[conn] = struct{}{}
	}
}

// LoseReplies swallows what the server sends, until Heal.
func (p *Proxy) LoseReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// Heal ends all that. What was held back is delivered.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.mute, p.deaf, p.waiting = false, false, false, 0
	clear(p.stalled)
	close(p.thawed)
	p.thawed = make(chan struct{})
}

// Cut closes all connections; others may be made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.Heal()
	p.Cut()
	p.work.Wait()
}
