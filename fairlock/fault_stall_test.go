package fairlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// busyScript keeps the server busy for some time. Nothing of it is written, so it could be killed.
const busyScript = `local function now() local t = redis.call('TIME'); return t[1] * 1000 + t[2] / 1000 end
local t = now() + 600
while now() < t do end`

// rueidis panics where a busy server refuses an UNSUBSCRIBE and the PING that it sends after it.
func TestASubscriptionIsGivenUpWhileTheServerIsBusy(t *testing.T) {
	s := kit.Start(t)
	s.Do("CONFIG", "SET", "busy-reply-threshold", "50")
	m := dialMutex(t, s)
	waiter := fairlock.New(kit.Dial(t, s, linger(100*time.Millisecond)), kit.Name(t))
	for range 2 {
		kit.PassOn(t, hold(t, m), joins(t, 1, waiter, m))
		// The subscription has had its time before the server answers again.
		require.NoError(t, kit.Err(s.Try("EVAL", busyScript, "0")))
		kit.Eventually(t, "the channel to be free", func() bool { return len(s.List("PUBSUB", "CHANNELS", "*{*")) == 0 })
	}
}

// A client that lives answers the call that goes out when another lets a grant lapse. Else it would be a
// suspect from a second later on, and be passed over until it looks by itself.
func TestALapsedGrantMakesNoSuspectsOfThoseWhoLive(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const alive = 20 // More than those at the head, who look at that moment anyway.
		d := faults.NewDialer(t, s.Dial)
		holder, stopped := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l, silent := hold(t, holder), joins(t, 1, stopped, holder)
		var calls []*call
		for i := range alive {
			calls = append(calls, begin(t.Context(), dialMutex(t, s)))
			queued(t, holder, 2+i)
		}
		d.Freeze()
		l = kit.Next(t, l, calls[0])
		synctime.Pass(1100 * time.Millisecond) // Longer than an answer may take.
		released := time.Now()
		for i, c := range calls[1:] {
			kit.Release(t, l)
			synctest.Wait()
			require.True(t, c.Returned(), "call %d was passed over", 1+i)
			l = c.Value(t)
		}
		require.Less(t, time.Since(released), 100*time.Millisecond)
		kit.Release(t, l)
		d.Heal()
		kit.Release(t, silent.Value(t)) // It comes back by itself.
		kit.Free(t, holder)
	})
}

// A client that is told that a lease of its ran out looks at once, over a new connection.
func TestASuspectThatIsToldSoRejoinsAtOnce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, client := dialMutex(t, s), kit.Dial(t, s)
		l, c := hold(t, holder), joins(t, 1, fairlock.New(client, kit.Name(t)), holder)
		synctime.Pass(300 * time.Millisecond) // Now its next look is more than a second away.
		lock, queue, suspects := keysOf(kit.Name(t))
		ticket := s.List("ZRANGE", queue, "0", "-1")[0]
		place := s.Text("ZSCORE", queue, ticket)
		// As the script does that finds the lease over.
		s.Do("ZREM", queue, ticket)
		s.Do("HSET", lock, "marked", "1")
		s.Do("ZADD", suspects, s.Text("HGET", lock, "token"), client.ID())
		s.Do("PUBLISH", lock+":wake:"+client.ID(), "S "+ticket)
		synctime.Pass(time.Second)
		rejoined := s.List("ZRANGE", queue, "0", "-1")
		require.Len(t, rejoined, 1)
		require.Equal(t, place, s.Text("ZSCORE", queue, rejoined[0]), "with another arrival")
		require.Positive(t, client.Stats().Suspected)
		require.Empty(t, s.List("ZRANGE", suspects, "0", "-1"), "its look takes the mark back")
		kit.Release(t, l)
		synctest.Wait()
		kit.Release(t, c.Value(t))
		kit.Free(t, holder)
	})
}

// A client that dies as it holds never answers. What is usual is short again a minute after that, whether or not others wait.
func TestADeadHolderMakesALockSlowForAMinute(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		ms := []*fairlock.Mutex{dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)}
		lock, queue, suspects := keysOf(kit.Name(t))
		alone := func() map[string]int64 {
			s.ResetStats()
			for range 50 {
				kit.Release(t, hold(t, ms[0]))
			}
			return kit.Scripts(s)
		}
		handedOn := func() map[string]int64 {
			l, calls := hold(t, ms[0]), []*call{begin(t.Context(), ms[1])}
			synctest.Wait()
			s.ResetStats()
			for i := range 52 { // Somebody waits all the time.
				calls = append(calls, begin(t.Context(), ms[(i+2)%3]))
				synctest.Wait()
				l = kit.Next(t, l, calls[i])
			}
			scripts := kit.Scripts(s)
			kit.PassOn(t, l, calls[52])
			return scripts
		}
		for _, cycles := range []func() map[string]int64{alone, handedOn} {
			cycles()
			usual := cycles()
			s.Do("EVAL", lua.Fairlock.Ask.Source, "3", lock, queue, suspects, "dead:1:x:1:1000:1000", "wait", lua.Ever, "0", "0", "0", "1", "held")
			cycles()
			require.NotEqual(t, usual, cycles(), "it may come back")
			synctime.Pass(time.Minute)
			cycles()
			require.Equal(t, usual, cycles())
			require.Empty(t, s.List("ZRANGE", suspects, "0", "-1"))
		}
	})
}

// outages are the ways in which a server is out of reach, each for connections that stand and new ones.
var outages = []struct {
	name  string
	begin func(f *faults.Faults)
}{
	{"nothing moves", func(f *faults.Faults) { f.Freeze() }},
	{"requests vanish", func(f *faults.Faults) { f.Drop(faults.ToServer) }},
	{"replies vanish", func(f *faults.Faults) { f.Drop(faults.ToClient) }},
	{"connections are refused", func(f *faults.Faults) { f.Refuse(); f.Cut() }},
}

// inOutage runs a case in each outage: client has a hold, of free, and a waiting call, for busy, when it
// begins. The bubble fails the case if a goroutine is left at its end.
func inOutage(t *testing.T, run func(t *testing.T, o outage)) {
	t.Parallel()
	for _, x := range outages {
		kit.BubbleOf(t, x.name, func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			o := outage{Dialer: d, client: kit.Dial(t, s, kit.Over(d))}
			other := kit.Dial(t, s)
			busy := hold(t, fairlock.New(other, "busy"))
			o.held = hold(t, fairlock.New(o.client, "free"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.cancel, o.waiting = cancel, begin(ctx, fairlock.New(o.client, "busy"))
			queued(t, fairlock.New(other, "busy"), 1)
			x.begin(d.Faults)
			run(t, o)
			d.Heal()
			kit.Release(t, busy)
			for _, name := range []string{"busy", "free"} {
				kit.Release(t, hold(t, fairlock.New(other, name)))
			}
		})
	}
}

type outage struct {
	*faults.Dialer
	client  *headwaiter.Client
	held    *lease.Lease
	waiting *call
	cancel  context.CancelFunc
}

// promptly is how long something may take that depends on nobody.
const promptly = 500 * time.Millisecond

func TestACancelledCallReturnsAtOnceWhileRedisIsUnreachable(t *testing.T) {
	inOutage(t, func(t *testing.T, o outage) {
		ctx, cancel := context.WithCancel(t.Context())
		asking, confused := begin(ctx, fairlock.New(o.client, "another")), begin(ctx, fairlock.New(o.client, "free"))
		synctest.Wait()
		synctime.Pass(300 * time.Millisecond)
		begun := time.Now()
		cancel()
		o.cancel()
		for _, c := range []*call{asking, confused, o.waiting} {
			require.ErrorIs(t, c.Err(t), context.Canceled)
		}
		require.Less(t, time.Since(begun), promptly)
		o.Heal()
		kit.Release(t, o.held)
	})
}

func TestCloseReturnsWhenItsContextEndsWhileRedisIsUnreachable(t *testing.T) {
	inOutage(t, func(t *testing.T, o outage) {
		const given = 300 * time.Millisecond
		asking := begin(t.Context(), fairlock.New(o.client, "another"))
		synctest.Wait()
		ctx := kit.Within(t, given)
		begun := time.Now()
		require.ErrorIs(t, o.client.Shutdown(ctx), context.DeadlineExceeded)
		require.Less(t, time.Since(begun), given+promptly)
		require.ErrorIs(t, context.Cause(o.held.Context()), lease.ErrClientClosed)
		for _, c := range []*call{asking, o.waiting} {
			require.ErrorIs(t, c.Err(t), lease.ErrClosed)
		}
		require.Less(t, time.Since(begun), given+promptly)
	})
}

// An address leads to another server from now on, and the commands of a waiter's client go there. Its subscription
// stands where it was, and nobody closes that. The server that is asked counts no subscriber, so the waiter is skipped;
// its client must come to doubt what it hears (R10), or it is skipped at every release.
func TestAWaiterWhoseSubscriptionStaysBehindIsNotSkippedForEver(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t)
	var address atomic.Value
	address.Store(before.Addr())
	follows := fairlock.New(kit.Dial(t, before, func(o *headwaiter.Options) {
		o.Redis.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address.Load().(string))
		}
	}), kit.Name(t))
	there := dialMutex(t, before)
	hold(t, there)
	waiter := joins(t, 1, follows, there)

	first, second := dialMutex(t, after), dialMutex(t, after)
	l := hold(t, first)
	address.Store(after.Addr())
	before.Do("CLIENT", "KILL", "TYPE", "normal")

	for skipped := 0; ; skipped++ {
		require.LessOrEqual(t, skipped, 4, "times that it was skipped")
		queued(t, first, 1) // It comes back by its looks.
		later := joins(t, 2, second, first)
		kit.Release(t, l)
		kit.Eventually(t, "a grant", func() bool { return waiter.Returned() || later.Returned() })
		if waiter.Returned() {
			kit.PassOn(t, waiter.Value(t), later)
			return
		}
		l = later.Value(t)
		first, second = second, first
	}
}

// The last request of a call is often ended by the call's own deadline. That says nothing of the server. Chance decides
// which of the two is seen first, and only on a connection that has answered so far, hence many rounds.
func TestTheLastErrorIsThatOfTheServer(t *testing.T) {
	const given = 100 * time.Millisecond // For so long the caller waits.
	for round := range 20 {
		kit.BubbleOf(t, strconv.Itoa(round), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			prompt, late := dialMutex(t, s), fairlock.New(kit.Dial(t, s, linger(time.Hour), kit.Over(d)), kit.Name(t))
			kit.PassOn(t, hold(t, prompt), joins(t, 1, late, prompt)) // So it subscribes.
			synctime.Pass(2 * given)                                  // The check after the subscription comes in that time: the error of a check that fails would be the last.
			s.Fail("LOADING Redis is loading the dataset in memory")
			c := begin(kit.Within(t, given), late)
			synctime.Pass(given / 2)
			d.Freeze(faults.ToClient)
			kit.Fails(t, c.Err(t), context.DeadlineExceeded, "LOADING")
			d.Heal()
			s.Fail("")
			kit.Release(t, hold(t, late))
		})
	}
}
