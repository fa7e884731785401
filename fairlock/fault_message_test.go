package fairlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// pass hands a lock from its holder to the one that waits, while lose may see to it that the message does
// not come. The lease of the holder is a second, so that the waiter looks before its grant lapses.
func pass(t *testing.T, from, to *fairlock.Mutex, lose func()) {
	t.Helper()
	l, c := hold(t, from), joins(t, 1, to, from)
	lose()
	l = kit.Next(t, l, c)
	holds(t, from, l)
	kit.Release(t, l)
	kit.Free(t, from)
}

func TestAGrantWhoseMessageAndCheckAreLostIsFoundByTheNextCheck(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, p *faults.Dialer) {
		holder, waiter := dialMutex(t, s, headwaiter.WithLease(time.Second)), fairlock.New(kit.Dial(t, s, kit.Over(p)), kit.Name(t))
		pass(t, holder, waiter, func() {
			p.LosePushes(1, kit.Notices(wire.MessageGrant))
			p.LoseReplies(3, kit.Runs(lua.Fairlock.Check))
		})
		replies, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		require.Equal(t, 3, replies)
	})
}

func TestAClientThatHearsNothingTakesItsTurnByItsChecks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		s.DropPublish(1 << 40)
		for range 20 {
			l := hold(t, holder)
			c := begin(t.Context(), waiter)
			synctest.Wait()
			released := time.Now()
			l = kit.Next(t, l, c)
			require.Less(t, time.Since(released), 4*time.Second)
			holds(t, holder, l)
			kit.Release(t, l)
			kit.Free(t, holder)
		}
		require.Positive(t, s.Dropped())
	})
}

func TestNobodyIsLostWhileConnectionsAreKilled(t *testing.T) {
	s := kit.Start(t)
	whileKilled(t, s, 15, 15, func() int {
		return int(s.Int("CLIENT", "KILL", "TYPE", "normal") + s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	})
}

// whileKilled lets four clients take turns while connections are killed three times a second: so often at least, and until
// each of the clients has held so often.
func whileKilled(t *testing.T, s *redistest.Server, rounds, turns int, kill func() int) {
	t.Helper()
	const (
		clients = 4
		pause   = 300 * time.Millisecond
	)
	observer := dialMutex(t, s)
	c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
	killed := 0
	// The pause is part of the fault: it is how often connections are killed, where a hand-off does not take longer.
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for range rounds {
		<-ticks.C
		killed += kill()
		before := c.turns()
		kit.Eventually(t, "turns after a kill", func() bool { return c.turns() >= before+clients })
	}
	kit.Eventually(t, "everybody's turns", func() bool { return c.fewest(clients) >= turns })
	c.end(t)
	t.Logf("%d hand-offs while %d connections were killed, the longest wait was %v", c.handed, killed, c.longest)
	require.Greater(t, killed, rounds/2)
	kit.Free(t, observer)
}

func TestAWaiterThatCannotHearAnyMoreIsServedWithoutDelay(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		holder, waiter := dialMutex(t, s, headwaiter.WithLease(3*time.Second)), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		pass(t, holder, waiter, func() {})
		l := hold(t, holder)
		until := number(t, s, kit.Name(t), "until")
		synctime.Pass(1500 * time.Millisecond)
		require.Greater(t, number(t, s, kit.Name(t), "until"), until, "no renewal")
		// Now the waiter has a subscription, and no look left from before it had.
		c := joins(t, 1, waiter, holder)
		d.Refuse()
		require.Equal(t, 1, d.CutListeners())
		synctest.Wait()
		released := time.Now()
		l = kit.Next(t, l, c)
		// Who cannot hear looks often; else the next look would come after at least 1.5 s.
		require.Less(t, time.Since(released), time.Second)
		kit.Release(t, l)
		d.Heal()
		kit.Free(t, holder)
		pass(t, holder, waiter, func() {})
	})
}

// A second notice of a grant that is held is nothing to give back: that would free what is held.
func TestASecondNoticeOfAGrantIsDropped(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, client := dialMutex(t, s), kit.Dial(t, s)
		l, c := hold(t, holder), joins(t, 1, fairlock.New(client, kit.Name(t)), holder)
		l = kit.Next(t, l, c)
		lock, _, _ := keysOf(kit.Name(t))
		at := number(t, s, kit.Name(t), "token") - 1 // It follows another grant of the same microsecond.
		notice := fmt.Sprintf("G %s %d %d %d", s.Text("HGET", lock, "owner"), at, int64(l.Token())-at,
			(number(t, s, kit.Name(t), "until")-at)/1000)
		for range 3 {
			heard := client.Stats().Messages
			s.Do("PUBLISH", lock+":wake:"+client.ID(), notice)
			synctest.Wait()
			require.Equal(t, heard+1, client.Stats().Messages)
			holds(t, holder, l)
			synctime.Pass(time.Second)
		}
		require.Zero(t, client.Stats().GivenBack)
		kit.Release(t, l)
		kit.Free(t, holder)
	})
}

// A notice that was long on its way is of a grant that may be over: somebody may hold since.
func TestAnOldGrantIsConfirmedBeforeItIsTaken(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		holder, waiter := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l, c := hold(t, holder), joins(t, 1, waiter, holder)
		synctime.Pass(300 * time.Millisecond) // Its next look is far.
		d.Freeze(faults.ToClient)
		kit.Release(t, l)
		require.True(t, inspect(t, holder).Held, "it was granted")
		force(t, holder)
		l = kit.Got(holder.TryLock(t.Context()))(t)
		synctime.Pass(time.Second) // Half of the grant lease.
		d.Heal()
		synctest.Wait()
		require.False(t, c.Returned(), "two hold")
		holds(t, holder, l)
		queued(t, holder, 1)
		kit.PassOn(t, l, c)
		kit.Free(t, holder)
	})
}

// However long the answers to renewals take, a holder's deadline is never after the end of its lease at the server, and
// the hold goes on while an answer to a keep-alive and one to a renewal behind it take less than a connection may.
func TestTheDeadlineIsBeforeTheEndOfTheLeaseAtTheServer(t *testing.T) {
	for _, c := range []struct{ lease, delay time.Duration }{
		{3 * time.Second, 300 * time.Millisecond},
		{3 * time.Second, 480 * time.Millisecond},
		{10 * time.Second, 480 * time.Millisecond},
	} {
		kit.BubbleOf(t, fmt.Sprint(c.lease, " late by ", c.delay), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			client := kit.Dial(t, s, kit.Over(d))
			l := hold(t, fairlock.New(client, kit.Name(t), headwaiter.WithLease(c.lease)))
			d.Delay(c.delay, faults.ToClient)
			for client.Stats().Renewals < 6 {
				synctime.Pass(50 * time.Millisecond) // Where both have the same clock.
				require.NoError(t, l.Context().Err())
				require.Less(t, l.Deadline().UnixMicro(), number(t, s, kit.Name(t), "until"))
			}
			d.Heal()
			kit.Release(t, l)
		})
	}
}

// Answers that come later than a connection may take cost the hold at worst, and never before its holder knows.
func TestAHolderWhoseAnswersAreTooLateKnowsBeforeItsLeaseEnds(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		l := hold(t, fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), headwaiter.WithLease(3*time.Second)))
		d.Delay(1200*time.Millisecond, faults.ToClient)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
		require.Less(t, kit.ServerTime(s), number(t, s, kit.Name(t), "until"))
	})
}

// cuts is how many replies are lost to one kind of request.
const cuts = 20

func TestHoldsOutliveLostRepliesToRenewals(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const clients = 25
		d, direct := faults.NewDialer(t, s.Dial), kit.Dial(t, s)
		leases, others := make([]*lease.Lease, clients), make([]*fairlock.Mutex, clients)
		for i := range leases {
			name := fmt.Sprintf("%s:%d", kit.Name(t), i)
			others[i] = fairlock.New(direct, name)
			leases[i] = hold(t, fairlock.New(kit.Dial(t, s, kit.Over(d)), name, headwaiter.WithLease(3*time.Second)))
		}
		d.LoseReplies(4*cuts, everyOther(kit.Runs(lua.Fairlock.Renew)))
		kit.LostReplies(t, d.Faults, 4*cuts)
		for i, l := range leases {
			holds(t, others[i], l)
			kit.Release(t, l)
			kit.Free(t, others[i])
		}
	})
}

func TestAHolderThatHearsOfNoRenewalGivesUpAndFreesTheLock(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		client, other := kit.Dial(t, s, kit.Over(d)), dialMutex(t, s)
		l := hold(t, fairlock.New(client, kit.Name(t), headwaiter.WithLease(time.Second)))
		c := joins(t, 1, other, other)
		d.LoseReplies(1<<30, kit.Runs(lua.Fairlock.Renew))
		// Each renewal ran at the server, but the holder must go by what it was told.
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
		next := c.Value(t)
		require.Greater(t, next.Token(), l.Token())
		require.Less(t, next.Waited(), 10*time.Second)
		kit.Release(t, next)
		kit.Free(t, other)
	})
}

func TestNobodyIsLostWhileAnyReplyMayBe(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 4
		p, ms := kit.Proxy(t, s), make([]*fairlock.Mutex, clients)
		for i := range ms {
			ms[i] = fairlock.New(kit.Dial(t, s, kit.Through(p), longGrant), kit.Name(t))
		}
		// Every seventh, so that each kind of request has its turn.
		n := 0
		p.LoseReplies(cuts, func(command []string) bool {
			n++
			return strings.HasPrefix(command[0], "EVAL") && n%7 == 0
		})
		c := contend(t, ms...)
		kit.LostReplies(t, p.Faults, cuts)
		c.end(t)
		t.Logf("%d hand-offs, the longest wait was %v", c.handed, c.longest)
		require.Positive(t, c.fewest(clients), "somebody starves")
		kit.Free(t, dialMutex(t, s))
	})
}

// twoLanes are connections of a caller that sends asks on one and all else on another, so that the end of a
// ticket overtakes its ask.
type twoLanes struct {
	rueidis.Client
	asks rueidis.Client
}

func (c twoLanes) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if slices.ContainsFunc(cmd.Commands(), func(word string) bool {
		return word == lua.Fairlock.Ask.SHA || word == lua.Fairlock.Ask.Source
	}) {
		return c.asks.Do(ctx, cmd)
	}
	return c.Client.Do(ctx, cmd)
}

// An ask is on its way when its caller gives up, and the end is answered. Then the ask's connection breaks, and
// after that the ask runs: nobody may hold because of it.
func TestAnAskThatRunsAfterItsEndWasAnsweredLeavesNoHolder(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		connect := func(dial *faults.Dialer) rueidis.Client {
			o := s.Option()
			o.DialCtxFn, o.DisableCache, o.DisableRetry, o.PipelineMultiplex = dial.DialCtx, true, true, -1
			o.ConnWriteTimeout, o.Dialer.KeepAlive = time.Second, 500*time.Millisecond // When a silent connection is given up.
			rc := kit.Got(rueidis.NewClient(o))(t)
			t.Cleanup(rc.Close)
			return rc
		}
		d := faults.NewDialer(t, s.Dial)
		client, err := headwaiter.New(twoLanes{connect(faults.NewDialer(t, s.Dial)), connect(d)}, headwaiter.Options{Name: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Shutdown(context.Background()) })
		late, prompt := fairlock.New(client, kit.Name(t), headwaiter.WithLease(12*time.Hour)), dialMutex(t, s)
		kit.Release(t, hold(t, late))

		d.Freeze(faults.ToServer)
		ctx := kit.Within(t, given)
		ends := client.Stats().Ends
		require.ErrorIs(t, begin(ctx, late).Err(t), context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, ends+1, client.Stats().Ends)
		synctime.Pass(2200 * time.Millisecond) // The connection is given up, the ask may still run.
		d.Heal()
		synctime.Pass(ghostLimit)
		kit.Free(t, prompt)
		kit.Release(t, hold(t, late))
		kit.Free(t, prompt)
	})
}

// A first ask that comes late queues its ticket anew, behind those whom it was ahead of. Its client's next look
// takes it back to its place (I3).
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
