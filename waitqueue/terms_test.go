package waitqueue

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

func TestTerms(t *testing.T) {
	good := Terms{Lease: lease.DefaultLease}
	require.NoError(t, good.check())
	for _, change := range []func(*Terms){
		func(t *Terms) { t.Lease = lease.MinLease },
		func(t *Terms) { t.Lease = lease.MaxLease },
		func(t *Terms) { t.MaxHold = lease.MinLease },
		func(t *Terms) { t.MaxHold = lease.MaxLease },
		func(t *Terms) { t.Priority = maxPriority },
		func(t *Terms) { t.Priority = -maxPriority },
	} {
		changed := good
		change(&changed)
		require.NoError(t, changed.check(), "%+v", changed)
	}
	for _, change := range []func(*Terms){
		func(t *Terms) { t.Lease = 0 },
		func(t *Terms) { t.Lease = -1 },
		func(t *Terms) { t.Lease = lease.MinLease - 1 },
		func(t *Terms) { t.Lease = lease.MaxLease + 1 },
		func(t *Terms) { t.Lease = math.MaxInt64 },
		func(t *Terms) { t.MaxHold = -1 },
		func(t *Terms) { t.MaxHold = lease.MinLease - 1 },
		func(t *Terms) { t.MaxHold = lease.MaxLease + 1 },
	} {
		changed := good
		change(&changed)
		require.ErrorIs(t, changed.check(), lease.ErrInvalid, "%+v", changed)
	}
	require.ErrorIs(t, Terms{Lease: lease.DefaultLease, Priority: maxPriority + 1}.check(), lease.ErrInvalid)
	require.ErrorIs(t, Terms{Lease: lease.DefaultLease, Priority: -maxPriority - 1}.check(), lease.ErrInvalid)
}

// What Lua counts with is exact up to 2^53.
func TestTheLargestTimesAreExactInLua(t *testing.T) {
	const exact = 1 << 53
	latest := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	require.Less(t, latest+2*lease.MaxLease.Microseconds(), int64(exact))
	require.Less(t, latest+int64(maxPriority)*PriorityStep.Microseconds(), int64(exact))
}

func TestTheFirstLeaseIsNoLongerThanTheMaximumHold(t *testing.T) {
	for _, c := range []struct {
		terms Terms
		lasts time.Duration
		phase string
	}{
		{Terms{Lease: 10 * time.Second}, 10 * time.Second, wire.PhaseHeld},
		{Terms{Lease: 10 * time.Second, MaxHold: time.Minute}, 10 * time.Second, wire.PhaseHeld},
		{Terms{Lease: 10 * time.Second, MaxHold: 10 * time.Second}, 10 * time.Second, wire.PhaseFinal},
		{Terms{Lease: 10 * time.Second, MaxHold: time.Second}, time.Second, wire.PhaseFinal},
		{Terms{Lease: 1999 * time.Microsecond}, time.Millisecond, wire.PhaseHeld},
	} {
		lasts, phase := c.terms.first()
		require.Equal(t, c.lasts, lasts)
		require.Equal(t, c.phase, phase)
	}
}

// What is off sends what was sent before there was such a thing.
func TestACallWithoutABoundSaysNothingOfIt(t *testing.T) {
	require.Equal(t, wire.Wait, bound(0).mode(wire.Wait))
	require.Equal(t, "1700000000123456", bound(0).brought(1700000000123456, 0))
	require.Equal(t, "7@60", bound(0).brought(7, 60))
}

func TestABoundSaysHowManyMayWait(t *testing.T) {
	require.Equal(t, "wait 3", bound(3).mode(wire.Wait))
	require.Equal(t, "7:3", bound(3).brought(7, 0))
	require.Equal(t, "7:3@-5000000", bound(3).brought(7, -5000000))
}

func TestACheckTellsHowFullAQueueIs(t *testing.T) {
	full := must.As[*lease.QueueFullError](t, bound(3).fromCheck("4 1000000", 1500000))
	require.Equal(t, lease.QueueFullError{Waiting: 4, Oldest: 500 * time.Millisecond}, *full)
	require.ErrorIs(t, bound(3).fromCheck("many", 0), lease.ErrQueueFull)
}
