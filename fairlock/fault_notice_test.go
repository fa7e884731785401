package fairlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/redistest"
)

// A second notice of a grant that is held is nothing to give back: that would free what is held.
func TestASecondNoticeOfAGrantIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, client := dialMutex(t, s), dial(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), fairlock.New(client, nameOf(t)))
		queued(t, holder, 1)
		release(t, l)
		l = c.granted(t)
		lock, _, _ := keysOf(nameOf(t))
		notice := fmt.Sprintf("G %s %d %d %d", s.Text("HGET", lock, "owner"), l.Token(),
			number(t, s, nameOf(t), "since"), number(t, s, nameOf(t), "until"))
		for range 3 {
			heard := client.Stats().Messages
			s.Do("PUBLISH", lock+":wake:"+client.ID(), notice)
			synctest.Wait()
			require.Equal(t, heard+1, client.Stats().Messages)
			holds(t, holder, l)
			time.Sleep(time.Second) // In the bubble.
		}
		require.Zero(t, client.Stats().GivenBack)
		release(t, l)
		free(t, holder)
	})
}

// A notice that was long on its way is of a grant that may be over: somebody may hold since.
func TestAnOldGrantIsConfirmedBeforeItIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		holder, waiter := dialMutex(t, s), fairlock.New(dial(t, s, over(d)), nameOf(t))
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, holder, 1)
		time.Sleep(300 * time.Millisecond) // In the bubble: its next look is far.
		d.Freeze(faults.ToClient)
		release(t, l)
		require.True(t, inspect(t, holder).Held, "it was granted")
		force(t, holder)
		l, err := holder.TryLock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second) // In the bubble: half of the grant lease.
		d.Heal()
		synctest.Wait()
		require.False(t, c.returned(), "two hold")
		holds(t, holder, l)
		queued(t, holder, 1)
		release(t, l)
		release(t, c.granted(t))
		free(t, holder)
	})
}

// However long the answers to renewals take, a holder's deadline is never after the end of its lease at the server.
func TestTheDeadlineIsBeforeTheEndOfTheLeaseAtTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		client := dial(t, s, over(d))
		l := hold(t, fairlock.New(client, nameOf(t), fairlock.WithLease(3*time.Second)))
		d.Delay(600*time.Millisecond, faults.ToClient)
		for range 200 {
			time.Sleep(50 * time.Millisecond) // In the bubble, where both have the same clock.
			require.NoError(t, l.Context().Err())
			require.Less(t, l.Deadline().UnixMicro(), number(t, s, nameOf(t), "until"))
		}
		require.Greater(t, client.Stats().Renewals, uint64(5))
		d.Heal()
		release(t, l)
	})
}
