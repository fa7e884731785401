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
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// every does something that many times, with a pause after each.
func every(pause time.Duration, times int, do func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range times {
		do()
		<-tick.C
	}
}

func subscribersAreKilled(t *testing.T, r *run) {
	holder, waiter := fairlock.New(r.dial(), "ears"), fairlock.New(r.dial(), "ears")
	spans := make([]span, either(11, 101))
	for i := range spans {
		l, c := granted(t, holder), queued(t, waiter, 1)
		require.Positive(t, r.server.Int("CLIENT", "KILL", "TYPE", "pubsub"))
		spans[i], l = r.handOff(l, c)
		kit.Release(t, l)
	}
	r.measured(killedEars, spans)
	r.killing("pubsub")
}

func connectionsAreKilled(t *testing.T, r *run) { r.killing("normal") }

// killing kills connections of a kind again and again, while the load goes on.
func (r *run) killing(kind string) {
	r.Helper()
	every(100*time.Millisecond, either(20, 300), func() {
		r.server.Int("CLIENT", "KILL", "TYPE", kind)
		r.goesOn(1)
	})
}

func aSubscriberDoesNotRead(t *testing.T, r *run) {
	const waiters = 10
	client := r.dial()
	holder, waiter := fairlock.New(r.dial(), "full"), fairlock.New(client, "full")
	l := granted(t, holder)
	paused := r.crowd(crowd.Plan{Names: []string{"full"}, Clients: 1, Waiters: waiters, Lease: 3 * time.Second})
	kit.Waiting(t, waiters, holder.Inspect)
	next := queued(t, waiter, waiters+1)
	info := kit.Got(holder.Inspect(t.Context()))(t)
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
	info = kit.Got(holder.Inspect(t.Context()))(t)
	require.Equal(t, client.ID(), info.Holder.Client, "the one that is not heard is not passed over")
	l = next.Value(t)
	paused.Cont()
	kit.Release(t, l)
	paused.Await(crowd.Held, waiters, kit.Patience)
	for _, e := range paused.Await(crowd.Released, waiters, kit.Patience) {
		require.Empty(t, e.Error)
	}
	kit.Free(t, holder)
}

// refusedConnection is what a client sees of one: the server says why and closes, which may overtake the text.
var refusedConnection = "max number of clients|EOF|connection reset|broken pipe"

func itRefusesConnections(t *testing.T, r *run) {
	// A worker whose connection breaks now gets no other.
	p := kit.Proxy(t, r.server)
	m := fairlock.New(r.dial(kit.Through(p)), "full")
	l, inside := granted(t, fairlock.New(r.dial(), "full")), newInside(t, r.server)
	inside.do("CONFIG", "SET", "maxclients", "1") // Connected clients stay.
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
	kit.PassOn(t, l, c)
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
	rc := kit.Got(rueidis.NewClient(o))(t)
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
	return int64(number(i.t, kit.Got(i.do("INFO", section).ToString())(i.t), field))
}

// lockFor tries to lock m for some time, in vain, and returns why it ended. It must end in time.
func lockFor(t testing.TB, m *fairlock.Mutex, given time.Duration) error {
	t.Helper()
	ctx := kit.Within(t, given)
	since := time.Now()
	_, err := m.Lock(ctx)
	require.Error(t, err)
	require.Less(t, time.Since(since), given+2*time.Second, "a call outlasted its context")
	return err
}

func idleConnectionsAreCut(t *testing.T, r *run) {
	r.server.Do("CONFIG", "SET", "timeout", "1")
	p := kit.Proxy(t, r.server)
	m := fairlock.New(r.dial(kit.Through(p)), "idle")
	for i := range either(2, 10) {
		l := granted(t, m)
		if i%2 == 0 { // The server cuts what is idle for a second or two.
			conn := kit.Got(net.Dial("tcp", r.server.Addr()))(t)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
			require.ErrorIs(t, kit.Err(conn.Read(make([]byte, 1))), io.EOF)
			conn.Close()
		} else { // Something in between does.
			p.Cut()
		}
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		kit.Release(t, granted(t, m))
	}
}

const (
	// short is how long to wait for replicas while one is not there, and ample how long for those that are.
	short = 200 * time.Millisecond
	ample = 3 * time.Second
)

func aHoldIsKnownToTheReplicas(t *testing.T) {
	set, name := redistest.Replicated(t, 2), kit.Name(t)
	m := fairlock.New(kit.Dial(t, set.Master()), name, headwaiter.WithReplicas(2, ample))
	for range 20 {
		l := kit.Got(m.Lock(t.Context()))(t)
		for _, replica := range set.Replicas() {
			owner := replica.Text("HGET", "headwaiter:lock:{"+name+"}", "owner")
			require.NotEmpty(t, owner, "the replica does not know of the hold")
		}
		kit.Release(t, l)
	}
}

// A grant by message was written by the connection of another client.
func aHoldByMessageIsKnownToTheReplicas(t *testing.T) {
	set := redistest.Replicated(t, 1)
	s, replica := set.Master(), set.Replicas()[0]
	name := kit.Name(t)
	a := fairlock.New(kit.Dial(t, s), name)
	b := fairlock.New(kit.Dial(t, s), name, headwaiter.WithReplicas(1, ample))
	for range 20 {
		first := kit.Got(a.Lock(t.Context()))(t)
		second := kit.Joins(t, 1, b.Lock, a.Inspect)
		l := kit.Next(t, first, second)
		fields := replica.List("HMGET", "headwaiter:lock:{"+name+"}", "owner", "phase")
		require.Contains(t, fields[0], "x:1:10000", "the replica knows of another hold")
		require.Equal(t, "held", fields[1], "the replica knows of the grant, but not of its confirmation")
		kit.Release(t, l)
	}
}

func aHoldThatReplicasDoNotKnowOfIsGivenBack(t *testing.T) {
	set := redistest.Replicated(t, 2)
	one, two := set.Replicas()[0], set.Replicas()[1]
	set.Cut(two)
	c, name := kit.Dial(t, set.Master()), kit.Name(t)
	l, err := fairlock.New(c, name, headwaiter.WithReplicas(1, ample)).Lock(t.Context())
	require.NoError(t, err, "the other is there")
	kit.Release(t, l)
	locks := map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error {
			return kit.Err(fairlock.New(c, name, headwaiter.WithReplicas(2, short)).Lock(ctx))
		},
		"TryLock": func(ctx context.Context) error {
			return kit.Err(fairlock.New(c, name, headwaiter.WithReplicas(2, short)).TryLock(ctx))
		},
		"RLock": func(ctx context.Context) error {
			return kit.Err(rwlock.New(c, name, headwaiter.WithReplicas(2, short)).RLock(ctx))
		},
		"Acquire": func(ctx context.Context) error {
			return kit.Err(semaphore.New(c, name, 3, headwaiter.WithReplicas(2, short)).Acquire(ctx, 2))
		},
	}
	for call, lock := range locks {
		err := lock(t.Context())
		require.ErrorIs(t, err, lease.ErrReplicas, call)
		require.Regexp(t, `[01] of 2 within 200ms`, err, call) // It may be too busy to say that it has it.
	}
	_, err = fairlock.New(c, name, headwaiter.WithReplicas(2, ample)).Lock(t.Context())
	kit.Fails(t, err, lease.ErrReplicas, "1 of 2 within 3s")
	// All is free again, without a lease running out.
	ctx := kit.Within(t, lease.DefaultLease/2)
	l = kit.Got(fairlock.New(c, name, headwaiter.WithReplicas(1, ample)).Lock(ctx))(t)
	kit.Release(t, l)
	l = kit.Got(rwlock.New(c, name).Lock(ctx))(t)
	kit.Release(t, l)
	l = kit.Got(semaphore.New(c, name, 3).Acquire(ctx, 3))(t)
	kit.Release(t, l)

	set.Rejoin(two)
	set.Cut(one)
	set.Rejoin(one)
	l, err = fairlock.New(c, name, headwaiter.WithReplicas(2, ample)).Lock(t.Context())
	require.NoError(t, err, "the replicas are back")
	kit.Release(t, l)
}

// The replica is cut off while the lock is held. It knows of no end later than the last renewal that it has acknowledged
// says. So the hold ends by then, though its master renews. Where it comes back in time nothing is lost.
func aHoldEndsWhereReplicasDoNotKnowOfItsRenewals(t *testing.T) {
	const lasts = 6 * time.Second
	set := redistest.Replicated(t, 1)
	s, replica := set.Master(), set.Replicas()[0]
	c, name := kit.Dial(t, s), kit.Name(t)
	ends := func() time.Time { return time.UnixMicro(int64(kit.Until(replica, "headwaiter:lock:{"+name+"}"))) }
	l := kit.Got(fairlock.New(c, name, headwaiter.WithLease(lasts), headwaiter.WithReplicas(1, short)).Lock(t.Context()))(t)
	first := l.Deadline()
	kit.Eventually(t, "a renewal", func() bool { return l.Deadline().After(first) })

	set.Cut(replica)
	renewals := c.Stats().Renewals
	kit.Eventually(t, "a renewal that is not acknowledged", func() bool { return c.Stats().Renewals > renewals })
	set.Rejoin(replica)
	last := l.Deadline()
	kit.Eventually(t, "one that is", func() bool { return l.Deadline().After(last) })
	require.NoError(t, l.Context().Err())

	set.Cut(replica)
	kit.Fails(t, kit.Lost(t, l), lease.ErrExpired, lease.ErrReplicas, "0 of 1 within 200ms")
	require.False(t, l.Deadline().After(ends()), "longer than the replica knows")
}

// Sixty-four calls that wait for replicas use one connection more.
func callsWaitForReplicasTogether(t *testing.T) {
	s := redistest.Replicated(t, 1).Master()
	c := kit.Dial(t, s)
	before := s.Text("INFO", "stats")
	var calls []*kit.Call[struct{}]
	for i := range 64 {
		calls = append(calls, kit.Run(func() error {
			m := fairlock.New(c, kit.Name(t)+strconv.Itoa(i), headwaiter.WithReplicas(1, ample))
			for range 10 {
				if err := m.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, call := range calls {
		require.NoError(t, call.Err(t))
	}
	require.LessOrEqual(t, connections(t, s.Text("INFO", "stats"))-connections(t, before), 3, "connections made for it")
	require.Less(t, s.CommandStats()["wait"], int64(640), "every call waited by itself")
}

// A master that was killed reads its file when it starts again; by default the last second may be missing from it.
func aHoldIsOnDisk(t *testing.T) {
	s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--dir", t.TempDir()))
	c, name := kit.Dial(t, s), kit.Name(t)
	m := fairlock.New(c, name, headwaiter.WithFsync(0, ample))
	if _, err := s.Try("WAITAOF", "0", "0", "0"); err != nil {
		require.ErrorContains(t, kit.Err(m.Lock(t.Context())), "WithFsync needs Redis 7.2 or newer")
		return
	}
	for range 3 {
		l := kit.Got(m.Lock(t.Context()))(t)
		s.Restart()
		require.NotEmpty(t, s.Text("HGET", "headwaiter:lock:{"+name+"}", "owner"), "the server has forgotten the hold")
		kit.Release(t, l)
	}
	_, err := fairlock.New(c, name, headwaiter.WithFsync(1, short)).Lock(t.Context())
	kit.Fails(t, err, lease.ErrReplicas, "of 0 of 1 replicas within 200ms")

	_, err = fairlock.New(kit.Dial(t, redistest.Start(t)), name, headwaiter.WithFsync(0, short)).Lock(t.Context())
	require.ErrorContains(t, err, "set appendonly yes")
}

func TestReplicasWithoutSenseAreRefused(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	for _, o := range []fairlock.Option{
		headwaiter.WithReplicas(-1, time.Second), headwaiter.WithReplicas(1, 0), headwaiter.WithReplicas(1, -time.Second),
		headwaiter.WithReplicas(1, lease.DefaultLease), headwaiter.WithFsync(0, 0), headwaiter.WithFsync(-1, time.Second),
	} {
		require.Error(t, kit.Err(fairlock.New(c, "x", o).Lock(t.Context())))
	}
}
