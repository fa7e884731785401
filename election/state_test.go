package election_test

import (
	"context"
	"fmt"
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

func TestCandidatesLeadOneAfterTheOtherInTheirOrder(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		elections := []*election.Election{election.New(a, kit.Name(t)), election.New(b, kit.Name(t))}
		nobody(t, elections[0])
		l := lead(t, elections[0], "0")
		calls := make([]*kit.Call[*lease.Lease], 6)
		for i := range calls {
			calls[i] = candidate(elections[i%2], fmt.Sprint(i+1))
			kit.Waiting(t, i+1, elections[0].Inspect)
		}
		for i, c := range calls {
			leads(t, elections[i%2], fmt.Sprint(i), l)
			for _, later := range calls[i:] {
				require.False(t, later.Returned(), "two lead")
			}
			kit.Release(t, l)
			after := c.Value(t)
			require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
			require.Greater(t, after.Token(), l.Token())
			l = after
		}
		leads(t, elections[1], "6", l)
		kit.Release(t, l)
		nobody(t, elections[0])
		nobody(t, elections[1])
		kit.Expiring(t, s)
	})
}

func TestResigningHandsOnLongBeforeTheLeaseEnds(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		other, _ := of(t, s)
		const rounds = 21
		spans := make([]time.Duration, rounds)
		for i := range spans {
			l := lead(t, e, "a")
			c := candidate(other, "b")
			kit.Waiting(t, 1, e.Inspect)
			begun := time.Now()
			kit.Release(t, l)
			kit.Release(t, c.Value(t))
			spans[i] = time.Since(begun)
		}
		t.Logf("from a resignation to the end of the next one: median %v", kit.Median(spans))
		require.Less(t, kit.Median(spans), lease.DefaultLease/20)
	})
}

func TestALeaderChangesItsValueAndAnotherCannot(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		e, other := election.New(a, kit.Name(t)), election.New(b, kit.Name(t))
		l := lead(t, e, "first")
		first, err := other.Leader(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.UnixMicro(kit.ServerTime(s)), first.Since, kit.Patience)
		for _, value := range []string{"second", "", "\x00\xff \r\n$-1\r\n", strings.Repeat("v", lease.MaxValue)} {
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			leads(t, other, value, l)
		}
		now, err := other.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.Since, now.Since, "it is one leadership")

		elsewhere := lead(t, election.New(a, kit.Name(t)+":elsewhere"), "x")
		require.ErrorIs(t, e.Proclaim(t.Context(), elsewhere, "y"), lease.ErrNotHeld)
		require.NoError(t, elsewhere.Context().Err())
		kit.Release(t, elsewhere)

		kit.Release(t, l)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "late"), lease.ErrReleased)
		nobody(t, other)
		next := lead(t, other, "next")
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "later"), lease.ErrReleased)
		leads(t, e, "next", next)
		kit.Release(t, next)
		kit.Expiring(t, s)
	})
}

func TestALeaderWhoseLeaseIsOverByTheServersClockIsNone(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	e, _ := of(t, s)
	l := lead(t, e, "a")
	leads(t, e, "a", l)
	lock := lockKey(e.Name())
	s.Do("HSET", lock, "until", fmt.Sprint(kit.ServerTime(s)-1))
	nobody(t, e)
	s.Do("HSET", lock, "until", fmt.Sprint(kit.ServerTime(s)+9_000_000))
	leads(t, e, "a", l)
	s.Do("HSET", lock, "token", fmt.Sprint(l.Token()+1)) // Another was granted, and has proclaimed nothing yet.
	nobody(t, e)
}

// What the server refuses is refused by the server, not only by a client that knows that its lease is over.
func TestTheServerRefusesAProclamationOfWhoDoesNotLead(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		l := lead(t, e, "mine")
		lock := lockKey(e.Name())
		ticket, token := s.Text("HGET", lock, "owner"), s.Text("HGET", lock, "token")
		before := s.List("HGETALL", lock)
		ahead := fmt.Sprint(kit.ServerTime(s) + 60_000_000)
		run := func(ticket, token, notAfter string) int64 {
			return s.Do("EVAL", lua.ElectionProclaim.Source, "1", lock, ticket, token, "9007199254740992", "who", notAfter, "forged").([]any)[0].(int64)
		}
		require.EqualValues(t, lua.Refused, run("other:1:x:1:10000:2000", token, ahead))
		require.EqualValues(t, lua.Refused, run(ticket, fmt.Sprint(l.Token()-1), ahead), "an older token")
		require.EqualValues(t, lua.Refused, run(ticket, fmt.Sprint(l.Token()+1), ahead))
		require.EqualValues(t, lua.Late, run(ticket, token, fmt.Sprint(kit.ServerTime(s)-1)))
		require.ElementsMatch(t, before, s.List("HGETALL", lock), "something was written")
		s.Do("HSET", lock, "until", fmt.Sprint(kit.ServerTime(s)-1))
		require.EqualValues(t, lua.Refused, run(ticket, token, ahead), "its lease is over")
		require.Equal(t, "mine", s.Text("HGET", lock, "value"))
	})
}

func TestForcingALeaderOutLetsTheNextLead(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		e, other := election.New(a, kit.Name(t), headwaiter.WithLease(time.Second)), election.New(b, kit.Name(t))
		_, err := e.ForceRelease(t.Context(), 0)
		require.ErrorIs(t, err, lease.ErrNotHeld)
		l := lead(t, e, "a")
		c := candidate(other, "b")
		kit.Waiting(t, 1, e.Inspect)
		out, err := other.ForceRelease(t.Context(), l.Token())
		require.NoError(t, err)
		require.Equal(t, a.ID(), out.Client)
		next := c.Value(t)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "late"), lease.ErrForced)
		leads(t, e, "b", next)
		info, err := e.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, b.ID(), info.Holder.Client)
		kit.Release(t, next)
	})
}

func TestACandidateThatGivesUpLeavesNoTrace(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		other, _ := of(t, s)
		l := lead(t, e, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := kit.Go(func() (*lease.Lease, error) { return other.Campaign(ctx, "b") })
		kit.Waiting(t, 1, e.Inspect)
		cancel(context.DeadlineExceeded)
		err := c.Err(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the cause")
		var wait *lease.WaitError
		require.ErrorAs(t, err, &wait)
		require.Positive(t, wait.Waited)
		kit.Waiting(t, 0, e.Inspect)
		leads(t, other, "a", l)
		kit.Release(t, l)
		nobody(t, e)
	})
}
