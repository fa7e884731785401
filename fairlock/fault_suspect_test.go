package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// A client that lives answers the call that goes out when another lets a grant lapse. Else it would be a
// suspect from a second later on, and be passed over until it looks by itself.
func TestALapsedGrantMakesNoSuspectsOfThoseWhoLive(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const alive = 20 // More than those at the head, who look at that moment anyway.
		d := faults.NewDialer(t, s.Dial)
		holder, stopped := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l := hold(t, holder)
		silent := begin(t.Context(), stopped)
		queued(t, holder, 1)
		var calls []*call
		for i := range alive {
			calls = append(calls, begin(t.Context(), dialMutex(t, s)))
			queued(t, holder, 2+i)
		}
		d.Freeze()
		kit.Release(t, l)
		l = calls[0].Value(t)
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
		l := hold(t, holder)
		c := begin(t.Context(), fairlock.New(client, kit.Name(t)))
		queued(t, holder, 1)
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
				kit.Release(t, l)
				l = calls[i].Value(t)
			}
			scripts := kit.Scripts(s)
			kit.Release(t, l)
			kit.Release(t, calls[52].Value(t))
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
