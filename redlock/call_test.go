package redlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A stepped call is one that judges when a test says so.
type stepped struct {
	*call
	t    *testing.T
	ways []*faults.Dialer // to the nodes
	base uint64           // what the tokens that the test names are above, itself ahead of all clocks
}

// step begins a call on nodes of a bubble, whose votes have these tokens. The last nodes, silent of them, do not answer yet.
func step(t *testing.T, silent int, tokens ...uint64) *stepped {
	t.Helper()
	c := &stepped{t: t, base: uint64(time.Now().Add(10 * time.Second).UnixMicro())}
	var clients []*headwaiter.Client
	for _, token := range tokens {
		s := redistest.Bubble(t)
		c.ways = append(c.ways, faults.NewDialer(t, s.Dial))
		client := kit.Dial(t, s, kit.Over(c.ways[len(c.ways)-1]))
		waitqueue.Above((*waitqueue.Client)(client), c.base+token-1)
		clients = append(clients, client)
	}
	answer := len(tokens) - silent
	for _, way := range c.ways[answer:] {
		way.Freeze()
	}
	// A rise may fail after the first renewals.
	c.call = New(clients, kit.Name(t), WithoutSafeRestart(), WithTimeout(5*time.Second)).begin(false)
	for i := range answer {
		require.Equal(t, c.base+tokens[i], c.given(i).token)
	}
	return c
}

// vote is what the call has at a node now.
func (c *stepped) vote(i int) vote {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.votes[i]
}

// given waits for the vote of a node.
func (c *stepped) given(i int) vote {
	c.t.Helper()
	kit.Eventually(c.t, fmt.Sprintf("the vote of node %d", i), func() bool { return c.vote(i).lease != nil })
	return c.vote(i)
}

// risen waits until the vote of a node does not rise any more.
func (c *stepped) risen(i int) vote {
	c.t.Helper()
	kit.Eventually(c.t, fmt.Sprintf("an end of the rise of node %d", i), func() bool { return !c.vote(i).raising })
	return c.vote(i)
}

// judged lets the call judge, and returns the hold if that is what came of it.
func (c *stepped) judged() *lease.Lease {
	c.t.Helper()
	return kit.Got(c.judge(c.t.Context()))(c.t)
}

// force takes the vote of a node away, and waits until the call knows.
func (c *stepped) force(i int) {
	c.t.Helper()
	client := c.m.nodes[i].client
	_, err := client.Queue(lua.Redlock, c.m.Name(), waitqueue.DefaultTerms()).ForceRelease(c.t.Context(), 0)
	require.NoError(c.t, err)
	kit.Eventually(c.t, fmt.Sprintf("the loss of the vote of node %d", i), func() bool { return c.vote(i).lease == nil })
}

// Of five votes two rise to the third, and then with that one to the fourth.
func TestAVoteRisesAsOftenAsItHasTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := step(t, 2, 10, 11, 12, 15, 0)
		first := c.vote(0).lease
		c.ways[1].Freeze()
		require.Nil(t, c.judged())
		require.Equal(t, c.base+12, c.risen(0).token)

		c.ways[3].Heal()
		require.Equal(t, c.base+15, c.given(3).token)
		require.Nil(t, c.judged())
		require.Equal(t, c.base+15, c.risen(2).token)
		require.True(t, first == c.risen(0).lease, "it was given back")
		l := c.judged()
		require.NotNil(t, l)
		require.Equal(t, c.base+15, l.Token())

		for _, way := range c.ways {
			way.Heal()
		}
		kit.Release(t, l)
	})
}

// A hold begins while one of its votes is rising yet. It needs that vote when another is lost, whatever comes of the
// rise: the token was in a quorum when the hold began.
func TestARiseThatFailsTakesNoVoteFromAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := step(t, 1, 10, 12, 12)
		c.ways[0].Freeze()
		require.Nil(t, c.judged())
		rising := c.vote(0)
		require.True(t, rising.raising)
		c.ways[2].Heal()
		c.given(2)
		l := c.judged()
		require.NotNil(t, l)
		require.Equal(t, c.base+12, l.Token())
		c.force(1)
		require.True(t, c.vote(0).raising)
		require.True(t, rising.lease == c.risen(0).lease, "the hold has one vote of three, and goes on: %v", l.Context().Err() == nil)
		c.ways[0].Heal()
		before := l.Deadline()
		kit.Eventually(t, "a renewal with both votes", func() bool { return l.Deadline().After(before) })
		kit.Release(t, l)
	})
}

// A release ends the lease first, and takes the votes then. Between these the votes of a quorum are lost.
func TestAReleaseThatMeetsTheLossOfTheQuorumSaysSo(t *testing.T) {
	for _, left := range []int{1, 0} {
		kit.Parallel(t, fmt.Sprintf("%d left", left), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := step(t, 0, 10, 10, 10)
				require.NotNil(t, c.judged())
				c.keeper.End()
				for i := range 3 - left {
					c.force(i)
				}
				err := c.release(context.Background())
				kit.Fails(t, err, lease.ErrForced, fmt.Sprintf(": released elsewhere by force (%d of 3 nodes are left)", left))
			})
		})
	}
}

// votesFor is a call with votes that last that many seconds; 0 is none.
func votesFor(t *testing.T, now time.Time, seconds ...int) *call {
	t.Helper()
	c := &call{m: &Mutex{quorum: len(seconds)/2 + 1, set: with(nil)}, votes: make([]vote, len(seconds))}
	for i, s := range seconds {
		if s != 0 {
			u := keeper.Until{Deadline: now.Add(time.Duration(s) * time.Second), Slept: keeper.Slept()}
			c.votes[i].lease = (*lease.Lease)(keeper.New(t.Context(), keeper.Terms{Until: u}))
		}
	}
	return c
}

func TestAHoldIsValidWhileAQuorumIs(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		seconds []int
		votes   int
		valid   int // seconds; 0 if there is no quorum
	}{
		{[]int{10, 20, 30}, 3, 20},
		{[]int{30, 0, 10}, 2, 10},
		{[]int{30, 0, 0}, 1, 0},
		{[]int{50, 10, 40, 20, 30}, 5, 30},
		{[]int{50, 10, 40, 0, 30}, 4, 30},
		{[]int{50, 10, 0, 0, 30}, 3, 10},
		{[]int{50, -10, 40, 0, 30}, 3, 30}, // what has passed does not count
		{[]int{50, -10, 0, 0, 30}, 2, 0},
		{[]int{10, 20}, 2, 10},
		{[]int{10, 20, 30, 40}, 4, 20},
		{[]int{10}, 1, 10},
	} {
		u, votes := votesFor(t, now, c.seconds...).untilLocked()
		require.Equal(t, c.votes, votes, c.seconds)
		if c.valid == 0 {
			require.Zero(t, u.Deadline, c.seconds)
			continue
		}
		// The drift of Redlock in addition to what each vote has taken off.
		require.Equal(t, time.Duration(c.valid)*time.Second-2*time.Millisecond, u.Deadline.Sub(now), c.seconds)
	}
	c := votesFor(t, now, 10, 20, 30)
	c.limit = keeper.Until{Deadline: now.Add(15 * time.Second), Slept: keeper.Slept(), Cause: lease.ErrMaxHold}
	u, _ := c.untilLocked()
	require.Equal(t, c.limit, u)
}

// What the machine slept before a vote was asked for is none of that vote's time, nor of the hold's.
func TestWhatWasSleptBeforeAVoteDoesNotShortenTheHold(t *testing.T) {
	now, slept := time.Now(), keeper.Slept()
	after := func(left, sleeps time.Duration) vote { // Of a machine that has slept for so long since it was asked for.
		u := keeper.Until{Deadline: now.Add(left + sleeps), Slept: slept - sleeps}
		return vote{lease: (*lease.Lease)(keeper.New(t.Context(), keeper.Terms{Until: u}))}
	}
	for _, c := range []struct {
		name  string
		votes []vote
	}{
		{"all before the sleep", []vote{after(20*time.Second, time.Hour), after(10*time.Second, time.Hour), after(30*time.Second, time.Hour)}},
		{"all after it", []vote{after(20*time.Second, 0), after(10*time.Second, 0), after(30*time.Second, 0)}},
		{"the one that decides before it", []vote{after(20*time.Second, time.Hour), after(10*time.Second, 0), after(30*time.Second, 0)}},
		{"the one that decides after it", []vote{after(20*time.Second, 0), after(10*time.Second, time.Hour), after(30*time.Second, time.Hour)}},
		{"asked for at several times", []vote{after(20*time.Second, time.Minute), after(10*time.Second, time.Hour), after(30*time.Second, 0)}},
	} {
		u, votes := (&call{m: &Mutex{quorum: 2}, votes: c.votes}).untilLocked()
		require.Equal(t, 3, votes, c.name)
		left := u.Deadline.Sub(now) - (slept - u.Slept)
		require.Equal(t, 20*time.Second-2*time.Millisecond, left, c.name)
	}
}

func TestTheTokenIsTheOneThatTheFewestHaveToRiseTo(t *testing.T) {
	for _, c := range []struct {
		tokens []uint64
		quorum int
		token  uint64
		have   int
	}{
		{[]uint64{7, 7, 7}, 2, 7, 3},
		{[]uint64{7, 7}, 2, 7, 2},
		{[]uint64{9, 7}, 2, 9, 1},
		{[]uint64{9, 7, 8}, 2, 8, 1},         // 9 is left out
		{[]uint64{9, 7, 9}, 2, 9, 2},         // nobody has to rise
		{[]uint64{5, 5, 7, 8, 900}, 3, 7, 1}, // too few have 5
		{[]uint64{900, 7, 7, 8, 7}, 3, 7, 3}, // a clock that is far ahead
		{[]uint64{6, 900, 900, 8, 900}, 3, 900, 3},
	} {
		token, have := choose(append([]uint64(nil), c.tokens...), c.quorum)
		require.Equal(t, c.token, token, c.tokens)
		require.Equal(t, c.have, have, c.tokens)
	}
}

func TestAnOutcomeIsDecidedByAQuorum(t *testing.T) {
	for _, c := range []struct {
		name    string
		votes   int
		answers []error
		want    error // nil: released
		decided bool
	}{
		{"a quorum is ours", 5, []error{nil, nil, nil}, nil, true},
		{"too few have answered", 5, []error{nil, nil}, lease.ErrUnconfirmed, false},
		{"two were lost of five", 5, []error{lease.ErrForced, nil, lease.ErrForced, nil, nil}, nil, true},
		{"three were lost of five", 5, []error{lease.ErrForced, nil, lease.ErrForced, lease.ErrForced}, lease.ErrForced, true},
		{"one was lost of three", 3, []error{nil, nil, lease.ErrForgotten}, lease.ErrForgotten, true},
		{"one did not confirm of three", 3, []error{nil, nil, lease.ErrUnconfirmed}, lease.ErrUnconfirmed, false},
		{"nobody was woken", 3, []error{nil, lease.ErrUnwoken, nil}, lease.ErrUnwoken, true},
	} {
		o := outcome{quorum: 3, votes: c.votes}
		decided := false
		for _, err := range c.answers {
			decided = o.add(err)
		}
		require.Equal(t, c.decided, decided, c.name)
		if c.want == nil {
			require.NoError(t, o.err(), c.name)
		} else {
			require.True(t, errors.Is(o.err(), c.want), c.name)
		}
	}
}

// Of calls with the same arrival none is ahead, and then their votes come together by chance alone.
func TestCallsThatComeAtOnceHaveAnotherArrivalEach(t *testing.T) {
	const calls = 1000
	now := time.Now().UnixMicro()
	m := new(Mutex)
	for last, i := int64(0), 0; i < calls; i++ {
		arrival := m.arrive(now)
		require.Greater(t, arrival, last, "of one Mutex, in the order of its calls")
		last = arrival
	}
	same := 0
	for range calls {
		if one, other := new(Mutex).arrive(now), new(Mutex).arrive(now); one == other {
			same++
		}
	}
	require.Less(t, same, calls/20) // one in 250 is expected
	require.Less(t, new(Mutex).arrive(now)-now, spread.Microseconds())
}
