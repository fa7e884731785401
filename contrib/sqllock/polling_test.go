package sqllock_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// cancels counts the requests to cancel among what is sent.
type cancels struct {
	net.Conn
	seen *atomic.Int64
}

func (c cancels) Write(p []byte) (int, error) {
	const code = 80877102
	if len(p) >= 8 && binary.BigEndian.Uint32(p[4:]) == code {
		c.seen.Add(1)
	}
	return c.Conn.Write(p)
}

// A poll that is under way is answered, though its call has left: a pooler need not cancel it for that.
func TestACallThatLeavesCancelsNoPoll(t *testing.T) {
	t.Parallel()
	url := schema(t)
	p, through := pgtest.Through(t, url)
	var seen atomic.Int64
	nowhere, err := pgx.ParseConfig("postgres://postgres@127.0.0.1:1/postgres")
	require.NoError(t, err)
	c := dial(t, through, func(o *sqllock.Options) {
		o.Direct = nowhere // So it polls.
		o.Config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return cancels{conn, &seen}, err
		}
	})
	other := sqllock.NewLeased(dial(t, url), "a")
	l := hold(t, other)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := kit.Lock(ctx, sqllock.NewLeased(c, "a").Lock)
	queued(t, other, 1)
	p.Freeze(faults.ToClient)
	kit.Eventually(t, "the answer to a poll", p.Holds)
	cancel()
	require.ErrorIs(t, call.Err(t), context.Canceled)
	p.Heal()
	kit.Release(t, l)
	kit.Release(t, hold(t, sqllock.NewLeased(c, "a")))
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, seen.Load())
}
