package countdown_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 100

func TestAHundredLostRepliesCountOnceEach(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		v.set(t, 2*cuts)
		v.down(t, 2*cuts-1) // Now the server knows the script.
		for i := range int64(cuts) {
			p.LoseReplies(1, kit.Runs(lua.LatchDown.Script))
			v.down(t, 2*cuts-2-i)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		require.EqualValues(t, cuts-1, other.left(t))
		kit.Expiring(t, s)
	})
}

func TestTheLastCountWhoseReplyIsLostOpensOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		for i := range 10 {
			v.set(t, 1)
			c := kit.Run(func() error { return other.Wait(t.Context()) })
			kit.Waiting(t, 1, v.Inspect)
			p.LoseReplies(2, kit.Runs(lua.LatchDown.Script))
			v.down(t, 0)
			require.NoError(t, c.Err(t))
			replies, _ := p.Lost()
			require.Equal(t, 2*(i+1), replies)
		}
	})
}

func TestASettingWhoseReplyIsLostIsToldAsDone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		for i := range 20 {
			p.LoseReplies(1+i%3, kit.Runs(lua.LatchSet.Script))
			v.set(t, 2)
			other.down(t, 1)
			other.down(t, 0)
		}
		p.LoseReplies(1, kit.Runs(lua.LatchSet.Script))
		v.set(t, 1)
		p.LoseReplies(1, kit.Runs(lua.LatchSet.Script))
		done, err := v.TrySetCount(t.Context(), 5)
		require.NoError(t, err)
		require.False(t, done)
		require.EqualValues(t, 1, other.left(t))
		replies, _ := p.Lost()
		require.Equal(t, 41, replies)
	})
}

func TestARemovalWhoseReplyIsLostIsToldAsDone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v := dial(t, s, kit.Through(p))
		for range 5 {
			v.set(t, 1)
			p.LoseReplies(1, kit.Runs(lua.LatchRemove.Script))
			removed, err := v.Remove(t.Context())
			require.NoError(t, err)
			require.True(t, removed)
		}
		replies, _ := p.Lost()
		require.Equal(t, 5, replies)
	})
}

func TestAWaitOutlivesLostRepliesToItsAskAndChecks(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		for i := range 10 {
			other.set(t, 1)
			script := []*lua.Script{lua.Countdown.Ask, lua.Countdown.Check}[i%2]
			lost, _ := p.Lost()
			p.LoseReplies(1, kit.Runs(script))
			var g gate
			c := kit.Run(g.wait(v))
			if i == 0 || script == lua.Countdown.Ask { // A check is certain to come after a subscription only.
				kit.LostReplies(t, p.Faults, lost+1)
			}
			g.open(t, other)
			require.NoError(t, c.Err(t))
		}
	})
}

// unanswered begins a count whose request does not get through in time, and returns when it has given up.
func unanswered(t *testing.T, v view, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := v.CountDown(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, lease.ErrOutcomeUnknown)
}

func TestACountThatComesTooLateDoesNotCount(t *testing.T) {
	for _, late := range []struct {
		by   time.Duration
		left int64
	}{{300 * time.Millisecond, 8}, {7 * time.Second, 9}, {2 * time.Minute, 9}} {
		t.Run(late.by.String(), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				v, other := dial(t, s, kit.Over(d)), dial(t, s)
				v.set(t, 10)
				v.down(t, 9)
				d.Freeze(faults.ToServer)
				unanswered(t, v, 100*time.Millisecond)
				synctime.Pass(late.by)
				d.Heal()
				synctest.Wait()
				require.Equal(t, late.left, other.left(t))
				v.down(t, late.left-1)
			})
		})
	}
}

func TestAnUnansweredCountSaysThatItMayHaveCounted(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		v.set(t, 3)
		v.down(t, 2)
		p.LoseReplies(1<<30, kit.Runs(lua.LatchDown.Script))
		unanswered(t, v, time.Second)
		require.EqualValues(t, 1, other.left(t), "and it has, once")
	})
}

func TestACountThatWasNeverSentIsNotUnknown(t *testing.T) {
	s := redistest.Start(t)
	v := dial(t, s)
	v.set(t, 3)
	s.Kill()
	count := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := v.CountDown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return err
	}
	_ = count() // On the connection that there was.
	require.NotErrorIs(t, count(), lease.ErrOutcomeUnknown, "nobody listens there")
}

func TestAnOpeningWhoseMessageIsLostIsFoundByAnyWaitersCheck(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v, other := dial(t, s), dial(t, s)
		s.DropPublish(1 << 40)
		for range 20 {
			v.set(t, 1)
			var calls []*kit.Call[struct{}]
			for range 10 {
				calls = append(calls, other.waits(t, t.Context()))
			}
			synctest.Wait()
			checks := other.client.Stats().Checks
			begun := time.Now()
			v.down(t, 0)
			for _, c := range calls {
				require.NoError(t, c.Err(t))
			}
			require.Less(t, time.Since(begun), hears)
			require.LessOrEqual(t, other.client.Stats().Checks, checks+1, "one look is for all")
		}
		require.Equal(t, 20, s.Dropped())
	})
}

func TestAnOpeningReachesASubscriberThatWasKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v, other := dial(t, s), dial(t, s)
	for i := range 10 {
		v.set(t, 1)
		var g gate
		c := kit.Run(g.wait(other))
		kit.Waiting(t, 1, v.Inspect)
		require.EqualValues(t, 1, s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
		if i%2 == 0 {
			kit.Waiting(t, 1, v.Inspect) // It is back.
		}
		begun := time.Now()
		g.open(t, v)
		require.NoError(t, c.Err(t))
		require.Less(t, time.Since(begun), time.Second)
	}
}

func TestALatchThatOpensWhileAConnectionIsDownIsNoticedAtOnceAfterwards(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		v, other := dial(t, s, kit.Through(p)), dial(t, s)
		spans := make([]time.Duration, 5)
		for i := range spans {
			other.set(t, 1)
			var g gate
			calls := []*kit.Call[struct{}]{kit.Run(g.wait(v)), kit.Run(g.wait(v))}
			kit.Waiting(t, 1, other.Inspect)
			p.Refuse()
			p.Cut()
			kit.Waiting(t, 0, other.Inspect)
			g.open(t, other)
			require.False(t, calls[0].Returned() || calls[1].Returned())
			begun := time.Now()
			p.Heal()
			for _, c := range calls {
				require.NoError(t, c.Err(t))
			}
			spans[i] = time.Since(begun)
		}
		t.Logf("from the end of the fault to the pass: %v", spans)
		require.Less(t, kit.Median(spans), time.Second)
	})
}

func TestAServerThatForgetsLetsNobodyPass(t *testing.T) {
	for fault, do := range map[string]func(redistest.Backend){
		"flush":   func(s redistest.Backend) { s.Do("FLUSHALL") },
		"restart": func(s redistest.Backend) { s.Restart() },
	} {
		t.Run(fault, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				v, other := dial(t, s), dial(t, s)
				v.set(t, 1)
				calls := []*kit.Call[struct{}]{v.waits(t, t.Context()), other.waits(t, t.Context()), other.waits(t, t.Context())}
				begun := time.Now()
				do(s)
				for _, c := range calls {
					err := c.Err(t)
					if !errors.Is(err, countdown.ErrUnset) { // Of one that was not answered before.
						require.ErrorIs(t, err, countdown.ErrGone)
					}
				}
				require.Less(t, time.Since(begun), 2*hears)
				_, err := v.CountDown(t.Context())
				require.ErrorIs(t, err, countdown.ErrUnset)
				v.set(t, 1)
				other.down(t, 0)
				require.NoError(t, v.Wait(t.Context()))
			})
		})
	}
}

func TestAllWhoWaitAreToldOfAnErrorThatNoRetryMends(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s)
		v.set(t, 1)
		calls := make([]*kit.Call[struct{}], 10)
		for i := range calls {
			calls[i] = v.waits(t, t.Context())
		}
		lock, _ := keysOf(v.Name())
		s.Do("SET", lock, "x")
		for _, c := range calls {
			require.ErrorContains(t, c.Err(t), "WRONGTYPE")
		}
	})
}

func TestClosingAClientEndsItsWaitsAndNoOthers(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v, other := dial(t, s), dial(t, s)
		v.set(t, 1)
		calls := make([]*kit.Call[struct{}], 10)
		for i := range calls {
			calls[i] = v.waits(t, t.Context())
		}
		stays := other.waits(t, t.Context())
		require.NoError(t, v.client.Close(t.Context()))
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), lease.ErrClosed)
		}
		kit.Waiting(t, 1, other.Inspect)
		_, set := v.TrySetCount(t.Context(), 1)
		_, down := v.CountDown(t.Context())
		_, count := v.Count(t.Context())
		for _, err := range []error{set, down, count, v.Wait(t.Context())} {
			require.ErrorIs(t, err, lease.ErrClosed)
			require.NotErrorIs(t, err, lease.ErrOutcomeUnknown, "nothing was sent")
		}
		require.False(t, stays.Returned())
		other.down(t, 0)
		require.NoError(t, stays.Err(t))
		require.NoError(t, other.client.Close(t.Context()))
		lock, _ := keysOf(v.Name())
		kit.Eventually(t, "the subscriptions to be gone", func() bool {
			return len(s.List("PUBSUB", "CHANNELS", fmt.Sprintf("%s*", lock))) == 0
		})
		kit.Expiring(t, s)
	})
}

func TestASubscriptionIsDroppedSomeTimeAfterTheLastWait(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v := dial(t, s)
		v.set(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		c := v.waits(t, ctx)
		kit.Waiting(t, 1, v.Inspect)
		cancel()
		require.ErrorIs(t, c.Err(t), context.Canceled)
		before := v.client.Stats().Checks
		synctime.Pass(time.Minute)
		kit.Waiting(t, 0, v.Inspect)
		require.LessOrEqual(t, v.client.Stats().Checks, before+1, "nobody waits, nobody looks")
	})
}
