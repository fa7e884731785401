package waitqueue

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// dialThrough returns a client that the test closes, and the network between it and the server.
func dialThrough(t *testing.T, s *redistest.Embedded) (*Client, *faults.Dialer) {
	t.Helper()
	d := faults.NewDialer(t, s.Dial)
	o := s.Option()
	o.DialCtxFn = d.DialCtx
	return must.Got(Dial(Options{Redis: o, Name: "test"}))(t), d
}

// A parting is a client that closes without a limit of its own, while its server is away.
type parting struct {
	*Client
	*redistest.Embedded
	net *faults.Dialer
}

const partingLease = 2 * time.Second

func (p parting) queue(name string) Queue {
	return p.Queue(lua.Fairlock, name, Terms{Lease: partingLease})
}

// tries fails to get a name.
func (p parting) tries(t *testing.T, call func(context.Context) (*lease.Lease, error)) {
	require.Error(t, must.Err(call(must.Within(t, 100*time.Millisecond))))
}

// What a server can still need is over with the lease, or with the last request that may run late and its lease. So is
// Close, which says what was not confirmed by then.
func TestCloseWithoutALimitEndsWithWhatIsOutstanding(t *testing.T) {
	kill := func(_ *testing.T, p parting) { p.Kill() }
	drop := func(_ *testing.T, p parting) { p.net.Drop() }
	holds := func(t *testing.T, p parting) { require.NoError(t, must.Err(p.queue("held").Acquire(t.Context()))) }
	none := func(*testing.T, parting) {}
	for _, x := range []struct {
		what          string
		before, fault func(*testing.T, parting)
		after         func(*testing.T, parting)
		longest       time.Duration
		complaint     string // none if it is empty
	}{
		{"nothing was ever asked for", none, kill, none, 0, ""},
		{"a hold", holds, kill, none, partingLease, "Redis did not confirm 1 release(s)"},
		{"a hold, with a server that says nothing", holds, drop, none, partingLease, "Redis did not confirm 1 release(s)"},
		{"a hold that was lost long ago", holds, kill, func(*testing.T, parting) { synctime.Pass(time.Minute) }, 0, ""},
		{"a hold that was lost just now", holds, kill,
			func(*testing.T, parting) { synctime.Pass(partingLease - core.Margin(partingLease)/2) }, partingLease, ""},
		{"a hold whose renewals nobody answers", holds, drop,
			func(*testing.T, parting) { synctime.Pass(partingLease / 2) }, conn.AttemptTime + 2*partingLease, "Redis did not confirm 1 release(s)"},
		{"a hold, and a call of Lock that nobody answered", holds, drop, func(t *testing.T, p parting) {
			p.tries(t, p.queue("other").Acquire)
		}, conn.AttemptTime + partingLease, "Redis did not confirm 1 release(s) and 1 abandoned call(s)"},
		{"a call of Lock that found its connection broken", none, kill, func(t *testing.T, p parting) {
			p.tries(t, p.queue("name").Acquire)
		}, conn.AttemptTime + partingLease, "and 1 abandoned call(s), which end with their leases: "},
		{"calls of Lock and TryLock that found no connection", none, kill, func(t *testing.T, p parting) {
			p.tries(t, p.queue("name").Acquire)
			synctime.Pass(conn.AttemptTime + partingLease)
			p.tries(t, p.queue("name").Acquire)
			require.Error(t, must.Err(p.queue("name").Try(t.Context())))
		}, 0, ""},
		{"a call of TryLock that nobody answered", none, drop, func(t *testing.T, p parting) {
			p.tries(t, p.queue("name").Try)
		}, conn.AttemptTime + partingLease, "and 1 abandoned call(s), which end with their leases: "},
		{"a hold whose end is refused", holds, func(_ *testing.T, p parting) { p.Fail("NOPERM no more") }, none, 0, "NOPERM"},
		{"a server that is back before the lease is over", holds, kill, func(t *testing.T, p parting) {
			p.tries(t, p.queue("other").Acquire)
			time.AfterFunc(time.Second, p.Restart)
		}, conn.AttemptTime + partingLease, ""},
		{"a call that waits", func(t *testing.T, p parting) {
			other := must.Got(Dial(Options{Redis: p.Option(), Name: "other"}))(t)
			t.Cleanup(func() { _ = other.Shutdown(context.Background()) })
			require.NoError(t, must.Err(queueOf(other, "name").Acquire(t.Context())))
			_ = acquire(t.Context(), p.queue("name"))
			synctime.Pass(time.Second)
		}, kill, none, conn.AttemptTime + partingLease, "and 1 abandoned call(s), which end with their leases: "},
	} {
		t.Run(x.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				c, d := dialThrough(t, s)
				p := parting{c, s, d}
				x.before(t, p)
				x.fault(t, p)
				x.after(t, p)
				begun := time.Now()
				err := c.Shutdown(context.Background())
				require.LessOrEqual(t, time.Since(begun), x.longest)
				if x.complaint == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, x.complaint)
					require.Equal(t, x.complaint != "NOPERM", errors.Is(err, core.ErrNoAnswer))
				}
			})
		})
	}
}

// What is deferred must end in the time that a service has to stop; who can wait for longer says so by Shutdown.
func TestCloseWaitsForASilentServerForFiveSeconds(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, d := dialThrough(t, s)
		<-acquire(t.Context(), queueOf(c, "name"))
		d.Freeze()
		begun := time.Now()
		require.ErrorIs(t, c.Close(), context.DeadlineExceeded)
		require.Equal(t, calls.CloseTime, time.Since(begun))
		d.Heal()
	})
}

// A handler of signals closes, and so does the end of main: the process must not end before the holds are given back.
func TestASecondCloseWaitsForTheFirst(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, d := dialThrough(t, s)
		require.NoError(t, must.Err(queueOf(c, "name").Acquire(t.Context())))
		d.Delay(100 * time.Millisecond)
		go func() { _ = c.Shutdown(context.Background()) }()
		synctest.Wait()
		begun := time.Now()
		require.ErrorIs(t, c.Shutdown(must.Within(t, 50*time.Millisecond)), context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, time.Since(begun), "it has a limit of its own")
		require.NoError(t, c.Shutdown(t.Context()))
		require.GreaterOrEqual(t, time.Since(begun), 100*time.Millisecond)
		again := must.Got(Dial(Options{Redis: s.Option(), Name: "other"}))(t)
		defer func() { _ = again.Shutdown(context.Background()) }()
		require.NoError(t, must.Err(queueOf(again, "name").Try(t.Context())), "it is given back")
	})
}

// The connections of a caller cannot be cut: what waits for an answer on them is left.
func TestCloseDoesNotWaitForAnswersOnTheConnectionsOfItsCaller(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		o.ConnWriteTimeout = time.Hour
		o.PipelineMultiplex = -1 // One connection, which is there: Close waits for one that is being made.
		rc := must.Got(rueidis.NewClient(o))(t)
		defer rc.Close()
		defer d.Cut()
		for _, x := range []struct {
			given time.Duration
			want  error
		}{{300 * time.Millisecond, context.DeadlineExceeded}, {time.Minute, core.ErrNoAnswer}} {
			c := must.Got(New(rc, Options{Name: "guest"}))(t)
			require.NoError(t, must.Err(c.Queue(lua.Fairlock, "name", Terms{Lease: partingLease}).Acquire(t.Context())))
			d.Drop()
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), x.given)
			require.ErrorIs(t, c.Shutdown(ctx), x.want)
			cancel()
			require.LessOrEqual(t, time.Since(begun), min(x.given, partingLease))
			d.Heal()
			synctime.Pass(partingLease)
		}
	})
}

// dialBy returns a client that the test closes, whose connections go through d for as long as instead has nothing else to do.
func dialBy(t *testing.T, d *faults.Dialer, s *redistest.Embedded, instead *atomic.Pointer[func(context.Context) error]) *Client {
	t.Helper()
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, address string, n *net.Dialer, c *tls.Config) (net.Conn, error) {
		if f := instead.Load(); f != nil {
			return nil, (*f)(ctx)
		}
		return d.DialCtx(ctx, address, n, c)
	}
	return must.Got(Dial(Options{Redis: o, Name: "test"}))(t)
}

// Where the network is gone a connection is made for as long as its time-out.
func TestCloseEndsConnectionsThatAreBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 50 * time.Millisecond
		s := redistest.Bubble(t)
		d := faults.NewDialer(t, s.Dial)
		var instead atomic.Pointer[func(context.Context) error]
		c := dialBy(t, d, s, &instead)
		require.NoError(t, must.Err(queueOf(c, "held").Acquire(t.Context())))
		synctime.Pass(time.Second) // It listens.
		gone := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return errors.New("i/o timeout")
			}
		}
		instead.Store(&gone)
		d.Cut()
		call := make(chan error, 1)
		go func() {
			_, err := queueOf(c, "name").Acquire(context.Background())
			call <- err
		}()
		synctime.Pass(time.Second)
		begun := time.Now()
		require.ErrorIs(t, c.Shutdown(must.Within(t, patience)), context.DeadlineExceeded)
		require.Equal(t, patience, time.Since(begun))
		require.ErrorIs(t, <-call, lease.ErrClosed)
	})
}

// A subscription without an answer is waited for no longer than any other request.
func TestCloseDoesNotWaitForASubscription(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, d := dialThrough(t, s)
		require.NoError(t, must.Err(queueOf(c, "held").Acquire(t.Context())))
		synctime.Pass(time.Second) // It listens.
		d.Freeze()
		subscribe(queueOf(c, "name"))
		synctest.Wait()
		const patience = 50 * time.Millisecond
		begun := time.Now()
		require.ErrorIs(t, c.Shutdown(must.Within(t, patience)), context.DeadlineExceeded)
		require.Equal(t, patience, time.Since(begun))
	})
}

// It is called on goroutines of the client too.
func TestAPanicOfTheFunctionThatDialsIsAnError(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		var instead atomic.Pointer[func(context.Context) error]
		c := dialBy(t, d, s, &instead)
		defer func() { _ = c.Shutdown(context.Background()) }()
		l := must.Got(queueOf(c, "held").Acquire(t.Context()))(t)
		synctime.Pass(time.Second) // It listens.
		broken := func(context.Context) error { panic("dialer") }
		instead.Store(&broken)
		d.Cut()
		require.ErrorContains(t, must.Err(queueOf(c, "name").Try(t.Context())), "the function that dials panicked: dialer")
		instead.Store(nil)
		require.NoError(t, l.Release(t.Context()))
	})
}

// The reply to an ask comes when its client closes, and says that the name is held. Its release goes after another
// hold's, whose reply is awaited.
func TestCloseWaitsForTheEndOfWhatAnAnswerHasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way = 40 * time.Millisecond
		s := redistest.Bubble(t)
		c, d := dialThrough(t, s)
		l := must.Got(queueOf(c, "one").Acquire(t.Context()))(t)
		d.Delay(way)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		given := acquire(ctx, queueOf(c, "two")) // The server grants it a way later.
		synctime.Pass(way / 2)
		l.Unlock() // Its end is sent at once.
		synctime.Pass(way)
		require.NoError(t, c.Shutdown(t.Context()))
		require.Nil(t, <-given)
		l = must.Got(queueOf(dial(t, s), "two").Try(t.Context()))(t)
		require.NoError(t, l.Release(t.Context()))
	})
}
