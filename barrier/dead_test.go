package barrier_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// brokenWithin is how soon after the end of a dead party's lease the others are to know.
const brokenWithin = 200 * time.Millisecond

// strangers runs a process with parties at a barrier of n.
func strangers(t *testing.T, s *redistest.Server, v view, n int64, waiters int, lasts time.Duration) *crowd.Crowd {
	t.Helper()
	return crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Barrier, Names: []string{v.Name()}, Clients: 1, Waiters: waiters, N: n, Lease: lasts,
	})
}

// leaseEnd is when the lease of the first party of another client ends, or before that.
func leaseEnd(t *testing.T, v view) time.Time {
	t.Helper()
	now := time.Now()
	holders := v.inspect(t).Holders
	i := slices.IndexFunc(holders, func(h lease.Holder) bool { return h.Client != v.client.ID() })
	require.GreaterOrEqual(t, i, 0)
	return now.Add(holders[i].Left)
}

// Not parallel: it measures milliseconds.
func TestAKilledPartyBreaksTheBarrierAtTheEndOfItsLease(t *testing.T) {
	const lasts = time.Second
	s := redistest.Start(t)
	v := dial(t, s, 5, headwaiter.WithLease(lasts))
	spans := make([]time.Duration, 3)
	for i := range spans {
		here := []*kit.Call[int]{v.comes(t, t.Context(), 1), v.comes(t, t.Context(), 2)}
		victims := strangers(t, s, v, 5, 2, lasts)
		kit.Waiting(t, 4, v.Inspect)
		victims.Kill()
		ends := leaseEnd(t, v)
		fail(t, here...)
		spans[i] = time.Since(ends)
		require.Greater(t, spans[i], -lasts/10, "not before the end of the lease")
		rest(t, v)
	}
	t.Logf("from the end of the lease to the last broken wait: %v", spans)
	require.Less(t, kit.Median(spans), brokenWithin)
}

func TestAStoppedPartyBreaksTheBarrierAndLearnsOfIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := dial(t, s, 3, headwaiter.WithLease(time.Second))
	here := v.comes(t, t.Context(), 1)
	stopped := strangers(t, s, v, 3, 1, time.Second)
	kit.Waiting(t, 2, v.Inspect)
	stopped.Stop()
	fail(t, here)
	rest(t, v)
	here = v.comes(t, t.Context(), 1)
	stopped.Cont()
	stopped.Await(crowd.Broken, 1, kit.Patience)
	require.Equal(t, 1, v.inspect(t).Waiting, "it did not come to the next generation")
	require.NoError(t, v.Reset(t.Context()))
	fail(t, here)
}

func TestAPartyThatWaitsKeepsItsPlaceForAsLongAsItLives(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		lasts := headwaiter.WithLease(300 * time.Millisecond)
		a, b := dial(t, s, 122, lasts), dial(t, s, 122, lasts)
		calls := []*kit.Call[int]{a.comes(t, t.Context(), 1)}
		for range 120 { // More than one check can name.
			calls = append(calls, b.party(t.Context()))
		}
		kit.Waiting(t, 121, a.Inspect)
		synctime.Pass(2 * time.Second)
		require.Equal(t, 121, a.inspect(t).Waiting)
		require.False(t, a.broken(t))
		calls = append(calls, a.party(t.Context()))
		seen := map[int]bool{}
		for _, c := range calls {
			seen[c.Value(t)] = true
		}
		require.Len(t, seen, 122)
	})
}

func TestADeadActionIsADeadParty(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		lasts := headwaiter.WithLease(time.Second)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2, lasts), dial(t, s, 2, lasts)
		a := newTask()
		others, last := acts(t, t.Context(), func(i int) view { return []view{near, far}[i] }, a, a.run)
		p.Refuse()
		p.Cut()
		fail(t, others...)
		require.True(t, near.broken(t))
		p.Heal()
		a.end <- nil
		fail(t, last)
		require.True(t, near.broken(t), "what it has done comes too late")
	})
}

// In the next two requests come to the server long after their sender gave them up.

func lateness(t *testing.T, run func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration)) {
	t.Parallel()
	for _, by := range []time.Duration{300 * time.Millisecond, 2200 * time.Millisecond, 7 * time.Second, 2 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				late, prompt := on(t, kit.Dial(t, s, kit.Over(d)), 2), dial(t, s, 2)
				rest(t, prompt) // Now the server knows the scripts.
				meet(t, func(i int) view { return []view{late, prompt}[i] })
				run(t, late, prompt, d, by)
				// Nothing comes after that.
				rest(t, prompt)
				alone := prompt.comes(t, t.Context(), 1)
				synctime.Pass(time.Minute)
				require.False(t, alone.Returned())
				require.Equal(t, 1, prompt.inspect(t).Waiting)
				pass(t, alone, late.party(t.Context()))
			})
		})
	}
}

func TestAnArrivalThatComesTooLateStaysAway(t *testing.T) {
	lateness(t, func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration) {
		waits := prompt.comes(t, t.Context(), 1)
		d.Freeze(faults.ToServer)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := late.Await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctime.Pass(by)
		d.Heal()
		synctest.Wait()
		if by < 3*time.Second {
			return // It was in time, and so the two have met.
		}
		require.False(t, waits.Returned())
		require.False(t, prompt.broken(t))
	})
}

func TestAResetThatComesTooLateResetsNothing(t *testing.T) {
	lateness(t, func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration) {
		waits := prompt.comes(t, t.Context(), 1)
		d.Freeze(faults.ToServer)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, late.Reset(ctx), lease.ErrOutcomeUnknown)
		synctime.Pass(by)
		d.Heal()
		synctest.Wait()
		require.Equal(t, by < 3*time.Second, waits.Returned())
	})
}

func TestAResetThatMayNotBePublishedIsAnErrorAndResetsAllTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := dial(t, s, 3)
	here := v.comes(t, t.Context(), 1)
	s.Do("ACL", "SETUSER", "default", "-publish")
	require.ErrorIs(t, v.Reset(t.Context()), lease.ErrUnwoken)
	fail(t, here)
	require.Zero(t, v.inspect(t).Waiting)
}
