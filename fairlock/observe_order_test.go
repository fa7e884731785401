package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	look "github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// deaf sees to it that a client hears of no subscription, until it is told that a call failed.
type deaf struct {
	*kit.Observer
	dialer *faults.Dialer
}

func (o deaf) Observe(ctx context.Context, x observe.Observation) {
	o.Observer.Observe(ctx, x)
	if x.Event == observe.Failed {
		o.dialer.LosePushes(0, nil)
		o.dialer.Cut()
		synctime.Pass(5 * time.Second) // Its check has found a place for what still waits.
	}
}

func TestNothingIsToldOfACallAfterItsEnd(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		o := deaf{&kit.Observer{}, d}
		holder, client := dialMutex(t, s), kit.Dial(t, s, kit.Observed(o), kit.Over(d))
		l := hold(t, holder)
		d.LosePushes(1<<30, func(push []string) bool { return push[0] == "subscribe" })
		require.ErrorIs(t, kit.Err(fairlock.New(client, kit.Name(t)).Lock(kit.Within(t, 50*time.Millisecond))), context.DeadlineExceeded)
		require.Equal(t, []string{"began, failed"}, o.Story())
		kit.Release(t, l)
	})
}

// grammar is how the story of a call can go.
const grammar = `^began(, queued)?(, failed|, granted(, renewed|, renewal failed|, held for long)*, (released|lost))$`

func TestWhateverHappensTheStoryOfACallIsInOrder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			clients = 3
			workers = 4
			cycles  = 15
		)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		observers := make([]*kit.Observer, clients)
		var late [clients]atomic.Int64 // calls whose context had ended when they were made: they have no story
		var work sync.WaitGroup
		for i := range clients {
			observers[i] = &kit.Observer{}
			c := kit.Dial(t, s, kit.Observed(observers[i]), func(o *headwaiter.Options) { o.HeldTooLong = time.Millisecond })
			cohort := []fairlock.Option{fairlock.WithCohort(3 * i)} // The first has none.
			for j := range workers {
				random := rand.New(rand.NewPCG(seed, uint64(i*workers+j)))
				work.Go(func() { late[i].Add(disturbed(c, random, kit.Name(t), cycles, cohort...)) })
			}
		}
		kit.All(t, &work)
		for i, o := range observers {
			calls := map[int][]string{}
			for _, x := range o.All() {
				calls[x.Call] = append(calls[x.Call], x.Event.String())
			}
			delete(calls, 0)
			require.Len(t, calls, workers*cycles-int(late[i].Load()))
			for _, moments := range calls {
				require.Regexp(t, grammar, strings.Join(moments, ", "))
			}
		}
	})
}

func TestACallWhoseContextHadEndedHasNoStoryAndHasNotWaited(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		o := &kit.Observer{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Zero(t, kit.As[*lease.WaitError](t, kit.Err(m.Lock(ctx))).Waited)
		require.Empty(t, o.Story())
	})
}

// disturbed takes and releases a lock while calls are given up and holds are released by force. It returns how many of
// its calls had a context that had ended already.
func disturbed(c *headwaiter.Client, random *rand.Rand, name string, cycles int, opts ...fairlock.Option) (late int64) {
	m := fairlock.New(c, name, append(opts, headwaiter.WithLease(time.Second))...)
	for range cycles {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		if random.IntN(3) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+random.IntN(5000))*time.Microsecond)
		}
		lock := m.Lock
		if random.IntN(4) == 0 {
			lock = m.TryLock
		}
		l, err := lock(ctx)
		cancel()
		if err != nil {
			var ended *lease.WaitError
			if errors.As(err, &ended) && ended.Waited == 0 {
				late++
			}
			continue
		}
		if random.IntN(6) == 0 {
			_, _ = m.ForceRelease(context.Background(), l.Token())
		}
		_ = l.Release(context.Background()) // It may be lost.
	}
	return late
}

func TestWhatACohortPassesOnIsToldAsHoldsOfTheirOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t), fairlock.WithCohort(5))
		l, ctx := hold(t, m), kit.Within(t, 500*time.Millisecond)
		calls := []*call{begin(t.Context(), m)}
		synctest.Wait()
		gone := begin(ctx, m)
		synctest.Wait()
		calls = append(calls, begin(t.Context(), m))
		synctime.Pass(time.Second)
		require.ErrorIs(t, gone.Err(t), context.DeadlineExceeded)
		for _, c := range calls {
			l = kit.Next(t, l, c)
			require.Equal(t, l.Token(), o.Of(observe.Granted)[len(o.Of(observe.Granted))-1].Token)
			synctime.Pass(time.Second)
		}
		kit.Release(t, l)
		require.Equal(t, []string{
			"began, granted, released", "began, granted, released", "began, failed", "began, granted, released",
		}, slices.DeleteFunc(o.Story(), func(s string) bool { return s == "woken" }))
		for i, x := range o.Of(observe.Granted) {
			require.InDelta(t, time.Duration(i)*time.Second, x.Waited, float64(50*time.Millisecond))
			require.Equal(t, []string{"", "1", "2"}[i], x.Note, "of the hold before")
		}
		for _, x := range o.Of(observe.Released) {
			require.InDelta(t, time.Second, x.Held, float64(50*time.Millisecond))
		}
	})
}

func TestAHoldThatWasPassedOnAndLastsTooLongIsToldInTime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o), func(o *headwaiter.Options) { o.HeldTooLong = time.Second })
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(5))
		l := hold(t, m)
		next := begin(t.Context(), m)
		synctime.Pass(1500 * time.Millisecond)
		l = kit.Next(t, l, next)
		synctime.Pass(1500 * time.Millisecond) // Less than until the next renewal.
		kit.Release(t, l)
		long := o.Of(observe.HeldLong)
		require.Len(t, long, 2)
		for i, x := range long {
			require.InDelta(t, time.Second, x.Held, float64(50*time.Millisecond))
			require.Equal(t, o.Of(observe.Granted)[i].Token, x.Token)
		}
	})
}

func TestTheObserverIsToldOfDeadWaitersThatAreSkipped(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		holder, waiter := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t)), dialMutex(t, s)
		l := hold(t, holder)
		bury(t, s, kit.Name(t), 7)
		kit.PassOn(t, l, joins(t, 8, waiter, holder))
		skipped := o.Of(observe.Skipped)
		require.Len(t, skipped, 1)
		require.Equal(t, 7, skipped[0].Count)
		require.Equal(t, kit.Name(t), skipped[0].Name)
	})
}

func TestTheObserverIsToldOfLeasesThatRanOutAndTheirClientThatItIsASuspect(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		cut, o, d := &kit.Observer{}, &kit.Observer{}, faults.NewDialer(t, s.Dial)
		dead := fairlock.New(kit.Dial(t, s, kit.Observed(cut), kit.Over(d)), kit.Name(t), headwaiter.WithLease(time.Second))
		waiter := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t))
		l, next := hold(t, dead), joins(t, 1, waiter, waiter)
		d.Away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		held := next.Value(t)
		expired := o.Of(observe.Expired)
		require.Len(t, expired, 1)
		require.Equal(t, 1, expired[0].Count)
		d.Heal()
		kit.PassOn(t, held, joins(t, 1, dead, waiter))
		require.NotEmpty(t, cut.Of(observe.Suspected), "its next look says so")
	})
}

func TestTheObserverIsToldOfWhatChecksFind(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o, d := &kit.Observer{}, faults.NewDialer(t, s.Dial)
		holder, c := dialMutex(t, s), kit.Dial(t, s, kit.Observed(o), kit.Over(d))
		waiter, l := fairlock.New(c, kit.Name(t)), hold(t, holder)
		next := joins(t, 1, waiter, holder)
		lock, queue, _ := keysOf(kit.Name(t))
		ticket := s.List("ZRANGE", queue, "0", "-1")[0]

		s.Do("DEL", queue)
		synctime.Pass(3 * time.Second) // It has looked.
		rejoined := o.Of(observe.Rejoined)
		require.Len(t, rejoined, 1)
		require.Equal(t, ticket, rejoined[0].Ticket)

		for looks := c.Stats().Checks; c.Stats().Checks == looks; {
			synctime.Pass(10 * time.Millisecond)
		}
		synctime.Pass(time.Second) // So that it looks again before the grant lease ends.
		d.LosePushes(1, kit.Notices(wire.MessageGrant))
		l = kit.Next(t, l, next)
		synctime.Pass(time.Second)
		missed := o.Of(observe.Missed)
		require.Len(t, missed, 1)
		require.Equal(t, ticket, missed[0].Ticket)
		kit.Release(t, l)

		// As if a grant came after the end of its ticket.
		held := begin(t.Context(), waiter).Value(t)
		stale := strings.Replace(ticket, ":", ":9", 1)
		now := kit.ServerTime(s)
		s.Do("PUBLISH", lock+":wake:"+c.ID(), fmt.Sprintf("G %s %d 0 1000", stale, now))
		synctest.Wait()
		back := o.Of(observe.GivenBack)
		require.Len(t, back, 1)
		require.Equal(t, stale, back[0].Ticket)
		kit.Release(t, held)
	})
}

// past is the history of the lock of the test.
func past(t testing.TB, c *headwaiter.Client) []look.Ended {
	t.Helper()
	return kit.Got(look.History(t.Context(), c, kit.Name(t)))(t)
}

func TestAHistorySaysOfTheLastHoldsHowTheyEnded(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		a, b := kit.Dial(t, s), kit.Dial(t, s, kit.Over(d))
		opts := []fairlock.Option{fairlock.WithHistory(4), headwaiter.WithLease(2 * time.Second)}
		m, n := fairlock.New(a, kit.Name(t), opts...), fairlock.New(b, kit.Name(t), opts...)
		require.Empty(t, past(t, a))
		kit.Release(t, hold(t, m)) // One too many.

		released := hold(t, m) // And handed on.
		waits := joins(t, 1, n, m)
		forced := kit.Next(t, released, waits)
		require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, forced), lease.ErrForced)
		expired := hold(t, n)
		waits = joins(t, 1, m, m)
		d.Freeze()
		unlocked := waits.Value(t)
		unlocked.Unlock()
		kit.Eventually(t, "the last end to be there", func() bool { return past(t, a)[0].Token == unlocked.Token() })

		all := past(t, a)
		require.Len(t, all, 4)
		for i, want := range []struct {
			held *lease.Lease
			by   *headwaiter.Client
			how  string
		}{{unlocked, a, "released"}, {expired, b, "expired"}, {forced, b, "forced"}, {released, a, "released"}} {
			require.Equal(t, want.held.Token(), all[i].Token)
			require.Equal(t, want.how, all[i].How)
			require.Equal(t, want.by.ID(), all[i].Client)
			require.True(t, strings.HasPrefix(all[i].Ticket, want.by.ID()))
			require.Regexp(t, `#\d+$`, all[i].Who)
			require.False(t, all[i].Until.Before(all[i].Since))
			if i > 0 {
				require.False(t, all[i-1].Since.Before(all[i].Until), "they did not hold together")
			}
		}
		left := time.Duration(s.Int("PTTL", lua.Fairlock.Keys("headwaiter", kit.Name(t)).History)) * time.Millisecond
		require.InDelta(t, 24*time.Hour, left, float64(kit.Patience))
	})
}

// Tokens that are ahead of the clock do not say since when a hold lasts.
func TestAHistoryTellsTheTimesOfHoldsWhoseTokensAreAheadOfTheClock(t *testing.T) {
	kit.Two(t, func(t *testing.T, s redistest.Backend, c, other *headwaiter.Client) {
		waitqueue.Above((*waitqueue.Client)(c), uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
		m, n := fairlock.New(c, kit.Name(t), fairlock.WithHistory(9)), fairlock.New(other, kit.Name(t), fairlock.WithHistory(9))
		for range 2 {
			kit.PassOn(t, hold(t, m), joins(t, 1, n, m))
		}
		all := past(t, c)
		require.Len(t, all, 4)
		for _, e := range all {
			require.Less(t, e.Until.Sub(e.Since), kit.Patience)
			require.GreaterOrEqual(t, e.Until, e.Since)
		}
	})
}

// spoken is what differs from one run to the other: ids of clients, and times; an ask may have one or two of these.
var spoken = regexp.MustCompile(`[A-Za-z0-9_-]{22}|\d{10,}( \d{10,})?`)

// sent are the requests of a story of two clients: a hold, a hand-off, a try that finds somebody, an Unlock.
func sent(t *testing.T, opts ...fairlock.Option) (requests []string) {
	s := redistest.Bubble(t)
	m, n := fairlock.New(kit.Dial(t, s), "name", opts...), fairlock.New(kit.Dial(t, s), "name", opts...)
	story := func() {
		l := hold(t, m)
		waits := begin(t.Context(), n)
		synctest.Wait()
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		kit.PassOn(t, l, waits)
		hold(t, m).Unlock()
		kit.Release(t, hold(t, m))
	}
	story() // The server knows the scripts from now on, and both listen.
	stop := check.Follow(t, s, func(c check.Command) {
		if strings.ToUpper(c.Words[0]) == "EVALSHA" {
			requests = append(requests, "EVALSHA "+c.Words[1]+" "+spoken.ReplaceAllString(strings.Join(c.Words[2:], " "), "?"))
		}
	})
	story()
	stop()
	return requests
}

func TestWithoutAHistoryTheSameIsSentAsBefore(t *testing.T) {
	var plain, none, kept []string
	synctest.Test(t, func(t *testing.T) { plain = sent(t) })
	synctest.Test(t, func(t *testing.T) { none = sent(t, fairlock.WithHistory(0)) })
	synctest.Test(t, func(t *testing.T) { kept = sent(t, fairlock.WithHistory(5)) })
	require.Equal(t, plain, none)
	known := map[string]bool{}
	for _, script := range []*lua.Script{lua.Fairlock.Ask, lua.Fairlock.End} {
		known[script.SHA] = true
		require.NotContains(t, script.Source, "LPUSH")
	}
	for _, request := range plain {
		require.True(t, known[strings.Fields(request)[1]], request)
		require.NotContains(t, request, "history")
	}
	ends := 0
	for i, request := range kept {
		if rest, ok := strings.CutPrefix(request, "EVALSHA "+lua.Fairlock.End.Logged().SHA+" "); ok {
			ends++
			keys, _ := strconv.Atoi(rest[:1])
			rest = strings.Replace(rest[1:], " headwaiter:lock:{name}:history", "", 1)
			kept[i] = fmt.Sprint("EVALSHA ", lua.Fairlock.End.SHA, " ", keys-1, strings.TrimSuffix(rest, " 5"))
		}
	}
	require.Equal(t, 4, ends)
	require.Equal(t, plain, kept, "the ends have a key and an argument more, and that is all")
}

func TestAHistoryNeedsItsRightsBeforeAnythingIsGivenBack(t *testing.T) {
	s := kit.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret")
	found := line.FindStringSubmatch(dialError(t, s, as("lock")).Error())
	s.Do(append([]string{"ACL", "SETUSER", "lock"}, strings.Fields(found[1])...)...)
	c := kit.Dial(t, s, as("lock"))
	m := fairlock.New(c, kit.Name(t), fairlock.WithHistory(3), headwaiter.WithLease(2*time.Second))
	require.ErrorContains(t, hold(t, m).Release(kit.Within(t, kit.Patience)), "lacks a right")
	require.True(t, kit.Got(m.Inspect(t.Context()))(t).Held, "nothing was half done")

	s.Do("ACL", "SETUSER", "lock", "+llen", "+lpush", "+ltrim", "+lrange")
	kit.Release(t, hold(t, m))
	require.Equal(t, "released", past(t, c)[0].How)
}
