package enginetest

import (
	"context"
	"net"
	"sync"
)

// Wires are the connections of a client, which can be cut.
type Wires struct {
	mu   sync.Mutex // guards the fields below
	open []net.Conn
	gone bool
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

// Reset ends the connections that there are.
func (w *Wires) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.open = nil
}
