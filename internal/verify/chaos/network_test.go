package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// through makes the load go through a proxy.
func through(o *options) { o.through = true }

func TestN1WakeUpsAreLost(t *testing.T) {
	t.Parallel()
	r := begin(t, "N1", through)
	p := kit.Proxy(t, r.server)
	holder := fairlock.New(r.dial(), "unheard")
	spans := make([]span, either(4, 20))
	for i := range spans {
		client := r.dial(kit.Through(p)) // A new one: it looks only because it has to.
		waiter := fairlock.New(client, "unheard")
		l := granted(t, holder)
		c := queued(t, waiter, 1)
		// The second look comes soon, for what may have been missed before it heard. From then on they are rare.
		kit.Eventually(t, "the second look", func() bool { return client.Stats().Checks >= 2 })
		kit.Waiting(t, 1, waiter.Inspect) // Behind that look, on the same connection.
		p.LosePushes(1, kit.Notices(lua.MessageGrant))
		since := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		spans[i] = span{since, time.Now()}
		_, lost := p.Lost()
		require.Equal(t, i+1, lost)
		kit.Eventually(t, "the miss to be counted", func() bool {
			s := client.Stats() // The client finds it out by itself, or is told that it let a grant lapse.
			return s.Missed+s.Suspected > 0
		})
		kit.Release(t, l)
		for messages := client.Stats().Messages; client.Stats().Messages < messages+2; { // It has to hear again.
			l := granted(t, holder)
			c := queued(t, waiter, 1)
			kit.Release(t, l)
			kit.Release(t, c.Value(t))
		}
		require.NoError(t, client.Close(t.Context()))
	}
	r.measured(lostMessage, spans)
	const lost = 10
	r.proxy.LosePushes(lost, func(push []string) bool {
		return kit.Notices(lua.MessageGrant)(push) && rand.IntN(20) == 0
	})
	kit.Eventually(t, "messages of the load to be lost", func() bool {
		_, n := r.proxy.Lost()
		return n >= lost
	})
	r.everybody()
	r.finish()
}

// Every message is published once more, at once and some time later, and so is nonsense. Who may publish can
// forge a grant: it is uncovered by the first renewal.
func TestN2MessagesAreDoubledReplayedAndForged(t *testing.T) {
	t.Parallel()
	r := begin(t, "N2")
	heard, stop := monitor(t, r.server.Addr(), "headwaiter:*")
	inside := newInside(t, r.server)
	mine := map[[2]string]int{} // what was published here and not heard yet
	say := func(m [2]string) {
		mine[m]++
		inside.do("PUBLISH", m[0], m[1])
	}
	doubled := 0
	var old [][2]string
	for end := time.Now().Add(time.Duration(either(2, 30)) * time.Second); time.Now().Before(end); {
		select {
		case m := <-heard:
			if mine[m] > 0 {
				mine[m]--
				continue
			}
			say(m)
			if old = append(old, m); len(old) > 50 {
				say(old[0])
				old = old[1:]
			}
			say([2]string{m[0], "G nonsense 1 2 3"})
			doubled++
		case <-time.After(time.Second):
		}
	}
	stop()
	t.Logf("%d messages doubled", doubled)
	evidence.Fault(t, "message doubled", doubled)
	require.Greater(t, doubled, 20)

	const lasts = 2 * time.Second
	holder := fairlock.New(r.dial(), "forged", headwaiter.WithLease(lasts))
	client := r.dial()
	waiter := fairlock.New(client, "forged", headwaiter.WithLease(lasts))
	for range either(1, 10) {
		l := granted(t, holder)
		c := queued(t, waiter, 1)
		info, err := holder.Inspect(t.Context())
		require.NoError(t, err)
		at := kit.ServerTime(r.server)
		r.server.Int("PUBLISH", keyOf("forged")+":wake:"+client.ID(),
			fmt.Sprintf("G %s %d %d %d", info.Queue[0].Ticket, at, int64(l.Token())+1-at, lasts.Milliseconds()))
		forged := c.Value(t)
		require.ErrorIs(t, kit.Lost(t, forged), lease.ErrLost) // By its first renewal.
		require.NoError(t, l.Context().Err())
		require.ErrorIs(t, forged.Release(t.Context()), lease.ErrLost)
		info, err = holder.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, l.Token(), info.Token, "a forged grant has ended a hold")
		kit.Release(t, l)
	}
	kit.Free(t, holder)
	r.everybody()
	r.finish()
}

// The message of a grant comes before the reply to the request that queued the ticket: they take different
// ways.
func TestN3TheMessageOvertakesTheReply(t *testing.T) {
	t.Parallel()
	r := begin(t, "N3")
	slow := kit.Proxy(t, r.server)
	var dials atomic.Int64
	client := r.dial(func(o *headwaiter.Options) {
		o.Redis.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dials.Add(1) == 1 { // The connection for commands is the first that a client makes.
				address = slow.Addr()
			}
			return d.DialContext(ctx, "tcp", address)
		}
	})
	holder, waiter := fairlock.New(r.dial(), "overtaken"), fairlock.New(client, "overtaken")
	l := granted(t, holder)
	c := queued(t, waiter, 1)
	kit.Release(t, l)
	kit.Release(t, c.Value(t)) // Now it is subscribed, and its asks queue at once.
	for range either(30, 500) {
		l := granted(t, holder)
		slow.Freeze(faults.ToClient)
		c := kit.Lock(t.Context(), waiter.Lock)
		kit.Waiting(t, 1, holder.Inspect)
		since := time.Now()
		kit.Release(t, l)
		// With the reply still on its way.
		kit.Eventually(t, "the grant", func() bool {
			info, err := holder.Inspect(t.Context())
			require.NoError(t, err)
			return info.Held && info.Holder.Client == client.ID()
		})
		<-time.After(rand.N(3 * time.Millisecond))
		slow.Heal()
		l = c.Value(t)
		require.Less(t, time.Since(since), time.Second, "the message was dropped")
		kit.Release(t, l)
	}
	require.Zero(t, client.Stats().Missed)
	r.everybody()
	kit.Free(t, holder)
	r.finish()
}

// A request runs when its caller has given up. It leaves neither a holder nor anybody in the queue.
func TestN5RequestsRunLate(t *testing.T) {
	t.Parallel()
	r := begin(t, "N5", through)
	p := kit.Proxy(t, r.server)
	client := r.dial(kit.Through(p))
	other := r.dial()
	for i := range either(4, 40) {
		name := fmt.Sprintf("late:%d", i)
		m, seen := fairlock.New(client, name), fairlock.New(other, name)
		var l *lease.Lease
		if i%2 == 0 {
			l = granted(t, seen)
		}
		p.Freeze(faults.ToServer)
		require.ErrorIs(t, lockFor(t, m, rand.N(300*time.Millisecond)), context.DeadlineExceeded)
		p.Heal()
		if l != nil {
			kit.Release(t, l)
		}
		since := time.Now()
		l = granted(t, seen)
		require.Less(t, time.Since(since), 5*time.Second)
		kit.Release(t, l)
		kit.Free(t, seen)
	}
	r.proxy.Freeze(faults.ToServer)
	<-time.After(4 * time.Second) // Longer than the requests of the load may take.
	r.options.outcomes = []string{"expired", "forgotten", "unconfirmed"}
	r.proxy.Heal()
	r.everybody()
	r.finish()
}

func TestN6TheReplyComesAfterTheLeaseHasEnded(t *testing.T) {
	t.Parallel()
	r := begin(t, "N6")
	p := kit.Proxy(t, r.server)
	m, other := fairlock.New(r.dial(kit.Through(p)), "stale", headwaiter.WithLease(200*time.Millisecond)), fairlock.New(r.dial(), "stale")
	p.Delay(400*time.Millisecond, faults.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	l, err := m.Lock(ctx)
	require.Error(t, err, "a dead lock was returned: %v", l)
	require.True(t, errors.Is(err, lease.ErrInvalid) || errors.Is(err, context.DeadlineExceeded), "%v", err)
	p.Heal()
	kit.Free(t, other)
	// Not late enough to be over, but no lease is returned that has ended.
	p.Delay(100*time.Millisecond, faults.ToClient)
	for range either(5, 50) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if l, err := m.Lock(ctx); err == nil {
			if left := time.Until(l.Deadline()); left < 0 {
				require.Error(t, l.Context().Err(), "it holds a lease that ended %v ago", -left)
			}
			_ = l.Release(context.Background())
		}
		cancel()
	}
	p.Heal()
	kit.Free(t, other)
	r.everybody()
	r.finish()
}

func TestN7NothingMovesEitherWay(t *testing.T) {
	t.Parallel()
	r := begin(t, "N7", through, func(o *options) { o.outcomes = []string{"expired", "forgotten", "unconfirmed"} })
	r.cutOff(func(f *faults.Faults) { f.Freeze() })
	r.proxy.Freeze()
	<-time.After(2 * time.Second)
	r.proxy.Heal()
	r.everybody()
	r.finish()
}

// cutOff asserts what a client gets whose network does something: calls return when their contexts end, and it
// is told of its loss by its own clock, whatever the length of its lease. The others go on.
func (r *run) cutOff(begins func(*faults.Faults)) {
	r.Helper()
	t := r.TB
	p := kit.Proxy(t, r.server)
	client, other := r.dial(kit.Through(p)), r.dial()
	for _, lasts := range []time.Duration{time.Second, 4 * time.Second} {
		name := fmt.Sprintf("cut:%v", lasts)
		w := watched(granted(t, fairlock.New(client, name, headwaiter.WithLease(lasts))))
		begins(p.Faults)
		require.ErrorIs(t, lockFor(t, fairlock.New(client, "cut:busy"), 300*time.Millisecond), context.DeadlineExceeded)
		n := r.load.count()
		require.ErrorIs(t, w.told(t, promised(w.lease, lasts)), lease.ErrExpired)
		l := granted(t, fairlock.New(other, name))
		require.Greater(t, l.Token(), w.lease.Token())
		if r.proxy == nil {
			kit.Eventually(t, "the others to go on", func() bool { return r.load.count() > n+rate/4 })
		}
		p.Heal()
		require.ErrorIs(t, w.lease.Release(t.Context()), lease.ErrLost)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		kit.Free(t, fairlock.New(other, name))
	}
}

func TestN10TheServerIsCutFromOneClient(t *testing.T) {
	t.Parallel()
	r := begin(t, "N10")
	r.cutOff(func(f *faults.Faults) {
		f.Refuse()
		f.Cut()
	})
	r.everybody()
	r.finish()
}

func TestN8OneDirectionLosesEverything(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]faults.Direction{"to the server": faults.ToServer, "to the client": faults.ToClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "N8", through, func(o *options) { o.outcomes = []string{"expired", "forgotten", "unconfirmed"} })
			r.cutOff(func(f *faults.Faults) { f.Drop(d) })
			for _, lasts := range []time.Duration{2 * time.Second, time.Duration(either(0, 60)) * time.Second} {
				if lasts == 0 {
					continue
				}
				r.server.ResetStats()
				accepted := infoField(t, r.server.Text("INFO", "stats"), "total_connections_received")
				r.proxy.Drop(d)
				<-time.After(lasts)
				stats := r.server.Text("INFO", "stats")
				clients := int64(r.options.processes * r.options.plan.Clients)
				made := infoField(t, stats, "total_connections_received") - accepted
				require.Less(t, made, 20*clients*int64(lasts/time.Second+1), "connections are made without a pause")
				scripts := kit.Scripts(r.server)
				asked := scripts["evalsha"] + scripts["eval"]
				require.Less(t, asked, 100*clients*int64(lasts/time.Second+1), "requests are repeated without a pause")
				t.Logf("in %v: %d connections, %d scripts of %d clients", lasts, made, asked, clients)
				r.proxy.Heal()
				r.everybody()
			}
			r.finish()
		})
	}
}

func TestN9TheNetworkIsSlow(t *testing.T) {
	r := begin(t, "N9", through)
	const oneWay, trip = 25 * time.Millisecond, 50 * time.Millisecond
	thin := faults.NewProxyOf(t, r.server.Addr(), faults.Wire{Read: func(b *bufio.Reader) ([]byte, error) {
		raw, err := faults.Raw.Read(b)
		time.Sleep(time.Duration(len(raw)) * time.Second / (1 << 20)) // So many bytes a second each way, of each connection.
		return raw, err
	}})
	p := faults.NewProxy(t, thin.Addr())
	holder := fairlock.New(r.dial(kit.Through(p)), "slow")
	waiters := make([]*fairlock.Mutex, 3)
	for i := range waiters {
		waiters[i] = fairlock.New(r.dial(kit.Through(p)), "slow")
	}
	seen := fairlock.New(r.dial(), "slow")
	p.Delay(oneWay)
	r.proxy.Delay(oneWay)
	spans := make([]span, 0, 100)
	for range either(3, 20) {
		l := granted(t, holder)
		var calls []*kit.Call[*lease.Lease]
		for i, w := range waiters {
			calls = append(calls, kit.Lock(t.Context(), w.Lock))
			kit.Waiting(t, i+1, seen.Inspect)
		}
		for i, c := range calls {
			for _, later := range calls[i:] {
				require.False(t, later.Returned())
			}
			since := time.Now()
			released := kit.Run(func() error { return l.Release(context.Background()) })
			l = c.Value(t)
			spans = append(spans, span{since, time.Now()})
			require.NoError(t, released.Err(t))
		}
		kit.Release(t, l)
	}
	r.measured(handOff, spans)
	// Jitter.
	n := r.load.count()
	every(50*time.Millisecond, either(40, 400), func() { r.proxy.Delay(oneWay/2 + rand.N(oneWay)) })
	require.Greater(t, r.load.count()-n, 20, "no progress at a round trip of %v", trip)
	r.proxy.Heal()
	r.everybody()
	r.finish()
}
