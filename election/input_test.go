package election_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestANameThatCannotBeUsedIsToldByEveryCall(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	good := election.New(c, "good")
	l := lead(t, good, "x")
	for name, want := range map[string]error{
		"": lease.ErrInvalid, "}a": lease.ErrInvalid, "a\nb": lease.ErrInvalid,
		strings.Repeat("n", lease.MaxName+1): lease.ErrTooLarge,
	} {
		e := election.New(c, name)
		require.Equal(t, name, e.Name())
		_, campaign := e.Campaign(t.Context(), "v")
		_, leader := e.Leader(t.Context())
		_, inspect := e.Inspect(t.Context())
		_, force := e.ForceRelease(t.Context(), 0)
		proclaim := e.Proclaim(t.Context(), l, "v")
		for _, err := range []error{campaign, leader, inspect, force, proclaim, ended(t, e.Observe(t.Context())).Err} {
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, "election: ")
		}
	}
	kit.Release(t, l)
}

func TestAnOptionThatCannotBeUsedIsToldByCampaign(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	for _, o := range []struct {
		option election.Option
		want   error
	}{
		{headwaiter.WithLease(-1), lease.ErrInvalid},
		{headwaiter.WithMaxHold(time.Nanosecond), lease.ErrInvalid},
		{headwaiter.WithPriority(1 << 30), lease.ErrTooLarge},
		{headwaiter.WithReplicas(-1, time.Second), lease.ErrInvalid},
	} {
		_, err := election.New(c, kit.Name(t), o.option).Campaign(t.Context(), "v")
		require.ErrorIs(t, err, o.want)
	}
}

func TestAValueThatIsTooLargeIsRefusedBeforeAnythingIsSent(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, c := of(t, s)
		large := strings.Repeat("v", lease.MaxValue+1)
		_, err := e.Campaign(t.Context(), large)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		require.Zero(t, c.Stats().Asks)
		l := lead(t, e, large[1:])
		require.ErrorIs(t, e.Proclaim(t.Context(), l, large), lease.ErrTooLarge)
		leads(t, e, large[1:], l)
		kit.Release(t, l)
	})
}

func TestACampaignFromWithinTheLeadershipIsADeadlock(t *testing.T) {
	t.Parallel()
	e, _ := of(t, redistest.Mini(t))
	l := lead(t, e, "a")
	_, err := e.Campaign(l.Context(), "b")
	require.ErrorIs(t, err, lease.ErrDeadlock)
	kit.Release(t, l)
}

func TestContextsThatHaveEndedSendNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		l := lead(t, e, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.ResetStats()
		_, campaign := e.Campaign(ctx, "b")
		_, leader := e.Leader(ctx)
		for _, err := range []error{campaign, leader, e.Proclaim(ctx, l, "b")} {
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, lease.ErrOutcomeUnknown)
		}
		require.Zero(t, ended(t, e.Observe(ctx)))
		require.Empty(t, kit.Scripts(s))
		kit.Release(t, l)
	})
}

// The keys of an election are those of a lock of another kind: the two do not meet.
func TestAnElectionAndALockOfTheSameNameDoNotMeet(t *testing.T) {
	t.Parallel()
	election, watch := lua.Election.Keys("p", "n"), lua.Leadership.Keys("p", "n")
	require.Equal(t, election.Lock, watch.Lock)
	require.Equal(t, []string{election.Lock}, watch.All())
	require.NotEqual(t, election.Site, watch.Site)
	require.NotEqual(t, election.Channel("c"), watch.Channel("c"))
	for _, other := range []*lua.Protocol{lua.Fairlock, lua.Reentrant, lua.Countdown} {
		require.NotEqual(t, other.Keys("p", "n").Lock, election.Lock)
	}
}
