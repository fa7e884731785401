package redlock

import (
	"context"
	"slices"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// agreeLocked returns the token of the hold, if a quorum of certain votes has it: the same one, so that it is in each
// of these nodes and above all that they have given before. Where the votes differ, those below are made to rise,
// which costs a round trip, and there is none yet.
func (c *call) agreeLocked() (uint64, bool) {
	var few [8]uint64
	tokens := few[:0]
	for i := range c.votes {
		if v := &c.votes[i]; v.certainLocked() && !v.raising {
			tokens = append(tokens, v.token)
		}
	}
	if len(tokens) < c.m.quorum {
		return 0, false
	}
	token, have := choose(tokens, c.m.quorum)
	if have >= c.m.quorum {
		return token, true
	}
	for i := range c.votes {
		if v := &c.votes[i]; v.certainLocked() && !v.raising && v.token < token {
			v.raising = true
			l, known := v.lease, v.token
			c.run(func() { c.raised(i, l, known, token) })
		}
	}
	return 0, false
}

// choose returns the token to which the fewest votes of a quorum have to rise, and how many have it: of those that
// are not below a quorum's tokens the one that most have, the lowest where several are equal. A node whose clock is
// far ahead so does not count while there are others. It sorts what it gets.
func choose(tokens []uint64, quorum int) (token uint64, have int) {
	slices.Sort(tokens)
	for i := quorum - 1; i < len(tokens); i++ {
		n := 0
		for _, t := range tokens {
			if t == tokens[i] {
				n++
			}
		}
		if n > have {
			token, have = tokens[i], n
		}
	}
	return token, have
}

// raised lets the token of a vote rise at its node, from the one that the node is known to have. Where that is not
// confirmed in time the vote is given back and asked for again: what token the node has for it is not known. A hold
// that began meanwhile keeps the vote, and counts on it already.
func (c *call) raised(i int, l *lease.Lease, known, wanted uint64) {
	n := &c.m.nodes[i]
	id, from, to := n.client.ID(), strconv.FormatUint(known, 10), strconv.FormatUint(wanted, 10)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	r, err := waitqueue.Call(ctx, n.queue, lua.Raise, c.m.set.timeout, func(a waitqueue.Attempt) []string {
		return []string{id, from, to, a.NotAfter}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.votes[i]
	if c.over || v.lease != l {
		return
	}
	switch {
	case err == nil && r.Status == wire.Granted:
		v.token, v.raising = wanted, false
		waitqueue.Above(n.client, wanted)
	case c.keeper != nil:
		v.raising = false // A quorum had the token when the hold began, and a renewal tells whether the vote is there.
	default:
		c.giveWayLocked(i)
	}
	c.poke()
}
