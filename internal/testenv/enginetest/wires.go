package enginetest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Wires are the connections of a client, which can be cut, or lose all that is sent.
type Wires struct {
	silent  atomic.Bool
	reading atomic.Int64

	mu   sync.Mutex // guards the fields below
	open []net.Conn
	gone bool
}

// A wire is one of them.
type wire struct {
	net.Conn
	wires  *Wires
	closed atomic.Bool
}

func (w *wire) Read(p []byte) (int, error) {
	w.wires.reading.Add(1)
	defer w.wires.reading.Add(-1)
	for {
		n, err := w.Conn.Read(p)
		if err != nil || !w.wires.silent.Load() {
			return n, err
		}
	}
}

func (w *wire) Write(p []byte) (int, error) {
	if w.wires.silent.Load() && !w.closed.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

// Connect makes one.
func (w *Wires) Connect(ctx context.Context, network, address string) (net.Conn, error) {
	return w.Over(func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
}

// Over makes one by a dial of the caller's.
func (w *Wires) Over(dial func() (net.Conn, error)) (net.Conn, error) {
	w.mu.Lock()
	gone := w.gone
	w.mu.Unlock()
	if gone {
		return nil, net.ErrClosed
	}
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	conn = &wire{Conn: conn, wires: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	w.open = append(w.open, conn)
	return conn, nil
}

// Cut ends the connections for good.
func (w *Wires) Cut() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.Reset()
}

// Silence loses all that is sent from now on, in both directions. Connections stay, and new ones can be made.
func (w *Wires) Silence() { w.silent.Store(true) }

// Reading is on how many of them somebody reads.
func (w *Wires) Reading() int { return int(w.reading.Load()) }

// Reset ends the connections that there are.
func (w *Wires) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.open = nil
}
