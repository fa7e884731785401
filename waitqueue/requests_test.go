package waitqueue_test

import (
	"context"
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
	"github.com/headwaiter/headwaiter/observe"
)

// named calls a client worker.
func named(o *headwaiter.Options) { o.Name = "worker" }

func TestEachRequestIsToldWithItsServerAndItsTime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := &kit.Requests{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, named, kit.Observed(observe.Observers(&kit.Observer{}, r)), kit.Over(d)), kit.Name(t))
		hold := func() {
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			synctime.Pass(4 * time.Second) // One renewal.
			kit.Release(t, l)
		}
		hold() // The server knows the scripts from now on.
		before := len(r.Made())
		d.Delay(7*time.Millisecond, faults.ToServer)
		hold()
		made := r.Made()[before:]
		require.Len(t, made, 3)
		for _, x := range made {
			require.Equal(t, observe.Request{Engine: "redis", Client: "worker", Server: s.Option().InitAddress[0], Took: x.Took}, x)
			require.InDelta(t, 7*time.Millisecond, x.Took, float64(time.Millisecond))
		}
	})
}

func TestWhatIsRefusedIsAnsweredUnlessTheServerDoesNotServe(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := &kit.Requests{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(r)), kit.Name(t))
		t.Cleanup(func() { s.Fail("") })
		for refusal, up := range map[string]bool{
			"NOPERM this user has no permissions": true, "OOM command not allowed": true,
			"LOADING Redis is loading the dataset in memory": false, "MASTERDOWN Link with MASTER is down": false,
		} {
			s.Fail(refusal)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := m.Lock(ctx)
			cancel()
			require.Error(t, err)
			require.Equal(t, up, r.Up(), refusal)
			s.Fail("")
			kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
			require.True(t, r.Up())
		}
	})
}

// A caller with little time says nothing of the server. What it leaves behind does.
func TestAServerThatHangsIsToldOfThoughAllCallersAreInAHurry(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := &kit.Requests{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, kit.Observed(r), kit.Over(d)), kit.Name(t))
		hurry := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := m.TryLock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		d.Freeze()
		hurry()
		require.True(t, r.Up(), "the caller gave up, not the server")
		begun := time.Now()
		for r.Up() {
			hurry()
			synctest.Wait()
		}
		require.Less(t, time.Since(begun), 5*time.Second)
		d.Heal()
		kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
		require.True(t, r.Up())
	})
}

func TestOfSeveralObserversThoseAreToldOfRequestsThatWantToKnow(t *testing.T) {
	one, other := &kit.Requests{}, &kit.Requests{}
	_, wants := observe.Observers(&kit.Observer{}, plain{one}).(observe.RequestObserver)
	require.False(t, wants, "nobody does, so nobody looks at the clock")
	all := observe.Observers(one, observe.Observers(plain{one}, other))
	_, traces := all.(observe.Tracer)
	require.True(t, traces)
	all.(observe.RequestObserver).ObserveRequest(observe.Request{Server: "a"})
	require.Len(t, one.Made(), 1)
	require.Len(t, other.Made(), 1)
}
