package sqllock

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// wires are the open connections of a client, those of cancel requests too. A driver that closes one asks the server
// first, for up to 15 s where that does not answer; to cut the wires ends that.
type wires struct {
	mu   sync.Mutex // guards the fields below
	open map[*wire]struct{}
	gone bool
}

type wire struct {
	net.Conn
	wires *wires
}

// over lets a configuration connect by these wires.
func (w *wires) over(config *pgconn.Config) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		own := &wire{conn, w}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.gone {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		w.open[own] = struct{}{}
		return own, nil
	}
}

func (w *wire) Close() error {
	w.wires.mu.Lock()
	delete(w.wires.open, w)
	w.wires.mu.Unlock()
	return w.Conn.Close()
}

// cut closes all that is open, and lets nothing open again.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for own := range w.open {
		_ = own.Conn.Close()
	}
}
