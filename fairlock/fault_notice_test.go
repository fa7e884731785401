package fairlock_test

import (
	"context"
	"fmt"
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
)

// A second notice of a grant that is held is nothing to give back: that would free what is held.
func TestASecondNoticeOfAGrantIsDropped(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, client := dialMutex(t, s), kit.Dial(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), fairlock.New(client, kit.Name(t)))
		queued(t, holder, 1)
		kit.Release(t, l)
		l = c.Value(t)
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
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		holder, waiter := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, holder, 1)
		synctime.Pass(300 * time.Millisecond) // Its next look is far.
		d.Freeze(faults.ToClient)
		kit.Release(t, l)
		require.True(t, inspect(t, holder).Held, "it was granted")
		force(t, holder)
		l, err := holder.TryLock(t.Context())
		require.NoError(t, err)
		synctime.Pass(time.Second) // Half of the grant lease.
		d.Heal()
		synctest.Wait()
		require.False(t, c.Returned(), "two hold")
		holds(t, holder, l)
		queued(t, holder, 1)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
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
		t.Run(fmt.Sprint(c.lease, " late by ", c.delay), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
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
		})
	}
}

// Answers that come later than a connection may take cost the hold at worst, and never before its holder knows.
func TestAHolderWhoseAnswersAreTooLateKnowsBeforeItsLeaseEnds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		l := hold(t, fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), headwaiter.WithLease(3*time.Second)))
		d.Delay(1200*time.Millisecond, faults.ToClient)
		<-l.Context().Done()
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		require.Less(t, kit.ServerTime(s), number(t, s, kit.Name(t), "until"))
	})
}
