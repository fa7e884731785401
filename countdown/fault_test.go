package countdown_test

import (
	"context"
	"errors"
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
const cuts = 12

func TestLostRepliesCountOnceEach(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
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

// unanswered begins a count whose request does not get through in time, and returns when it has given up.
func unanswered(t *testing.T, v view, limit time.Duration) {
	t.Helper()
	kit.Fails(t, kit.Err(v.CountDown(kit.Within(t, limit))), context.DeadlineExceeded, lease.ErrOutcomeUnknown)
}

func TestACountThatComesTooLateDoesNotCount(t *testing.T) {
	for _, late := range []struct {
		by   time.Duration
		left int64
	}{{300 * time.Millisecond, 8}, {7 * time.Second, 9}, {2 * time.Minute, 9}} {
		kit.BubbleOf(t, late.by.String(), func(t *testing.T, s *redistest.Embedded) {
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
	}
}

func TestAnUnansweredCountSaysThatItMayHaveCounted(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
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
		_, err := v.CountDown(kit.Within(t, 300*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return err
	}
	// After the old connection, and the one being tried when a count ends, nobody listens.
	kit.Eventually(t, "a count that was never sent", func() bool { return !errors.Is(count(), lease.ErrOutcomeUnknown) })
}

func TestAServerThatForgetsLetsNobodyPass(t *testing.T) {
	for fault, do := range map[string]func(redistest.Backend){
		"flush":   func(s redistest.Backend) { s.Do("FLUSHALL") },
		"restart": func(s redistest.Backend) { s.Restart() },
	} {
		kit.EachOf(t, fault, func(t *testing.T, s redistest.Backend) {
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
			require.ErrorIs(t, kit.Err(v.CountDown(t.Context())), countdown.ErrUnset)
			v.set(t, 1)
			other.down(t, 0)
			require.NoError(t, v.Wait(t.Context()))
		})
	}
}
