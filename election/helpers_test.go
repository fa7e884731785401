package election_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// looks is within which time who observes finds out what no message tells.
const looks = 3 * time.Second

// lead campaigns, and returns the leadership.
func lead(t testing.TB, e *election.Election, value string) *lease.Lease {
	t.Helper()
	return candidate(e, value).Value(t)
}

// candidate begins a campaign.
func candidate(e *election.Election, value string) *kit.Call[*lease.Lease] {
	return kit.Go(func() (*lease.Lease, error) { return e.Campaign(context.Background(), value) })
}

// nobody asserts that there is no leader.
func nobody(t testing.TB, e *election.Election) {
	t.Helper()
	require.ErrorIs(t, kit.Err(e.Leader(context.Background())), lease.ErrNoLeader)
}

// leads asserts who leads.
func leads(t testing.TB, e *election.Election, value string, l *lease.Lease) {
	t.Helper()
	got := kit.Got(e.Leader(context.Background()))(t)
	require.Equal(t, value, got.Value)
	require.Equal(t, l.Token(), got.Token)
	require.Contains(t, got.Who, "test@")
	require.NoError(t, got.Err)
}

// next receives the next news of an observation.
func next(t testing.TB, news <-chan lease.Leader) lease.Leader {
	t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	select {
	case l, ok := <-news:
		require.True(t, ok, "the observation has ended")
		return l
	case <-limit.C:
		t.Fatalf("waited %v in vain for news of the leader", kit.Patience)
		return lease.Leader{}
	}
}

// until receives news until those that are wanted. Others may come before.
func until(t testing.TB, news <-chan lease.Leader, value string, token uint64) {
	t.Helper()
	for {
		l := next(t, news)
		require.NoError(t, l.Err)
		if l.Value == value && l.Token == token {
			return
		}
	}
}

// ended receives the rest of an observation.
func ended(t testing.TB, news <-chan lease.Leader) (last lease.Leader) {
	t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	for {
		select {
		case l, ok := <-news:
			if !ok {
				return last
			}
			last = l
		case <-limit.C:
			t.Fatalf("waited %v in vain for the end of an observation", kit.Patience)
		}
	}
}

// lockKey is the key of an election under the default prefix, and wake the channel of the observers.
func lockKey(name string) string { return "headwaiter:election:{" + name + "}" }
func wake(name string) string    { return lockKey(name) + ":wake" }

// hearing waits until n clients observe.
func hearing(t testing.TB, s redistest.Backend, name string, n int64) {
	t.Helper()
	kit.Eventually(t, "the observers to hear", func() bool {
		return s.Do("PUBSUB", "NUMSUB", wake(name)).([]any)[1].(int64) == n
	})
}

// of returns the election of the test as a new client sees it.
func of(t testing.TB, s redistest.Backend, changes ...func(*headwaiter.Options)) (*election.Election, *headwaiter.Client) {
	t.Helper()
	c := kit.Dial(t, s, changes...)
	return election.New(c, kit.Name(t)), c
}

// A campaign is an ask and a proclamation, a resignation one script; one message tells of each, to whoever observes.
func TestLeadingAloneIsThreeScriptsAndTwoMessages(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const n = 50
		e, _ := of(t, s)
		l := lead(t, e, "a") // Now the server knows the scripts.
		kit.Listening(t, s, 1)
		kit.Release(t, l)
		s.ResetStats()
		for range n {
			kit.Release(t, lead(t, e, "a"))
		}
		require.Equal(t, map[string]int64{"evalsha": 3 * n, "publish": 2 * n}, kit.Scripts(s))
		l = lead(t, e, "a")
		leads(t, e, "a", l)
		s.ResetStats()
		for range n {
			require.NoError(t, e.Proclaim(t.Context(), l, "b"))
			leads(t, e, "b", l)
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * n, "publish": n}, kit.Scripts(s))
		kit.Release(t, l)
	})
}

// watching is how many observe in the tests of what that costs.
const watching = 20

// handOver lets the lead go from one to the other, so often, and returns what that took each time.
func handOver(t *testing.T, a, b *election.Election, times int) (spans []time.Duration) {
	t.Helper()
	l := lead(t, a, "first")
	for i := range times {
		to := []*election.Election{b, a}[i%2]
		c := candidate(to, "next")
		kit.Waiting(t, 1, a.Inspect)
		begun := time.Now()
		l = kit.Next(t, l, c)
		spans = append(spans, time.Since(begun))
	}
	kit.Release(t, l)
	return spans
}

// What a hand-off costs the server does not depend on who observes: the grant is one message, and the news another.
func TestWhoObservesAddsOneMessageToAHandOff(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const times = 20
		a, _ := of(t, s)
		b, _ := of(t, s)
		handOver(t, a, b, 2)
		publishes := func() int64 {
			s.ResetStats()
			handOver(t, a, b, times)
			return kit.Scripts(s)["publish"]
		}
		// The first and the last are not handed on: a proclamation, and a resignation that leaves nobody.
		require.EqualValues(t, 2*times+2, publishes())
		clients := make([]*headwaiter.Client, watching)
		for i := range clients {
			clients[i] = kit.Dial(t, s)
			require.Zero(t, next(t, election.New(clients[i], kit.Name(t)).Observe(t.Context())))
		}
		hearing(t, s, kit.Name(t), watching)
		require.EqualValues(t, 2*times+2, publishes())
		for _, c := range clients {
			require.LessOrEqual(t, c.Stats().Messages, uint64(times+2), "one message a change")
		}
	})
}

// Observing is a look and a wait for each change, and rare looks while nothing changes.
func TestAChangeCostsWhoObservesTwoRoundTrips(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const n = 20
		e, _ := of(t, s)
		other, c := of(t, s)
		l := lead(t, e, "a")
		news := other.Observe(t.Context())
		until(t, news, "a", l.Token())
		require.NoError(t, e.Proclaim(t.Context(), l, "b")) // Now the server knows the scripts.
		until(t, news, "b", l.Token())
		synctime.Pass(time.Second) // The first look is over.
		checks := c.Stats().Checks
		s.ResetStats()
		for i := range n {
			value := string(rune('c' + i))
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			until(t, news, value, l.Token())
			synctest.Wait() // It waits for the next one.
		}
		looked := int64(c.Stats().Checks - checks)
		require.LessOrEqual(t, looked, int64(1))
		got := kit.Scripts(s)
		require.Equal(t, 3*n+looked, got["evalsha"])
		require.EqualValues(t, n, got["publish"])
		require.Zero(t, got["subscribe"])
		kit.Release(t, l)
	})
}

// Where many observe, not all look at the end of each lease: then their looks would cost more than the campaigns.
func TestWhereManyObserveTheyLookMoreRarely(t *testing.T) {
	s := kit.Start(t)
	e, _ := of(t, s)
	l := lead(t, e, "a")
	ends := kit.Until(s, lockKey(e.Name()))
	told := func() int64 {
		return s.Do("EVAL", lua.Leadership.Check.Source, "1", lockKey(e.Name()), "c", wire.Hears, "0", "0", "1").([]any)[3].(int64)
	}
	listen := func(n int) {
		for range n {
			conn := kit.Got(net.Dial("tcp", s.Addr()))(t)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, kit.Err(fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", wake(e.Name()))))
		}
	}
	listen(200)
	hearing(t, s, e.Name(), 200)
	require.GreaterOrEqual(t, told(), ends)
	listen(1)
	hearing(t, s, e.Name(), 201)
	require.Zero(t, told())
	kit.Release(t, l)
}

var errStop = errors.New("stop")

func TestARunCampaignsAgainAfterEachLossAndEndsWithItsFunction(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, c, other *headwaiter.Client) {
		e := election.New(c, "name")
		losses := []func(){
			func() { require.NoError(t, kit.Err(election.New(other, "name").ForceRelease(t.Context(), 0))) },
			func() { s.Do("FLUSHALL") },
		}
		var last uint64
		calls, running := 0, false
		err := e.Run(t.Context(), "value", func(ctx context.Context) error {
			require.False(t, running)
			running = true
			defer func() { running = false }()
			l, ok := lease.FromContext(ctx)
			require.True(t, ok)
			require.Greater(t, l.Token(), last)
			last = l.Token()
			require.Equal(t, "value", kit.Got(e.Leader(ctx))(t).Value)
			calls++
			if calls > len(losses) {
				return errStop
			}
			losses[calls-1]()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			synctime.Pass(time.Minute) // It comes back when it likes.
			return errors.New("whatever it returns then")
		})
		require.Equal(t, errStop, err)
		require.Equal(t, 3, calls)
		require.ErrorIs(t, kit.Err(e.Leader(t.Context())), lease.ErrNoLeader, "it has resigned")
	})
}

func TestARunEndsWithItsContext(t *testing.T) {
	gone := errors.New("terminated")
	for name, leads := range map[string]bool{"while it leads": true, "while it waits": false} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			c, other := kit.Dial(t, s), kit.Dial(t, s)
			var l *lease.Lease
			if !leads {
				l = kit.Got(election.New(other, "name").Campaign(t.Context(), "other"))(t)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			run := kit.Run(func() error {
				return election.New(c, "name").Run(ctx, "value", func(ctx context.Context) error {
					require.True(t, leads)
					<-ctx.Done()
					return context.Cause(ctx)
				})
			})
			synctime.Pass(time.Minute)
			require.False(t, run.Returned())
			cancel(gone)
			require.ErrorIs(t, run.Err(t), gone)
			if l != nil {
				kit.Release(t, l)
			}
			synctest.Wait()
			kit.Release(t, kit.Got(election.New(other, "name").Campaign(t.Context(), "other"))(t))
		})
	}
}

// The maximum wait is for each campaign, and it ends the run: somebody else leads for longer than was expected.
func TestARunWhoseCampaignFailsEnds(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, c, other *headwaiter.Client) {
		never := func(context.Context) error { panic("it leads") }
		l := kit.Got(election.New(other, "name").Campaign(t.Context(), "other"))(t)
		err := election.New(c, "name", headwaiter.WithMaxWait(time.Second)).Run(t.Context(), "value", never)
		kit.Fails(t, err, lease.ErrWaitTimeout, `election: campaign "name": `)
		err = election.New(c, "name").Run(t.Context(), string(make([]byte, lease.MaxValue+1)), never)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		require.ErrorIs(t, election.New(c, "").Run(t.Context(), "value", never), lease.ErrInvalid)
		run := kit.Run(func() error { return election.New(c, "name").Run(t.Context(), "value", never) })
		synctest.Wait()
		require.NoError(t, c.Shutdown(t.Context()))
		require.ErrorIs(t, run.Err(t), lease.ErrClosed)
		kit.Release(t, l)
	})
}

// What ends the lead of a client that closes is a loss, and the next campaign finds the client closed.
func TestARunEndsWithItsClient(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		run := kit.Run(func() error {
			return election.New(c, "name").Run(t.Context(), "value", func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
		synctime.Pass(time.Second)
		require.NoError(t, c.Shutdown(t.Context()))
		require.ErrorIs(t, run.Err(t), lease.ErrClosed)
	})
}

func TestARunResignsWhenItsFunctionPanics(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e := election.New(kit.Dial(t, s), "name")
		require.PanicsWithValue(t, "no", func() {
			_ = e.Run(t.Context(), "value", func(context.Context) error { panic("no") })
		})
		require.ErrorIs(t, kit.Err(e.Leader(t.Context())), lease.ErrNoLeader)
	})
}

// A function may lose a lock of its own while it leads.
func TestARunTakesNoOtherLossForItsOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		calls := 0
		err := election.New(kit.Dial(t, s), "name").Run(t.Context(), "value", func(context.Context) error {
			if calls++; calls > 1 {
				return errStop
			}
			return lease.ErrForced
		})
		require.ErrorIs(t, err, lease.ErrForced)
		require.Equal(t, 1, calls)
	})
}
