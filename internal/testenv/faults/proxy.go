package faults

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
)

// A Wire is a protocol of another engine. Where Read is set, replies and pushes are not told apart:
// [Faults.LoseReplies] and [Faults.LosePushes] are for Redis.
type Wire struct {
	// Read reads the next message. With the error of the end it may return a part of one.
	Read func(*bufio.Reader) ([]byte, error)
	// Look, if not nil, makes for each connection what sees its messages as they are passed on, one at a time. Where that
	// returns false, the connection is cut in place of the message.
	Look func() func(d Direction, message []byte) bool
}

// Raw is an unknown protocol.
var Raw = Wire{Read: func(r *bufio.Reader) ([]byte, error) {
	_, err := r.Peek(1)
	raw := make([]byte, r.Buffered())
	n, _ := r.Read(raw)
	return raw[:n], err
}}

// Proxy listens on a loopback port and passes connections on to a server, with faults.
type Proxy struct {
	*Faults
	listener net.Listener
	target   atomic.Pointer[string]
}

// NewProxy starts a proxy for the Redis at target (host and port). It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return NewProxyOf(t, target, Wire{})
}

// NewProxyOf is NewProxy for a server of another kind.
func NewProxyOf(t testing.TB, target string, wire Wire) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faults: %v", err)
	}
	stop := func() { listener.Close() }
	p := &Proxy{Faults: newFaults(t, stop), listener: listener}
	p.wire = wire
	p.Lead(target)
	p.work.Go(p.accept)
	return p
}

// Lead sets the server of the connections to come.
func (p *Proxy) Lead(target string) { p.target.Store(&target) }

// Addr returns host and port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refused() {
			client.Close()
			continue
		}
		p.work.Go(func() {
			server, err := net.Dial("tcp", *p.target.Load())
			if err != nil {
				client.Close()
				return
			}
			// Refused since: both are closed, which is what the client is to see.
			_ = p.connect(client, server)
		})
	}
}

// Dialer makes connections in memory to whatever dial connects to, with faults.
type Dialer struct {
	*Faults
	dial func() (net.Conn, error)
}

// NewDialer returns a dialer whose connections end with the test: for an embedded server, and for faults
// of one client or of one of its connections. A bubble needs a dialer of its own.
func NewDialer(t testing.TB, dial func() (net.Conn, error)) *Dialer {
	return &Dialer{Faults: newFaults(t, func() {}), dial: dial}
}

// Dial makes a connection.
func (d *Dialer) Dial() (net.Conn, error) {
	if d.refused() {
		return nil, errRefused
	}
	server, err := d.dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	if err := d.connect(far, server); err != nil {
		near.Close()
		return nil, err
	}
	return near, nil
}

// DialCtx is Dial in the shape of rueidis.ClientOption.DialCtxFn.
func (d *Dialer) DialCtx(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return d.Dial()
}
