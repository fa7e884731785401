package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
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

// step begins a call on nodes of a bubble, whose votes have these tokens. The last nodes, so many, do not answer yet.
func step(t *testing.T, silent int, tokens ...uint64) *stepped {
	t.Helper()
	c := &stepped{t: t, base: uint64(time.Now().Add(10 * time.Second).UnixMicro())}
	var clients []*headwaiter.Client
	for _, token := range tokens {
		s := redistest.Bubble(t)
		c.ways = append(c.ways, faults.NewDialer(t, s.Dial))
		client := kit.Dial(t, s, kit.Over(c.ways[len(c.ways)-1]))
		waitqueue.Above(client, c.base+token-1)
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
	l, err := c.judge(c.t.Context())
	require.NoError(c.t, err)
	return l
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
		t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := step(t, 0, 10, 10, 10)
				l := c.judged()
				require.NotNil(t, l)
				c.keeper.End()
				for i := range 3 - left {
					c.force(i)
				}
				err := c.release(context.Background())
				require.ErrorIs(t, err, lease.ErrForced)
				require.ErrorContains(t, err, fmt.Sprintf(": released elsewhere by force (%d of 3 nodes are left)", left))
			})
		})
	}
}
