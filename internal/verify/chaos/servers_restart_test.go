package chaos

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func theServerRestartsEmpty(t *testing.T, r *run) {
	m, other := fairlock.New(r.dial(), "held", headwaiter.WithLease(3*time.Second)), fairlock.New(r.dial(), "held")
	spans := make([]span, either(3, 15))
	for i := range spans {
		l := granted(t, m)
		w := watched(l)
		next := queued(t, other, 1)
		until := r.until("held")
		r.forgets(func() { r.server.Restart() })
		since := time.Now()
		l2 := next.Value(t)
		spans[i] = span{since, time.Now()}
		require.ErrorIs(t, w.told(t, until), lease.ErrForgotten)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		require.Greater(t, l2.Token(), l.Token())
		require.NoError(t, l2.Context().Err(), "the release of a hold that is forgotten has freed another")
		kit.Release(t, l2)
		r.everybody()
	}
	r.measured(restart, spans)
	kit.Free(t, m)
}

// With appendfsync always what was acknowledged is there again. With everysec, Redis answers before it writes
// while the disk is slow, so that what it acknowledged may be gone although only its process was killed: then
// it is as after a restart without data.
func itKeepsItsData(always bool) func(*testing.T, *run) {
	return func(_ *testing.T, r *run) {
		r.awayForALease()
		r.acknowledged(always)
	}
}

// awayForALease kills the server for longer than the lease of a holder.
func (r *run) awayForALease() {
	r.Helper()
	m, other := fairlock.New(r.dial(), "held", headwaiter.WithLease(time.Second)), fairlock.New(r.dial(), "held")
	for range either(1, 5) {
		w := watched(granted(r, m))
		next := queued(r, other, 1)
		r.forgets(func() {
			r.server.Kill()
			// Nothing can be asked: what counts is what was promised last.
			require.ErrorIs(r, w.told(r, promised(w.lease, time.Second)), lease.ErrExpired)
			r.server.Restart()
		})
		l := next.Value(r)
		require.Greater(r, l.Token(), w.lease.Token())
		require.ErrorIs(r, w.lease.Release(context.Background()), lease.ErrLost)
		kit.Release(r, l)
		r.everybody()
	}
}

// acknowledged kills the server right after it has answered. The hold is there again, or its holder is told.
func (r *run) acknowledged(always bool) {
	r.Helper()
	const lasts = 3 * time.Second
	m := fairlock.New(r.dial(), "acknowledged", headwaiter.WithLease(lasts))
	last := uint64(0)
	for range either(2, 20) {
		w := watched(granted(r, m))
		require.Greater(r, w.lease.Token(), last)
		last = w.lease.Token()
		r.forgets(func() {
			r.server.Kill()
			r.server.Restart()
		})
		if r.server.Text("HGET", keyOf("acknowledged"), "token") != strconv.FormatUint(last, 10) {
			require.False(r, always, "what was acknowledged is lost")
			evidence.Fault(r, "grant lost by appendfsync everysec", 1)
			require.ErrorIs(r, w.told(r, promised(w.lease, lasts)), lease.ErrForgotten)
		} else {
			require.NoError(r, w.lease.Context().Err())
			kit.Release(r, w.lease)
			w.done.Wait()
		}
	}
	kit.Release(r, granted(r, m)) // A hold that was released and came back ends when somebody asks.
	kit.Free(r, m)
}

func itRestartsFromAnOlderState(t *testing.T, r *run) {
	client, late := r.dial(), r.dial()
	for i := range either(1, 5) {
		name := fmt.Sprintf("old:%d", i)
		m := fairlock.New(client, name, headwaiter.WithLease(time.Second))
		l := granted(t, m)
		old := l.Token()
		r.server.Do("SAVE")
		kit.Release(t, l)
		newer := granted(t, m)
		kit.Release(t, newer)
		held := watched(granted(t, fairlock.New(client, name+":held", headwaiter.WithLease(2*time.Second))))
		until := r.until(name + ":held")
		r.everybody()
		r.forgets(func() {
			r.server.Kill()
			r.server.Restart()
		})
		require.EqualValues(t, old, r.server.Int("HGET", keyOf(name), "token"), "the older state is not back")
		since := time.Now()
		next := granted(t, fairlock.New(late, name)) // Of a client that has seen none of its tokens.
		require.Less(t, time.Since(since), time.Second+3*time.Second, "the lock that is back lasts for more than its lease")
		require.Greater(t, next.Token(), newer.Token())
		kit.Release(t, next)
		require.ErrorIs(t, held.told(t, until), lease.ErrForgotten)
		r.everybody()
	}
}

func keysAreDeleted(t *testing.T, r *run) {
	held, waiting := r.dial(), r.dial()
	for i := range either(5, 50) {
		m := fairlock.New(held, "flushed", headwaiter.WithLease(2*time.Second))
		w := watched(granted(t, m))
		next := queued(t, fairlock.New(waiting, "flushed"), 1)
		until := r.until("flushed")
		r.forgets(func() {
			if i%2 == 0 {
				r.server.Do("FLUSHALL")
				return
			}
			for _, key := range r.server.List("KEYS", "headwaiter:*") {
				if (len(key)+i)%3 > 0 || key == keyOf("flushed") {
					r.server.Do("DEL", key)
				}
			}
		})
		require.ErrorIs(t, w.told(t, until), lease.ErrForgotten)
		l := next.Value(t)
		require.Greater(t, l.Token(), w.lease.Token())
		kit.Release(t, l)
		r.everybody()
	}
}

func scriptsAreFlushed(t *testing.T, r *run) {
	n := r.load.count()
	for range either(300, 5000) {
		r.server.Do("SCRIPT", "FLUSH")
	}
	kit.Eventually(t, "progress between the flushes", func() bool {
		r.server.Do("SCRIPT", "FLUSH")
		return r.load.count() > n+enough
	})
}

// Two holders are possible after a failover, and documented. What must hold: the second one's token is higher,
// and the first one is told before its lease ends by its own clock.
func aReplicaIsPromoted(t *testing.T, r *run) {
	master := r.server
	led := kit.Through(r.proxy)
	const lasts = 3 * time.Second
	m, other := fairlock.New(r.dial(led), "promoted", headwaiter.WithLease(lasts)), fairlock.New(r.dial(led), "promoted")
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, redistest.WithArgs("--replicaof", "127.0.0.1", port))
	kit.Eventually(t, "the replica to follow", func() bool {
		return strings.Contains(replica.Text("INFO", "replication"), "master_link_status:up")
	})
	var w *watch
	var next *kit.Call[*lease.Lease]
	r.forgets(func() {
		// The cut. What is written from now on is not replicated.
		replica.Do("REPLICAOF", "127.0.0.1", "1")
		w, next = watched(granted(t, m)), queued(t, other, 1)
		require.Zero(t, replica.Int("EXISTS", keyOf("promoted")), "the lock is on the replica: the case shows nothing")
		master.Kill()
		replica.Do("REPLICAOF", "NO", "ONE")
		r.proxy.Lead(replica.Addr())
	})
	r.server = replica
	since := time.Now()
	l := next.Value(t)
	require.Less(t, time.Since(since), kit.Patience)
	require.Greater(t, l.Token(), w.lease.Token())
	require.ErrorIs(t, w.told(t, promised(w.lease, lasts)), lease.ErrLost)
	require.NoError(t, l.Context().Err())
	require.ErrorIs(t, w.lease.Release(t.Context()), lease.ErrLost)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
}

// Leases end at once, and the holders are told by their renewals: the one case where somebody else may hold
// before they are.
func itsClockStepsForward(t *testing.T, r *run) {
	const lasts = 3 * time.Second
	m, other := fairlock.New(r.dial(), "forward", headwaiter.WithLease(lasts)), fairlock.New(r.dial(), "forward")
	for i := range either(2, 10) {
		w := watched(granted(t, m))
		c := queued(t, other, 1)
		r.forgets(func() { r.clock.Shift(time.Duration(i+1) * time.Minute) })
		since := time.Now()
		w.told(t, promised(w.lease, lasts))
		require.Less(t, time.Since(since), lasts, "not told by a renewal")
		l := c.Value(t)
		require.Greater(t, l.Token(), w.lease.Token())
		kit.Release(t, l)
		r.everybody()
	}
	kit.Free(t, m)
}

func itsClockStepsBack(t *testing.T, r *run) {
	const lasts = 2 * time.Second
	dead := fairlock.New(r.dial(), "back")
	other, first, second := fairlock.New(r.dial(), "order"), r.dial(), r.dial()
	for i := range either(1, 5) {
		victim, held := r.keeper("back", lasts)
		next, l := queued(t, dead, 1), granted(t, other)
		one := queued(t, fairlock.New(first, "order"), 1)
		victim.Kill()
		r.clock.Shift(-time.Duration(i+1) * time.Hour)
		since := time.Now()
		two := queued(t, fairlock.New(second, "order"), 2)
		got := next.Value(t)
		require.Less(t, time.Since(since), lasts+4*time.Second, "the lease of a dead holder has become longer")
		require.Greater(t, got.Token(), held.Token)
		kit.Release(t, got)
		// Who came before the step is served before who came after it.
		l = kit.Next(t, l, one)
		require.False(t, two.Returned(), "who came after the step has overtaken")
		kit.PassOn(t, l, two)
		r.everybody()
	}
	var stepped uint64
	for _, c := range r.clients {
		stepped += c.Stats().Stepped
	}
	require.Positive(t, stepped, "nobody has noticed the step")
}

// Numbers of 16 digits are exact in the scripts of a real server, also in a hundred years.

// connections reads from INFO stats how many connections were made so far.
func connections(t *testing.T, info string) int { return number(t, info, "total_connections_received") }

// number reads a field of INFO.
func number(t testing.TB, info, field string) int {
	t.Helper()
	_, rest, found := strings.Cut(info, field+":")
	require.True(t, found, field)
	text, _, _ := strings.Cut(rest, "\r")
	return kit.Got(strconv.Atoi(text))(t)
}

// old waits until the server has run for longer than a lease.
func old(t *testing.T, s *redistest.Server, lease time.Duration) {
	t.Helper()
	kit.Eventually(t, "the server is old enough", func() bool {
		return time.Duration(number(t, s.Text("INFO", "server"), "uptime_in_seconds"))*time.Second > lease+time.Second
	})
}

const restartLease = 3 * time.Second

// The holder of before the restart may act for the rest of its lease. Nobody else holds before that.
func aServerThatComesUpEmptyDoesNotGrant(t *testing.T) {
	s := redistest.Start(t)
	old(t, s, restartLease)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(restartLease), headwaiter.WithSafeRestart()}
	a, b := fairlock.New(kit.Dial(t, s), name, options...), fairlock.New(kit.Dial(t, s), name, options...)
	first := kit.Got(a.Lock(t.Context()))(t)
	s.Restart()
	restarted := time.Now()
	kit.Fails(t, kit.Err(b.TryLock(t.Context())), lease.ErrBusy, lease.ErrRestarted)
	second := kit.Got(b.Lock(t.Context()))(t)
	require.Error(t, first.Context().Err(), "two hold")
	require.Greater(t, time.Since(restarted), restartLease-time.Second/10, "granted before the lease of the forgotten hold was over")
	require.Error(t, first.Release(t.Context()))
	kit.Release(t, second)
	third, err := a.TryLock(t.Context())
	require.NoError(t, err, "the server is old enough now")
	require.Greater(t, third.Token(), second.Token())
	kit.Release(t, third)
}

// Calls that come after a restart get their turns in their order, however many wait for the first one.
func theOrderOutlastsTheWaitBehindARestart(t *testing.T) {
	s, name := redistest.Start(t), kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(3 * restartLease), headwaiter.WithSafeRestart()} // All are queued within it.
	var calls []*kit.Call[int]
	turn, plain := make(chan int, 5), fairlock.New(kit.Dial(t, s), name)
	for i := range 5 {
		m := fairlock.New(kit.Dial(t, s), name, options...)
		calls = append(calls, kit.Go(func() (int, error) {
			return 0, m.Do(t.Context(), func(context.Context) error { turn <- i; return nil })
		}))
		kit.Waiting(t, i, plain.Inspect)
		kit.Eventually(t, "the first holds the place", func() bool {
			info, err := plain.Inspect(t.Context())
			return err == nil && info.Held
		})
	}
	for i, call := range calls {
		require.NoError(t, call.Err(t))
		require.Equal(t, i, <-turn)
	}
}

// A call that gives up while it waits for the server's age leaves nothing, and the next goes on waiting.
func aCallThatGivesUpBehindARestartLeavesNothing(t *testing.T) {
	s, name := redistest.Start(t), kit.Name(t)
	m := fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(time.Minute), headwaiter.WithSafeRestart())
	require.ErrorIs(t, kit.Err(m.Lock(kit.Within(t, time.Second))), context.DeadlineExceeded)
	kit.Eventually(t, "nobody holds", func() bool {
		info, err := m.Inspect(t.Context())
		return err == nil && !info.Held && info.Waiting == 0
	})
	l, err := fairlock.New(kit.Dial(t, s), name).TryLock(t.Context())
	require.NoError(t, err, "who does not ask for it does not wait")
	kit.Release(t, l)
}

// A server that reads its append-only file has forgotten nothing: its grants count at once. What it knows by is not in the
// keys of the names, so it holds for those that nobody has held yet too, and from the first start on, which was waited for.
func aServerThatComesUpWithItsDataGrants(t *testing.T) {
	s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir()))
	options := []fairlock.Option{headwaiter.WithLease(3 * restartLease), headwaiter.WithSafeRestart()}
	c := kit.Dial(t, s)
	for restarts := range 3 {
		l := asksFor(c, kit.Name(t), options).Value(t)
		s.Restart()
		kit.Release(t, l)
		for i := range 3 {
			kit.Release(t, asksFor(c, fmt.Sprint(kit.Name(t), restarts, i), options).Value(t))
		}
		require.Less(t, number(t, s.Text("INFO", "server"), "uptime_in_seconds"), int(3*restartLease/time.Second), "not believed, or it was slow: shows nothing")
	}
	require.Positive(t, s.Int("PTTL", lua.MarkKey("headwaiter", 0, false)))
}

func asksFor(c *headwaiter.Client, name string, options []fairlock.Option) *kit.Call[*lease.Lease] {
	return kit.Go(func() (*lease.Lease, error) { return fairlock.New(c, name, options...).Lock(context.Background()) })
}

// The one whose look comes first holds while all wait. When the lease is over it lets those go first who came first.
func theOrderOutlastsAnEmptyRestart(t *testing.T) {
	s := redistest.Start(t)
	const lasts = 3 * restartLease // All are queued again within it, on a busy machine too.
	old(t, s, lasts)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(lasts), headwaiter.WithSafeRestart()}
	plain := fairlock.New(kit.Dial(t, s), name)
	held := kit.Got(plain.Lock(t.Context()))(t)
	p := faults.NewProxy(t, s.Addr())
	first := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.InitAddress = []string{p.Addr()} })
	clients := []*headwaiter.Client{first, kit.Dial(t, s), kit.Dial(t, s)}
	var calls []*kit.Call[*lease.Lease]
	for i, c := range clients {
		calls = append(calls, asksFor(c, name, options))
		kit.Waiting(t, i+1, plain.Inspect)
	}
	p.Freeze()
	s.Restart()
	kit.Eventually(t, "one of the later holds the place", func() bool {
		info, err := plain.Inspect(t.Context())
		return err == nil && info.Held && info.Waiting == 1
	})
	p.Heal()
	kit.Waiting(t, 2, plain.Inspect)
	require.Error(t, held.Release(t.Context()))
	var token uint64
	for i, call := range calls {
		l := call.Value(t)
		for _, later := range calls[i+1:] {
			require.False(t, later.Returned(), "another before call %d", i)
		}
		require.Greater(t, l.Token(), token)
		token = l.Token()
		kit.Release(t, l)
	}
}

// What was found out of a server counts until its connection breaks: after the first hold it costs nothing.
func aServerIsAskedForItsAgeOnceAConnection(t *testing.T) {
	s := redistest.Start(t)
	old(t, s, restartLease)
	c := kit.Dial(t, s)
	m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(restartLease), headwaiter.WithSafeRestart())
	cycle := func() int64 {
		s.ResetStats()
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		return s.CommandStats()["info"]
	}
	require.EqualValues(t, 1, cycle())
	for range 10 {
		require.Zero(t, cycle())
	}
	s.Do("CLIENT", "KILL", "TYPE", "normal")
	require.EqualValues(t, 1, cycle(), "it may have been a restart that broke the connection")
	require.Zero(t, cycle())
}
