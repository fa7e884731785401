package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A relay is an address that leads to a server, which may become another one, over a line that may be thin.
type relay struct {
	listener net.Listener
	target   atomic.Pointer[string]
	rate     int // bytes a second each way, of each connection; 0 if that is no matter
	work     sync.WaitGroup
}

func newRelay(t testing.TB, target string, rate int) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, rate: rate}
	r.lead(target)
	r.work.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.work.Wait()
	})
	return r
}

// lead sets where new connections lead.
func (r *relay) lead(target string) { r.target.Store(&target) }

func (r *relay) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", *r.target.Load())
		if err != nil {
			near.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			r.work.Go(func() { r.copy(pair[0], pair[1]) })
		}
	}
}

// copy passes on what comes from one side until either side ends.
func (r *relay) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		if r.rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(r.rate)) // A thin line.
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
