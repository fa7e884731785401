package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// The older leader's request is on its way when its lease ends, and comes when another leads.
func TestALeaderPausedPastItsLeaseProclaimsNothingAnyMore(t *testing.T) {
	for _, late := range []time.Duration{time.Second, 2 * time.Minute} {
		kit.BubbleOf(t, late.String(), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			paused := election.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), headwaiter.WithLease(2*time.Second))
			other, _ := of(t, s)
			l := lead(t, paused, "old")
			c := candidate(other, "new")
			kit.Waiting(t, 1, other.Inspect)
			d.Freeze(faults.ToServer)
			old := kit.Run(func() error { return paused.Proclaim(t.Context(), l, "late") })
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
			require.False(t, c.Returned(), "another leads before this one knows of its loss")
			ended := time.Now()
			next := c.Value(t)
			require.Positive(t, time.Since(ended))
			require.ErrorIs(t, old.Err(t), lease.ErrLost)
			synctime.Pass(late)
			d.Heal()
			synctest.Wait()
			leads(t, other, "new", next)
			require.ErrorIs(t, paused.Proclaim(t.Context(), l, "later"), lease.ErrLost)
			leads(t, other, "new", next)
			kit.Release(t, next)
		})
	}
}

// The news of its end did not reach the leader; the server's answer to its proclamation does.
func TestALeaderThatIsNoneLearnsItFromItsProclamation(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e, _ := of(t, s)
		other, _ := of(t, s)
		for fault, end := range map[string]func(){
			"forced": func() {
				s.DropPublish(1)
				require.NoError(t, kit.Err(other.ForceRelease(t.Context(), 0)))
			},
			"forgotten": func() { s.Do("DEL", lockKey(e.Name())) },
		} {
			l := lead(t, e, "a")
			synctest.Wait()
			end()
			require.NoError(t, l.Context().Err())
			err := e.Proclaim(t.Context(), l, "b")
			kit.Fails(t, err, lease.ErrLost, map[string]string{"forced": "by force", "forgotten": "lost the state"}[fault])
			require.Error(t, l.Context().Err(), "it knows it from then on")
			nobody(t, other)
		}
	})
}

func TestAnUnansweredProclamationSaysThatItMayBeDone(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		e, _ := of(t, s, kit.Through(p))
		other, _ := of(t, s)
		l := lead(t, e, "a")
		p.LoseReplies(1<<30, kit.Runs(lua.ElectionProclaim.Script))
		err := e.Proclaim(kit.Within(t, time.Second), l, "b")
		kit.Fails(t, err, lease.ErrOutcomeUnknown, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrLost)
		leads(t, other, "b", l)
	})
}

// A campaign that cannot proclaim gives the lead back.
func TestACampaignThatEndsBeforeItHasProclaimedLeavesNoLeader(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		e, _ := of(t, s, kit.Through(p))
		other, _ := of(t, s)
		p.LoseReplies(1<<30, kit.Runs(lua.ElectionProclaim.Script))
		require.ErrorIs(t, kit.Err(e.Campaign(kit.Within(t, 500*time.Millisecond), "a")), context.DeadlineExceeded)
		l := lead(t, other, "b")
		require.Less(t, l.Waited(), lease.DefaultLease/2, "it waited for the lease to end")
		leads(t, other, "b", l)
		kit.Release(t, l)
	})
}

func TestClosingAClientResigns(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, c := of(t, s)
		other, _ := of(t, s)
		l := lead(t, e, "a")
		news := other.Observe(t.Context())
		until(t, news, "a", l.Token())
		hearing(t, s, e.Name(), 1)
		waits := candidate(e, "b")
		kit.Waiting(t, 1, other.Inspect)
		require.NoError(t, c.Shutdown(t.Context()))
		require.ErrorIs(t, waits.Err(t), lease.ErrClosed)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrClientClosed)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "c"), lease.ErrClientClosed)
		require.Zero(t, next(t, news))
		require.ErrorIs(t, kit.Err(e.Leader(t.Context())), lease.ErrClosed)
		kit.Release(t, lead(t, other, "d"))
	})
}

// To look changes nothing, so there is nothing that may have been done.
func TestALookForTheLeaderThatIsNotAnsweredSaysNothingOfAnOutcome(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		e, _ := of(t, s, kit.Over(d))
		l := lead(t, e, "value")
		d.Drop(faults.ToServer)
		_, err := e.Leader(kit.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrOutcomeUnknown)
		d.Heal()
		kit.Release(t, l)
	})
}

// What a campaign has to do after the grant takes longer than the lead may go on without progress.
func TestTheTimeWithoutProgressBeginsWhenACampaignReturns(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		e := election.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), headwaiter.WithMaxStall(500*time.Millisecond))
		kit.Release(t, kit.Got(e.Campaign(t.Context(), "x"))(t))
		d.Delay(600*time.Millisecond, faults.ToClient)
		l := kit.Got(e.Campaign(t.Context(), "x"))(t)
		require.NoError(t, l.Context().Err())
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrStalled)
	})
}

// A candidate that has waited its turn waits for the disk too, as the others behind it do.
func TestACandidateWhoseTurnHasComeWaitsUntilTheServerIsMended(t *testing.T) {
	for code, text := range map[string]string{"MISCONF": "-MISCONF unable to persist to disk.", "NOREPLICAS": "-NOREPLICAS Not enough good replicas to write."} {
		kit.BubbleOf(t, code, func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			near, far := election.New(kit.Dial(t, s), kit.Name(t)), election.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
			l := kit.Got(near.Campaign(t.Context(), "near"))(t)
			next := kit.Go(func() (*lease.Lease, error) { return far.Campaign(t.Context(), "far") })
			kit.Waiting(t, 1, near.Inspect)
			synctime.Pass(time.Second)
			d.Delay(100*time.Millisecond, faults.ToClient)
			kit.Release(t, l)
			s.Answer("EVALSHA", text)
			s.Answer("EVAL", text)
			synctime.Pass(time.Second)
			require.False(t, next.Returned())
			s.Answer("EVALSHA", "")
			s.Answer("EVAL", "")
			kit.Release(t, next.Value(t))
		})
	}
}
