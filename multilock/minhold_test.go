package multilock_test

import (
	"context"
	"sync/atomic"
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
	"github.com/headwaiter/headwaiter/multilock"
)

// resting asserts of each of the names whether it stays taken with nobody who holds it.
func resting(t *testing.T, c *headwaiter.Client, all []string, want bool) {
	t.Helper()
	for _, name := range all {
		m := fairlock.New(c, name)
		require.Equal(t, want, kit.Got(m.Inspect(t.Context()))(t).Holder.Rests, name)
		l, err := m.TryLock(t.Context())
		if want {
			require.ErrorIs(t, err, lease.ErrBusy, name)
			continue
		}
		require.NoError(t, err, name)
		kit.Release(t, l)
	}
}

func TestEachOfTheNamesStaysTaken(t *testing.T) {
	for mode, lock := range map[string]func(*multilock.Lock, context.Context) (*lease.Lease, error){
		"lock": (*multilock.Lock).Lock, "try": (*multilock.Lock).TryLock,
	} {
		kit.BubbleOf(t, mode, func(t *testing.T, s *redistest.Embedded) {
			all, other := names(t, 3), kit.Dial(t, s)
			m := multilock.New(kit.Dial(t, s), all, headwaiter.WithMinHold(time.Minute))
			kit.Release(t, kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)) // So that the tokens differ.
			kit.Release(t, kit.Got(lock(m, t.Context()))(t))
			synctime.Pass(50 * time.Second)
			resting(t, other, all, true)
			synctime.Pass(15 * time.Second)
			resting(t, other, all, false)
		})
	}
}

// What was got of some names while others were waited for was used by nobody.
func TestNamesThatAreGivenBackForOthersAreFreeAtOnce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		all, other := names(t, 3), kit.Dial(t, s)
		held := kit.Got(fairlock.New(other, all[2]).Lock(t.Context()))(t)
		m := multilock.New(kit.Dial(t, s), all, headwaiter.WithMinHold(time.Minute))
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		resting(t, other, all[:2], false)
		require.ErrorIs(t, kit.Err(m.Lock(kit.Within(t, 500*time.Millisecond))), context.DeadlineExceeded)
		synctest.Wait() // It is given back in the background.
		resting(t, other, all[:2], false)
		require.ErrorIs(t, kit.Err(m.Lock(kit.Within(t, 5*time.Second))), context.DeadlineExceeded, "longer than its bound")
		synctest.Wait()
		resting(t, other, all[:2], false)
		kit.Release(t, held)
		free(t, other, all)
	})
}

// They are given back side by side: one after the other would take as many round trips as there are names.
func TestNamesThatStayTakenAreGivenBackAtOnce(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		all, other := names(t, 20), kit.Dial(t, s)
		l := kit.Got(multilock.New(kit.Dial(t, s, kit.Over(d)), all, headwaiter.WithMinHold(time.Minute)).Lock(t.Context()))(t)
		d.Delay(50 * time.Millisecond)
		begun := time.Now()
		kit.Release(t, l)
		require.LessOrEqual(t, time.Since(begun), 500*time.Millisecond)
		resting(t, other, all, true)
	})
}

// The hold of one of them is lost while the server is told that all stay taken: nobody has used it, and it is waited for again.
func TestANameThatIsLostBeforeTheCallReturnsIsWaitedForAgain(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		all, other := names(t, 2), kit.Dial(t, s)
		m := multilock.New(kit.Dial(t, s, kit.Over(d)), all, headwaiter.WithMinHold(time.Minute))
		d.LoseReplies(1, kit.Runs(lua.Fairlock.Renew))
		call := kit.Lock(t.Context(), m.Lock)
		synctest.Wait()
		first := fairlock.New(other, all[0])
		kit.Got(first.ForceRelease(t.Context(), kit.Got(first.Inspect(t.Context()))(t).Holder.Token))(t)
		l := call.Value(t)
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		resting(t, other, all, true)
	})
}

func TestATryThatIsNotAnsweredForLongLeavesTheNamesFree(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		all, other := names(t, 2), kit.Dial(t, s)
		m := multilock.New(kit.Dial(t, s, kit.Over(d)), all, headwaiter.WithMinHold(time.Minute))
		d.LoseReplies(1000, kit.Runs(lua.Fairlock.Renew))
		begun := time.Now()
		err := kit.Err(m.TryLock(kit.Within(t, time.Hour)))
		require.ErrorIs(t, err, headwaiter.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begun), 10*time.Second)
		synctime.Pass(time.Second)
		resting(t, other, all, false)
	})
}

// What is left to do for those that are held outlasts the context that ended the wait for another, and any round trip.
func TestWhatIsHeldOfEachStaysTakenThoughAnotherWaitEnds(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		all, other, c := names(t, 3), kit.Dial(t, s), kit.Dial(t, s, kit.Over(d))
		held := kit.Got(fairlock.New(other, all[2]).Lock(t.Context()))(t)
		var locks []*fairlock.Mutex
		for _, name := range all {
			locks = append(locks, fairlock.New(c, name, headwaiter.WithMinHold(time.Minute)))
		}
		d.Delay(200 * time.Millisecond)
		outcomes := fairlock.LockEach(kit.Within(t, 5*time.Second), locks...)
		kit.Fails(t, outcomes[2].Err, context.DeadlineExceeded, "1 ahead")
		for _, o := range outcomes[:2] {
			require.NoError(t, o.Err)
			kit.Release(t, o.Lease)
		}
		resting(t, other, all[:2], true)
		kit.Release(t, held)
	})
}

// A call whose context is another hold's ends with it, though what ends both is a loss.
func TestACallWithinAHoldThatIsLostReturns(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		all, other := names(t, 2), kit.Dial(t, s)
		outer := kit.Got(fairlock.New(other, "outer").Lock(t.Context()))(t)
		m := multilock.New(kit.Dial(t, s, kit.Over(d)), all, headwaiter.WithMinHold(time.Minute))
		d.LoseReplies(1000, kit.Runs(lua.Fairlock.Renew))
		call := kit.Lock(outer.Context(), m.Lock)
		synctime.Pass(time.Second)
		kit.Got(fairlock.New(other, "outer").ForceRelease(t.Context(), outer.Token()))(t)
		err := call.Err(t)
		require.ErrorIs(t, err, lease.ErrForced)
		require.ErrorIs(t, err, headwaiter.ErrUnavailable)
		require.NotContains(t, err.Error(), "without []")
		synctime.Pass(time.Second)
		resting(t, other, all, false)
	})
}

// The replica falls silent as the server is told, after the renewals that it was to know of before.
func TestTooFewReplicasAreToldBeforeTheLeaseIsOver(t *testing.T) {
	s := redistest.Replicated(t, 1)
	kit.Release(t, kit.Got(multilock.New(kit.Dial(t, s), []string{"warm"}, headwaiter.WithMinHold(time.Second)).Lock(t.Context()))(t)) // Scripts are loaded.
	p, replica := kit.Proxy(t, s.Master()), s.Replicas()[0]
	defer replica.Cont()
	var renewals atomic.Int32
	p.LoseReplies(1, func(command []string) bool { // It loses none.
		if kit.Runs(lua.Fairlock.Renew)(command) && renewals.Add(1) == 3 {
			replica.Stop()
		}
		return false
	})
	m := multilock.New(kit.Dial(t, s, kit.Through(p)), names(t, 2),
		headwaiter.WithMinHold(time.Hour), headwaiter.WithReplicas(1, 200*time.Millisecond), headwaiter.WithLease(time.Hour))
	require.ErrorIs(t, kit.Err(m.Lock(kit.Within(t, kit.Patience))), lease.ErrReplicas)
	free(t, kit.Dial(t, s), names(t, 2))
}
