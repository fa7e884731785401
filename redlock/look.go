package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// How long a call that has some votes, and too few, waits for the others before it looks who is ahead of it: some
// round trips, and with each look twice as long. Left to chance in part, so that not all look at once.
const (
	firstSplit = 10 * time.Millisecond
	longSplit  = 250 * time.Millisecond
)

// next says when to look, and begins to count where votes are split.
func (c *call) next() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	votes := 0
	for i := range c.votes {
		if c.votes[i].certainLocked() {
			votes++
		}
	}
	switch {
	case votes == 0:
		c.split = time.Time{}
	case c.split.IsZero():
		c.split = time.Now().Add(c.pause())
	}
	if !c.split.IsZero() && c.split.Before(c.alive) {
		return c.split
	}
	return c.alive
}

func (c *call) pause() time.Duration {
	d := min(firstSplit<<min(c.rounds, 8), longSplit)
	return d/2 + rand.N(d/2)
}

// look asks nodes: those whose vote is here, who is ahead, and when it is time for that all of them, whether they
// answer. A try has had its time.
func (c *call) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	all := !now.Before(c.alive)
	if all {
		c.alive = now.Add(c.m.set.timeout * 9 / 8) // When the looks of now are over.
		if c.answering() {
			c.alive = now.Add(max(c.m.set.lease/4, c.m.set.timeout))
		}
	}
	if !c.split.IsZero() && !now.Before(c.split) {
		c.rounds++
		c.split = now.Add(c.pause())
	}
	for i := range c.votes {
		v := &c.votes[i]
		if all && c.try && v.lease == nil && v.failed == nil {
			v.silent, v.last = mostSilent, fmt.Errorf("no answer within %v", c.m.set.timeout)
		}
		if c.try || v.looking || v.failed != nil || v.lease == nil && !all {
			continue
		}
		v.looking = true
		c.run(func() { c.lookAt(i) })
	}
}

// answering reports whether all nodes that may vote yet have answered the last look. Before the first look is over
// none has.
func (c *call) answering() bool {
	if time.Since(c.begun) < 2*c.m.set.timeout {
		return false
	}
	for i := range c.votes {
		if v := &c.votes[i]; v.lease == nil && v.failed == nil && v.silent > 0 {
			return false
		}
	}
	return true
}

// lookAt asks one node who waits there ahead of the call, and gives way to them if its vote is here. So the first of
// the waiters gets all votes that nobody holds by, and never gives way: of several with votes and no quorum one
// goes on. Where two have the same arrival chance decides.
func (c *call) lookAt(i int) {
	c.mu.Lock()
	l := c.votes[i].lease
	c.mu.Unlock()
	arrival := strconv.FormatInt(c.terms.Arrival, 10)
	ctx, cancel := context.WithTimeout(c.ctx, c.m.set.timeout)
	defer cancel()
	r, err := waitqueue.Call(ctx, c.m.nodes[i].queue, lua.Ahead, 0, func(waitqueue.Attempt) []string { return []string{arrival} })
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.votes[i]
	v.looking = false
	switch {
	case c.over || c.ctx.Err() != nil:
	case err != nil:
		v.silent++
		v.last = root(err)
	default:
		v.silent = 0
		if c.mayGiveWayLocked(v, l) && (r.Before > 0 || r.Same > 0 && rand.N(2) == 0) {
			c.giveWayLocked(i)
		}
	}
	c.poke()
}

// mayGiveWayLocked reports whether the vote is still l, which was there when the look began, and no part of a quorum.
func (c *call) mayGiveWayLocked(v *vote, l *lease.Lease) bool {
	if l == nil || v.lease != l || c.keeper != nil {
		return false
	}
	votes := 0
	for i := range c.votes {
		if c.votes[i].certainLocked() {
			votes++
		}
	}
	return votes < c.m.quorum
}

// root is what kept a node from answering: the request has tried again until its time was over, which says nothing.
func root(err error) error {
	found := err
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // It looks at each of the errors by itself.
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		default:
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && err != lease.ErrOutcomeUnknown { //nolint:errorlint // The same.
				found = err
			}
		}
	}
	walk(err)
	return found
}
