package chaos

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// every does something so many times, with a pause after each.
func every(pause time.Duration, times int, do func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range times {
		do()
		<-tick.C
	}
}

func TestS6SubscribersAreKilled(t *testing.T) {
	r := begin(t, "S6")
	holder, waiter := fairlock.New(r.dial(), "ears"), fairlock.New(r.dial(), "ears")
	spans := make([]span, either(11, 101))
	for i := range spans {
		l := granted(t, holder)
		c := queued(t, waiter, 1)
		require.Positive(t, r.server.Int("CLIENT", "KILL", "TYPE", "pubsub"))
		since := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		spans[i] = span{since, time.Now()}
		kit.Release(t, l)
	}
	r.measured(killedEars, spans)
	n, times := r.load.count(), either(20, 300)
	every(100*time.Millisecond, times, func() { r.server.Int("CLIENT", "KILL", "TYPE", "pubsub") })
	require.Greater(t, r.load.count()-n, times, "no progress while subscribers were killed")
	r.everybody()
	r.finish()
}

func TestS7ConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	r := begin(t, "S7")
	n, times := r.load.count(), either(20, 300)
	every(100*time.Millisecond, times, func() { r.server.Int("CLIENT", "KILL", "TYPE", "normal") })
	require.Greater(t, r.load.count()-n, times, "no progress while connections were killed")
	r.everybody()
	r.finish()
}

func TestS8ASubscriberThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	r := begin(t, "S8", func(o *options) {
		o.server = []redistest.Option{redistest.WithArgs("--client-output-buffer-limit", "pubsub", "262144", "65536", "2")}
	})
	const waiters = 10
	holder, waiter := fairlock.New(r.dial(), "full"), fairlock.New(r.dial(), "full")
	l := granted(t, holder)
	paused := r.crowd(crowd.Plan{Names: []string{"full"}, Clients: 1, Waiters: waiters, Lease: 3 * time.Second})
	kit.Waiting(t, waiters, holder.Inspect)
	next := queued(t, waiter, waiters+1)
	info, err := holder.Inspect(t.Context())
	require.NoError(t, err)
	channel := keyOf("full") + ":wake:" + info.Queue[0].Client
	paused.Stop()
	noise := strings.Repeat("x", 64<<10)
	sent := 0
	kit.Eventually(t, "the subscriber to be cut off", func() bool {
		sent++
		return r.server.Int("PUBLISH", channel, noise) == 0
	})
	t.Logf("cut off after %d messages of 64 kB", sent)
	kit.Release(t, l)
	since := time.Now()
	l = next.Value(t) // The one that is not heard is passed over.
	require.Less(t, time.Since(since), time.Second)
	paused.Cont()
	kit.Release(t, l)
	paused.Await(crowd.Held, waiters, kit.Patience)
	for _, e := range paused.Await(crowd.Released, waiters, kit.Patience) {
		require.Empty(t, e.Error)
	}
	kit.Free(t, holder)
	r.everybody()
	r.finish()
}

// refusedConnection is what a client sees of one: the server says why and closes, which may overtake the text.
var refusedConnection = "max number of clients|EOF|connection reset|broken pipe"

func TestS21ConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	// A worker whose connection breaks now gets no other.
	r := begin(t, "S21", func(o *options) { o.outcomes = []string{"expired", "unconfirmed"} })
	p := kit.Proxy(t, r.server)
	m := fairlock.New(r.dial(kit.Through(p)), "full")
	l := granted(t, fairlock.New(r.dial(), "full"))
	inside := newInside(t, r.server)
	inside.do("CONFIG", "SET", "maxclients", "1") // Those who are there stay.
	p.Cut()
	err := lockFor(t, m, 2*time.Second)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lease.ErrBusy)
	require.Regexp(t, refusedConnection, err.Error())
	rejected := inside.info("stats", "rejected_connections")
	require.Positive(t, rejected)
	require.Less(t, rejected, int64(100), "connections are retried without a pause")
	_, err = headwaiter.Dial(headwaiter.Options{Redis: r.server.Option()})
	require.Error(t, err)
	require.Regexp(t, refusedConnection, err.Error())
	c := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "the call to be refused", func() bool { return inside.info("stats", "rejected_connections") > rejected+2 })
	inside.do("CONFIG", "SET", "maxclients", "10000")
	kit.Waiting(t, 1, m.Inspect)
	kit.Release(t, l)
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}

// inside is a connection that was there before the server had no more to give.
type inside struct {
	t  testing.TB
	rc rueidis.Client
}

func newInside(t testing.TB, s *redistest.Server) inside {
	t.Helper()
	o := s.Option()
	o.PipelineMultiplex = -1
	rc, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(rc.Close)
	return inside{t, rc}
}

func (i inside) do(args ...string) rueidis.RedisResult {
	i.t.Helper()
	res := i.rc.Do(context.Background(), i.rc.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	require.NoError(i.t, res.Error())
	return res
}

// info reads one number of INFO.
func (i inside) info(section, field string) int64 {
	i.t.Helper()
	text, err := i.do("INFO", section).ToString()
	require.NoError(i.t, err)
	return infoField(i.t, text, field)
}

func infoField(t testing.TB, text, field string) int64 {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+field+":")
	require.True(t, found, "%s in %s", field, text)
	value, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseInt(value, 10, 64)
	require.NoError(t, err)
	return n
}

// lockFor tries to lock m for some time, in vain, and returns why it ended. It must end in time.
func lockFor(t testing.TB, m *fairlock.Mutex, given time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	since := time.Now()
	_, err := m.Lock(ctx)
	require.Error(t, err)
	require.Less(t, time.Since(since), given+2*time.Second, "a call outlasted its context")
	return err
}

func TestS25IdleConnectionsAreCut(t *testing.T) {
	t.Parallel()
	r := begin(t, "S25")
	r.server.Do("CONFIG", "SET", "timeout", "1")
	p := kit.Proxy(t, r.server)
	m := fairlock.New(r.dial(kit.Through(p)), "idle")
	for i := range either(2, 10) {
		l := granted(t, m)
		if i%2 == 0 { // The server cuts what is idle for a second or two.
			for _, conn := range idleConnections(t, r.server, 3) {
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
				_, err := conn.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
				conn.Close()
			}
		} else { // Something in between does.
			p.Cut()
		}
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		since := time.Now()
		kit.Release(t, granted(t, m))
		require.Less(t, time.Since(since), time.Second)
	}
	r.everybody()
	r.finish()
}

// idleConnections makes connections that say nothing.
func idleConnections(t testing.TB, s *redistest.Server, n int) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for range n {
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	return conns
}
