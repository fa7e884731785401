package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/redistest"
)

// A client that lives answers the call that goes out when another lets a grant lapse. Else it would be a
// suspect from a second later on, and be passed over until it looks by itself.
func TestALapsedGrantMakesNoSuspectsOfThoseWhoLive(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const alive = 20 // More than those at the head, who look at that moment anyway.
		d := faults.NewDialer(t, s.Dial)
		holder, stopped := dialMutex(t, s), fairlock.New(dial(t, s, over(d)), nameOf(t))
		l := hold(t, holder)
		silent := begin(t.Context(), stopped)
		queued(t, holder, 1)
		var calls []*call
		for i := range alive {
			calls = append(calls, begin(t.Context(), dialMutex(t, s)))
			queued(t, holder, 2+i)
		}
		d.Freeze()
		release(t, l)
		l = calls[0].granted(t)
		time.Sleep(1100 * time.Millisecond) // In the bubble: longer than an answer may take.
		released := time.Now()
		for i, c := range calls[1:] {
			release(t, l)
			synctest.Wait()
			require.True(t, c.returned(), "call %d was passed over", 1+i)
			l = c.granted(t)
		}
		require.Less(t, time.Since(released), 100*time.Millisecond)
		release(t, l)
		d.Heal()
		release(t, silent.granted(t)) // It comes back by itself.
		free(t, holder)
	})
}

// A client that is told that a lease of its ran out looks at once, over a new connection.
func TestASuspectThatIsToldSoRejoinsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, client := dialMutex(t, s), dial(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), fairlock.New(client, nameOf(t)))
		queued(t, holder, 1)
		time.Sleep(300 * time.Millisecond) // In the bubble: now its next look is more than a second away.
		lock, queue, suspects := keysOf(nameOf(t))
		ticket := s.List("ZRANGE", queue, "0", "-1")[0]
		place := s.Text("ZSCORE", queue, ticket)
		// As the script does that finds the lease over.
		s.Do("ZREM", queue, ticket)
		s.Do("HSET", lock, "marked", "1")
		s.Do("ZADD", suspects, s.Text("HGET", lock, "since"), client.ID())
		s.Do("PUBLISH", lock+":wake:"+client.ID(), "S "+ticket)
		time.Sleep(time.Second)
		rejoined := s.List("ZRANGE", queue, "0", "-1")
		require.Len(t, rejoined, 1)
		require.Equal(t, place, s.Text("ZSCORE", queue, rejoined[0]), "with another arrival")
		require.Positive(t, client.Stats().Suspected)
		require.Empty(t, s.List("ZRANGE", suspects, "0", "-1"), "its look takes the mark back")
		release(t, l)
		synctest.Wait()
		release(t, c.granted(t))
		free(t, holder)
	})
}
