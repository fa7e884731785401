package fairlock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A first ask that comes late queues its ticket anew, at a later place. Its client's next look takes it back to its place
// (I3).
func TestALateFirstAskCostsNoPlace(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, first, second := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		a, b := joins(t, 1, first, holder), joins(t, 2, second, holder)
		_, queue, _ := keysOf(kit.Name(t))
		tickets := s.List("ZRANGE", queue, "0", "-1")
		place := s.Text("ZSCORE", queue, tickets[0])
		s.Do("ZINCRBY", queue, "1000000", tickets[0]) // As such an ask does where the ticket was skipped.
		require.Equal(t, tickets[1], s.List("ZRANGE", queue, "0", "0")[0])
		synctime.Pass(3 * time.Second) // Both have looked.
		require.Equal(t, tickets, s.List("ZRANGE", queue, "0", "-1"))
		require.Equal(t, place, s.Text("ZSCORE", queue, tickets[0]))
		l = kit.Next(t, l, a)
		require.False(t, b.Returned())
		kit.PassOn(t, l, b)
	})
}

func TestAPriorityOvertakesThoseThatCameLessThanAStepBefore(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		begun := func(priority int, n int) *call {
			return joins(t, n, dialMutex(t, s, headwaiter.WithPriority(priority)), holder)
		}
		old := begun(0, 1)
		synctime.Pass(waitqueue.PriorityStep + 100*time.Millisecond)
		young := begun(0, 2)
		synctime.Pass(waitqueue.PriorityStep / 2)
		urgent, humble := begun(1, 3), begun(-1, 4)
		late := begun(0, 5)
		for _, c := range []*call{old, urgent, young, late, humble} {
			l = kit.Next(t, l, c)
		}
		kit.Release(t, l)
	})
}

// A low priority comes to a lock that goes from hand to hand while its client subscribes, and then the usual one, which it
// lets pass.
func TestALowPriorityLetsOthersPassAlsoWhereItWasNotQueuedAtOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for try := 0; ; try++ {
			name := fmt.Sprint(kit.Name(t), try)
			busy := fairlock.New(kit.Dial(t, s), name)
			held := hold(t, busy)
			background := begin(t.Context(), fairlock.New(kit.Dial(t, s), name, headwaiter.WithPriority(-60)))
			var err error
			for err == nil && s.Int("ZCARD", lua.Fairlock.Keys("headwaiter", name).Queue) == 0 {
				kit.Release(t, held)
				held, err = busy.TryLock(t.Context())
			}
			if err != nil { // It came in between: once more.
				kit.Release(t, background.Value(t))
				continue
			}
			kit.PassOn(t, held, joins(t, 2, fairlock.New(kit.Dial(t, s), name), busy), background)
			return
		}
	})
}

func polling(o *headwaiter.Options) { o.WithoutSubscribe = true }

func TestAClientWithoutSubscriptionsMakesNone(t *testing.T) {
	s := kit.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-subscribe", "-psubscribe", "-ssubscribe")
	require.ErrorIs(t, dialError(t, s, as("lock")), lease.ErrUnusable)
	a, b := kit.Dial(t, s, as("lock"), polling), kit.Dial(t, s, as("lock"), polling)
	first := fairlock.New(a, kit.Name(t))
	second := fairlock.New(b, kit.Name(t), headwaiter.WithLease(2*time.Second))
	l, w := hold(t, first), joins(t, 1, second, first)
	held := kit.Next(t, l, w)

	// What it cannot hear of its hold it learns by its next renewal.
	require.NoError(t, kit.Err(first.ForceRelease(t.Context(), held.Token())))
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	for _, c := range []*headwaiter.Client{a, b} {
		require.Zero(t, c.Stats().Subscribes)
		require.Zero(t, c.Stats().Missed)
		require.Zero(t, c.Stats().Suspected)
	}
	stats := s.CommandStats()
	require.NotZero(t, stats["evalsha"])
	require.Zero(t, stats["subscribe"])
}

// What a replica that is promoted has: an earlier state, without the latest tokens.
func TestTokensRiseOverTheReturnOfAnEarlierState(t *testing.T) {
	s := kit.Start(t)
	m := dialMutex(t, s)
	early := hold(t, m)
	lock, _, _ := keysOf(kit.Name(t))
	dump := s.Text("DUMP", lock)
	kit.Release(t, early)
	var token uint64
	for range 10 {
		l := hold(t, m)
		token = l.Token()
		kit.Release(t, l)
	}
	s.Do("RESTORE", lock, "60000", dump, "REPLACE")
	s.Do("HDEL", lock, "owner")
	l := hold(t, dialMutex(t, s))
	require.Greater(t, l.Token(), token)
	kit.Release(t, l)
}

// The clock is below the one that gave the last token: tokens go on from the highest that the asking client has seen.
func TestTokensRiseWhereTheClockOfTheServerSteppedBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s)
		l := hold(t, m)
		s.Miniredis().SetTime(time.Now().Add(-time.Hour))
		kit.Release(t, l)
		for range 3 {
			synctime.Pass(time.Second) // The next answer is news of the clock.
			next := hold(t, m)
			require.Greater(t, next.Token(), l.Token())
			kit.Release(t, next)
			l = next
			s.Do("FLUSHALL")
		}
	})
}

// An ask without a floor says that no token is above the time by which it was sent. Where the server's clock has stepped
// back since by more than a token is believed to be ahead of it, one that could be believed must not be given again.
func TestAnAskThatWasSentADayAheadOfTheClockGetsATokenAboveAllThatCount(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		lock, queue, _ := keysOf(kit.Name(t))
		now := time.Now()
		s.Do("EVAL", lua.Fairlock.Ask.Source, "2", lock, queue, "a:1:x:1:10000:2000", wire.Try,
			strconv.FormatInt(now.Add(30*time.Hour).UnixMicro(), 10))
		require.Greater(t, s.Int("HGET", lock, "token"), now.Add(18*time.Hour).UnixMicro())
		require.Less(t, s.Int("HGET", lock, "token"), now.Add(25*time.Hour).UnixMicro())
	})
}

// What the clock of a client shows is nobody's business: whatever the server's shows, calls are served, and
// those that it refuses as late are few.
func TestClientsAndServerNeedNotAgreeOnTheTime(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
		kit.Parallel(t, apart.String(), func(t *testing.T) {
			s := redistest.Mini(t)
			s.Miniredis().SetTime(time.Now().Add(apart))
			m, other := dialMutex(t, s), dialMutex(t, s)
			ctx := kit.Within(t, kit.Patience/4)
			l := kit.Got(m.TryLock(ctx))(t)
			c := begin(ctx, other)
			queued(t, m, 1)
			l = kit.Next(t, l, c)
			require.InDelta(t, kit.ServerTime(s), l.Token(), float64(time.Minute.Microseconds()), "a token is the server's time")
			kit.Release(t, l)
			kit.Free(t, m)
		})
	}
}

// A balancer spreads the connections to one address over some servers, by turns.
type balancer struct {
	mu      sync.Mutex
	servers []func() (net.Conn, error)
	made    []net.Conn
}

func (b *balancer) option(o *headwaiter.Options) { o.Redis.DialCtxFn = b.dial }

func (b *balancer) dial(_ context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conn, err := b.servers[len(b.made)%len(b.servers)]()
	b.made = append(b.made, conn)
	return conn, err
}

// only leads what connects from now on to one server, and cuts some connections that there are.
func (b *balancer) only(to func() (net.Conn, error), cut ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = b.servers[:0]
	b.servers = append(b.servers, to)
	for _, i := range cut {
		b.made[i].Close()
	}
}

// to connects to a server by its address.
func to(s interface{ Addr() string }) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", s.Addr()) }
}

func TestAnAddressThatLeadsToTwoMastersIsRefused(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	two := &balancer{servers: []func() (net.Conn, error){to(a), to(b)}}
	kit.Fails(t, dialError(t, a, two.option), lease.ErrUnusable, "leads to two masters (replication ids ")

	o := headwaiter.Options{Redis: a.Option()}
	two.option(&o)
	r, err := doctor.Examine(t.Context(), o)
	require.ErrorContains(t, err, "leads to two masters")
	require.True(t, r.TwoMasters.Is(true))
	require.False(t, r.Aside.Known, "scripts of two servers run at the same time")
	require.Equal(t, "address", r.Warnings[0].Setting)
	require.Equal(t, doctor.Danger, r.Warnings[0].Severity)

	// Who may not ask is not told, and not hindered.
	for _, s := range []*redistest.Server{a, b} {
		s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-info")
	}
	kit.Dial(t, a, two.option, as("lock"))
}

// A connection to the old master, and one to the new: for the moment of a failover both may answer.
func TestAMasterThatHasTakenOverFromAnotherIsNoSecond(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	s.Replicas()[0].Do("REPLICAOF", "NO", "ONE")
	two := &balancer{servers: []func() (net.Conn, error){to(s.Master()), to(s.Replicas()[0])}}
	kit.Dial(t, s, two.option)
}

// pair are two embedded servers that say which master they are.
func pair(t *testing.T) (a, b *redistest.Embedded, two *balancer, o headwaiter.Options, seen *kit.Observer) {
	a, b = redistest.Bubble(t), redistest.Bubble(t)
	master(a, "aaaa")
	master(b, "bbbb")
	two = &balancer{servers: []func() (net.Conn, error){a.Dial}}
	seen = new(kit.Observer)
	o = headwaiter.Options{Redis: a.Option(), Observer: seen}
	two.option(&o)
	return a, b, two, o, seen
}

func master(s *redistest.Embedded, id string) {
	s.Answer("INFO", "# Replication\r\nrole:master\r\nmaster_replid:"+id+"\r\nmaster_replid2:0000\r\n")
}

func TestASecondMasterThatIsSeenLaterIsToldAndHindersNobody(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, _ *redistest.Embedded) {
		_, b, two, o, seen := pair(t)
		c := kit.Got(headwaiter.Dial(o))(t)
		held := hold(t, fairlock.New(c, "orders"))
		two.only(b.Dial, 0) // The connection for commands; that for renewals stays.
		synctime.Pass(time.Minute)
		require.NoError(t, held.Context().Err())
		require.EqualValues(t, 1, c.Stats().TwoMasters, "each new connection is told of once")
		require.Len(t, seen.Of(observe.TwoMasters), 1)
		require.ErrorContains(t, seen.Of(observe.TwoMasters)[0].Err, "leads to two masters (replication ids bbbb and aaaa)")
		require.NoError(t, hold(t, fairlock.New(c, "others")).Release(t.Context()))
		_ = c.Shutdown(t.Context()) // The other master knows nothing of the hold.
	})
}

func TestARestartWithoutDataIsNoSecondMaster(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, _ *redistest.Embedded) {
		a, _, two, o, seen := pair(t)
		c := kit.Got(headwaiter.Dial(o))(t)
		held := hold(t, fairlock.New(c, "orders"))
		master(a, "cccc")
		two.only(a.Dial, 0, 1)
		synctime.Pass(time.Minute)
		require.Zero(t, c.Stats().TwoMasters)
		require.Empty(t, seen.Of(observe.TwoMasters))
		kit.Release(t, held)
		require.NoError(t, c.Shutdown(t.Context()))
	})
}
