package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// electLocked makes the hold if a quorum of votes is certain and agrees on a token.
func (c *call) electLocked(ctx context.Context) *keeper.Keeper {
	token, ok := c.agreeLocked()
	if !ok {
		return nil
	}
	if c.m.set.maxHold > 0 {
		slept := keeper.Slept() // First: what is slept from here on must show.
		c.limit = keeper.Until{Deadline: time.Now().Add(c.m.set.maxHold), Slept: slept, Cause: lease.ErrMaxHold}
	}
	u, votes := c.untilLocked()
	if votes < c.m.quorum {
		return nil
	}
	k := keeper.New(ctx, keeper.Terms{
		Name:  c.m.label(),
		Token: token, Until: u, Waited: time.Since(c.begun), Release: c.release, Unlock: c.unlock, Key: c.m.held,
		Stall: keeper.NewStall(c.m.set.maxStall),
	})
	if k.Overdue() {
		return nil // A renewal makes it longer, or the votes are lost.
	}
	c.keeper = k
	c.timer = time.AfterFunc(c.pace(time.Until(c.keeper.Deadline())), c.watch)
	for i := range c.votes {
		c.retryLocked(i)
	}
	return c.keeper
}

// drift is what validity loses in addition to a hundredth: for the granularity of clocks. The votes' own deadlines have lost
// the larger of both before; Redlock wants the sum.
const drift = 2 * time.Millisecond

// untilLocked returns how long the votes that are certain make a quorum, and how many there are: to the earliest
// deadline of the quorum that lasts longest. What the machine slept counts from when that vote was asked for, or renewed.
func (c *call) untilLocked() (u keeper.Until, votes int) {
	var few [8]keeper.Until
	ends := few[:0]
	for i := range c.votes {
		if v := &c.votes[i]; v.certainLocked() {
			ends = append(ends, (*keeper.Keeper)(v.lease).Until())
		}
	}
	if len(ends) < c.m.quorum {
		return u, len(ends)
	}
	slices.SortFunc(ends, func(a, b keeper.Until) int { return awake(b).Compare(awake(a)) })
	u = ends[c.m.quorum-1]
	u.Deadline = u.Deadline.Add(-drift)
	if !c.limit.Deadline.IsZero() && awake(c.limit).Before(awake(u)) {
		u = c.limit
	}
	return u, len(ends)
}

// awake is an end by a clock that goes on while the machine sleeps: two of them can be compared.
func awake(u keeper.Until) time.Time { return u.Deadline.Add(u.Slept) }

// pace is in how long to look at the deadline again: a third of what is left of it, but at least a millisecond if so much
// is left, and at most a sixth of the lease. Votes are renewed at a third of their lease, so there are two looks to a
// renewal.
func (c *call) pace(left time.Duration) time.Duration {
	return min(max(left/3, min(left, time.Millisecond)), c.m.set.lease/6)
}

// watch is the hold's appointment: its end moves with the renewals of the votes, or has come.
func (c *call) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && c.lost == nil {
		c.keepLocked(lease.ErrExpired)
	}
}

// keepLocked moves the end of the hold, or ends it where the votes are too few.
func (c *call) keepLocked(cause error) {
	u, votes := c.untilLocked()
	if votes < c.m.quorum {
		c.lost = fmt.Errorf("%w (%d of %d nodes are left)", cause, votes, len(c.votes))
		c.loseLocked(c.lost)
		return
	}
	if !c.keeper.Extend(u) {
		c.loseLocked(lease.ErrExpired) // Or released, or the maximum: then that is the cause already.
		return
	}
	c.timer.Reset(c.pace(time.Until(c.keeper.Deadline())))
}

// loseLocked ends the hold as lost, and gives back what is left of it.
func (c *call) loseLocked(cause error) {
	c.keeper.Lose(cause)
	ended := context.Cause(c.keeper.Context())
	if errors.Is(ended, lease.ErrReleased) {
		return // The release has begun, and does the rest.
	}
	c.lost = ended
	c.giveAllBack(c.endLocked())
	c.stop()
}

// grace is how long a release waits at the most for the nodes that are not needed for a quorum. In the usual case their
// answers are here before the next call asks: requests that meet on a connection take it off its shortest path for
// good.
const grace = 5 * time.Millisecond

// release gives all votes back at once, and comes back when a quorum of nodes has confirmed it: the next waiter can
// hold then. For the other nodes it waits some ms more; then they are told in the background. Votes that come from now
// on are given back and do not count: they say nothing of whether it was held to the end.
func (c *call) release(ctx context.Context) error {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return c.lost
	}
	leases, lost := c.endLocked(), c.lost
	c.mu.Unlock()
	if time.Since(c.begun) > grace {
		c.stop() // What has not voted by now is slow, or has voted for another.
	}
	defer c.stop()
	_, floor := c.m.clocks()
	c.m.above(floor) // For those to whom it is handed on.
	answers := c.giveAllBack(leases)
	timer := time.NewTimer(2 * c.m.set.timeout)
	defer timer.Stop()
	o := outcome{quorum: c.m.quorum, votes: len(leases), before: lost}
	for range leases {
		select {
		case err := <-answers:
			if !o.add(err) {
				continue
			}
			timer.Reset(grace)
			select {
			case <-c.work.over():
			case <-timer.C:
			}
			return o.err()
		case <-timer.C:
			return o.err()
		case <-ctx.Done():
			return errors.Join(o.err(), calls.WhyEnded(ctx))
		}
	}
	return o.err()
}

// unlock gives all votes back and waits for nobody: each is its client's to give back, whose Close waits for that. What
// has not voted yet is given up.
func (c *call) unlock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	_, floor := c.m.clocks()
	c.m.above(floor) // For those to whom it is handed on.
	for _, l := range c.endLocked() {
		l.Unlock()
	}
	c.stop()
}

// An outcome is what the nodes say of a release.
type outcome struct {
	quorum, votes     int
	before            error // why the hold was lost before the votes were given back, if it was
	ours, lost        int
	why, last, asleep error
}

// add takes in an answer, and reports whether it decides.
func (o *outcome) add(err error) bool {
	switch {
	case err == nil:
		o.ours++
	case errors.Is(err, lease.ErrUnwoken):
		o.ours++
		o.asleep = err
	case errors.Is(err, lease.ErrLost):
		o.lost++
		o.why = err
	default:
		o.last = err
	}
	return o.ours >= o.quorum || o.votes-o.lost < o.quorum
}

// err is what it comes to. Votes that were not there any more are lost, and with too many of them the hold was.
func (o *outcome) err() error {
	switch {
	case o.before != nil:
		return o.before
	case o.ours >= o.quorum:
		return o.asleep
	case o.votes-o.lost < o.quorum:
		return fmt.Errorf("%w (%d of %d votes)", o.why, o.lost, o.votes)
	case o.last != nil:
		return fmt.Errorf("%w: %d of %d nodes have answered: %w", lease.ErrUnconfirmed, o.ours+o.lost, o.votes, o.last)
	}
	return fmt.Errorf("%w: %d of %d nodes have answered in time", lease.ErrUnconfirmed, o.ours+o.lost, o.votes)
}
