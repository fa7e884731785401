package deploy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/redis/rueidis"
)

// A witness knows which server has said a number to a client last, so whose word a token is.
type witness struct {
	mu sync.Mutex // guards by
	by map[uint64]string
}

// digits is how many the numbers that count have at least. A token begins with the time in µs.
const digits = 15

// listens has the witness hear all that comes in by the connections that o leads to.
func (w *witness) listens(o rueidis.ClientOption) rueidis.ClientOption {
	dial := o.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		return &heard{Conn: conn, address: conn.RemoteAddr().String(), witness: w}, nil
	}
	return o
}

// A way is what clients take for one server, and leads to one after the other.
type way struct {
	mu    sync.Mutex // guards the rest
	to    string
	conns []net.Conn
}

// lead sets where the way leads from now on, and ends what it led to before.
func (w *way) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *way) dial(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn, err := d.DialContext(ctx, "tcp", w.to)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

// of is the server that has said the number last, before now.
func (w *witness) of(number uint64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[number]
}

func (w *witness) hears(number uint64, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[number] = address
}

// heard is a connection with a witness. One goroutine reads it.
type heard struct {
	net.Conn
	address string
	witness *witness
	number  uint64 // that is being read
	digits  int
	before  uint64 // the number that counts and is one space ahead of that, or 0
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	for _, b := range p[:n] {
		if '0' <= b && b <= '9' {
			h.number, h.digits = h.number*10+uint64(b-'0'), h.digits+1
			continue
		}
		h.take(b)
	}
	return n, err
}

// take takes in the number that ends with b, if there is one. A message tells of a grant when it was, and by how much the
// token is above that.
func (h *heard) take(b byte) {
	before := h.before
	h.before = 0
	if h.digits >= digits {
		h.witness.hears(h.number, h.address)
		if b == ' ' {
			h.before = h.number
		}
	} else if h.digits > 0 && before > 0 {
		h.witness.hears(before+h.number, h.address)
	}
	h.number, h.digits = 0, 0
}
