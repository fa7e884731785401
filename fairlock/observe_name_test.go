package fairlock_test

import (
	"fmt"
	"strings"
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
	"github.com/headwaiter/headwaiter/observe"
)

func TestTheObserverIsToldOfDeadWaitersThatAreSkipped(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		holder, waiter := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t)), dialMutex(t, s)
		l := hold(t, holder)
		bury(t, s, kit.Name(t), 7)
		c := begin(t.Context(), waiter)
		queued(t, holder, 8)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		skipped := o.Of(observe.Skipped)
		require.Len(t, skipped, 1)
		require.Equal(t, 7, skipped[0].Count)
		require.Equal(t, kit.Name(t), skipped[0].Name)
	})
}

func TestTheObserverIsToldOfLeasesThatRanOutAndTheirClientThatItIsASuspect(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		cut, o := &kit.Observer{}, &kit.Observer{}
		d := faults.NewDialer(t, s.Dial)
		dead := fairlock.New(kit.Dial(t, s, kit.Observed(cut), kit.Over(d)), kit.Name(t), headwaiter.WithLease(time.Second))
		waiter := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t))
		l := hold(t, dead)
		next := begin(t.Context(), waiter)
		queued(t, waiter, 1)
		d.Refuse()
		d.Cut()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		held := next.Value(t)
		expired := o.Of(observe.Expired)
		require.Len(t, expired, 1)
		require.Equal(t, 1, expired[0].Count)
		d.Heal()
		again := begin(t.Context(), dead)
		synctest.Wait()
		kit.Release(t, held)
		kit.Release(t, again.Value(t))
		require.NotEmpty(t, cut.Of(observe.Suspected), "its next look says so")
	})
}

func TestTheObserverIsToldOfWhatChecksFind(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o, d := &kit.Observer{}, faults.NewDialer(t, s.Dial)
		holder, c := dialMutex(t, s), kit.Dial(t, s, kit.Observed(o), kit.Over(d))
		waiter := fairlock.New(c, kit.Name(t))
		l := hold(t, holder)
		next := begin(t.Context(), waiter)
		queued(t, holder, 1)
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
		d.LosePushes(1, kit.Notices(lua.MessageGrant))
		kit.Release(t, l)
		l = next.Value(t)
		synctime.Pass(time.Second)
		missed := o.Of(observe.Missed)
		require.Len(t, missed, 1)
		require.Equal(t, ticket, missed[0].Ticket)
		kit.Release(t, l)

		// As if a grant came after the end of its ticket.
		foreign := begin(t.Context(), waiter)
		held := foreign.Value(t)
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
