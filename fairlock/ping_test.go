package fairlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// A pinged is a connection whose PINGs are counted.
type pinged struct {
	net.Conn
	pings *atomic.Int64
}

func (p pinged) Write(b []byte) (int, error) {
	p.pings.Add(int64(bytes.Count(b, []byte("PING"))))
	return p.Conn.Write(b)
}

// What an idle client costs Redis grows with the number of clients, so it is little: a PING in ten seconds for each
// connection that says nothing else.
func TestIdleConnectionsAreSeldomPinged(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var pings, dialed atomic.Int64
		c := kit.Dial(t, s, func(o *headwaiter.Options) {
			o.Redis.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				dialed.Add(1)
				conn, err := s.Dial()
				return pinged{conn, &pings}, err
			}
		})
		l := hold(t, fairlock.New(c, kit.Name(t)))
		synctime.Pass(time.Minute)
		require.GreaterOrEqual(t, dialed.Load(), int64(3), "commands, renewals, subscriptions")
		require.LessOrEqual(t, pings.Load(), 6*dialed.Load())
		require.Positive(t, pings.Load(), "a proxy may live where the server is gone")
		kit.Release(t, l)
	})
}
