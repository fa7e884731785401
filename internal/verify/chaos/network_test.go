package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
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
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

func wakeUpsAreLost(t *testing.T, r *run) {
	p, holder := kit.Proxy(t, r.server), fairlock.New(r.dial(), "unheard")
	spans := make([]span, either(4, 20))
	for i := range spans {
		// A new one, which looks only because it has to, and loses no hold because the machine is busy.
		client := r.dial(kit.Through(p), func(o *headwaiter.Options) { o.GrantLease = kit.Patience })
		waiter, l := fairlock.New(client, "unheard"), granted(t, holder)
		c := queued(t, waiter, 1)
		// The second look comes soon, for what may have been missed before it heard. From then on they are rare.
		kit.Eventually(t, "the second look", func() bool { return client.Stats().Checks >= 2 })
		kit.Waiting(t, 1, waiter.Inspect) // After that look, on the same connection.
		p.LosePushes(1, kit.Notices(wire.MessageGrant))
		since := time.Now()
		l = kit.Next(t, l, c)
		spans[i] = span{since, time.Now()}
		_, lost := p.Lost()
		require.Equal(t, i+1, lost)
		kit.Eventually(t, "the miss to be counted", func() bool {
			s := client.Stats() // The client finds it out by itself, or is told that it let a grant lapse.
			return s.Missed+s.Suspected > 0
		})
		kit.Release(t, l)
		for messages := client.Stats().Messages; client.Stats().Messages < messages+2; { // It has to hear again.
			kit.PassOn(t, granted(t, holder), queued(t, waiter, 1))
		}
		require.NoError(t, client.Shutdown(t.Context()))
	}
	r.measured(lostMessage, spans)
	const lost = 10
	r.proxy.LosePushes(lost, func(push []string) bool {
		return kit.Notices(wire.MessageGrant)(push) && rand.IntN(20) == 0
	})
	kit.Eventually(t, "messages of the load to be lost", func() bool {
		_, n := r.proxy.Lost()
		return n >= lost
	})
}

// Every message is published once more, at once and some time later, and so is nonsense.
func messagesAreDoubled(t *testing.T, r *run) {
	inside, heard := newInside(t, r.server), make(chan []string, 1<<16)
	stop := check.Follow(t, r.server, func(c check.Command) {
		if c.Words[0] == "PUBLISH" && len(c.Words) == 3 { // As scripts have it.
			heard <- c.Words
		}
	})
	doubled := either(500, 10_000)
	var old [][]string
	for range doubled {
		m := <-heard
		inside.do("publish", m[1], m[2])
		if old = append(old, m); len(old) > 50 {
			inside.do("publish", old[0][1], old[0][2])
			old = old[1:]
		}
		inside.do("publish", m[1], "G nonsense 1 2 3")
	}
	go func() {
		for range heard { // What comes until nobody follows any more.
		}
	}()
	stop()
	close(heard)
	evidence.Fault(t, "message doubled", doubled)
}

// The message of a grant comes before the reply to the request that queued the ticket: they take different
// ways.
func aMessageOvertakesTheReply(t *testing.T, r *run) {
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
	l, c := granted(t, holder), queued(t, waiter, 1)
	kit.Release(t, l)
	kit.Release(t, c.Value(t)) // Now it is subscribed, and its asks queue at once.
	for range either(30, 500) {
		l := granted(t, holder)
		slow.Freeze(faults.ToClient)
		c := kit.Joins(t, 1, waiter.Lock, holder.Inspect)
		kit.Release(t, l)
		// With the reply still on its way.
		kit.Eventually(t, "the grant", func() bool {
			info := kit.Got(holder.Inspect(t.Context()))(t)
			return info.Held && info.Holder.Client == client.ID()
		})
		<-time.After(rand.N(3 * time.Millisecond))
		slow.Heal()
		l = c.Value(t)
		kit.Release(t, l)
	}
	require.Zero(t, client.Stats().Missed, "a message was dropped")
	kit.Free(t, holder)
}

// A request runs when its caller has given up. It leaves neither a holder nor anybody in the queue.
func requestsRunLate(t *testing.T, r *run) {
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
	r.proxy.Heal()
}

func nothingMoves(t *testing.T, r *run) {
	r.cutOff(func(f *faults.Faults) { f.Freeze() })
	r.proxy.Freeze()
	<-time.After(2 * time.Second)
	r.proxy.Heal()
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
			kit.Eventually(t, "the others to go on", func() bool { return r.load.count() > n+enough/4 })
		}
		p.Heal()
		require.ErrorIs(t, w.lease.Release(t.Context()), lease.ErrLost)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		kit.Free(t, fairlock.New(other, name))
	}
}

func theServerIsCutFromOneClient(t *testing.T, r *run) {
	r.cutOff(func(f *faults.Faults) {
		f.Away()
	})
}

func oneWayLosesEverything(d faults.Direction) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		r.cutOff(func(f *faults.Faults) { f.Drop(d) })
		lasts := time.Duration(either(2, 60)) * time.Second
		r.server.ResetStats()
		r.proxy.Drop(d)
		<-time.After(lasts)
		most := 100 * r.options.processes * r.options.plan.Clients * int(lasts/time.Second+1)
		made := number(t, r.server.Text("INFO", "stats"), "total_connections_received")
		require.Less(t, made, most/5, "connections are made without a pause")
		scripts := kit.Scripts(r.server)
		require.Less(t, scripts["evalsha"]+scripts["eval"], int64(most), "requests are repeated without a pause")
		r.proxy.Heal()
	}
}

func theNetworkIsSlow(t *testing.T, r *run) {
	const oneWay = 25 * time.Millisecond
	thin := faults.NewProxyOf(t, r.server.Addr(), faults.Wire{Read: func(b *bufio.Reader) ([]byte, error) {
		raw, err := faults.Raw.Read(b)
		time.Sleep(time.Duration(len(raw)) * time.Second / (1 << 20)) // 1 MiB a second each way, of each connection.
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
	every(50*time.Millisecond, either(40, 400), func() { r.proxy.Delay(oneWay/2 + rand.N(oneWay)) })
	r.goesOn(20)
	r.proxy.Heal()
}

// What was asked for has happened once, though the reply is lost and it is asked for again.
func repliesAreCut(t *testing.T, r *run) {
	lost, n := either(60, 3000), 0
	r.proxy.LoseReplies(lost, func(command []string) bool {
		n++
		return isScript(command) && n%11 == 0 // Each kind of request has its turn.
	})
	kit.LostReplies(t, r.proxy.Faults, lost)
}

func isScript(command []string) bool {
	return len(command) > 0 && (command[0] == "EVALSHA" || command[0] == "EVAL")
}
