package core

import (
	"container/list"
	"container/ring"
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
)

// A Cohort is the calls of one client for one name, with the same options, that let each other use one hold, without a request
// to Redis. A lock without a cohort does not come by this file.
//
// One of the calls, the leader, asks the queue and gets the hold. The others, the followers, wait for the leader in the order of
// their calls; Redis does not know them. Each call has a lease, a context, a release and a token of its own: the token is one
// above the token of the call before. A hold is free after a call has released it, and until its next user comes. Then:
//
//   - There is a next user, and the hold may be passed on ([Lock.mayPass]): that call uses it. Nothing is sent.
//   - There is a next user, but no pass is left, or somebody waits for a kept hold, or it is in doubt whether the hold lasts:
//     it is given back, and that call leads. Its acquire request has the time of its call, and goes in the same round trip as
//     the release of the hold, before it.
//   - There is no next user yet, the client keeps holds, and nobody is known to wait in the queue (I14): the hold is kept. It is
//     given back when a client of the queue wants it, when no call has come for the time given, or when the client keeps too many.
//   - Else it is given back.
//
// Among clients each hold that is served before a waiter lets at most as many later calls go first as it has passes: with k
// clients up to k times as many. To be queued in time a follower must be subscribed, so the client subscribes as soon as more followers
// wait than passes are left. The ticket of the leader reserves a token for each use, and the release names the last token used.
//
// Source: Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012, where threads of one processor pass a lock on. Here they are
// calls of one client, and the queue in Redis is the global lock.
type Cohort struct {
	Owner any   // what the caller keeps of it
	Hold  *Hold // nil while its leader waits; the caller reads it between inputs

	lock   *Lock
	passes int           // how often a hold may be passed on though somebody waits in the queue
	keep   time.Duration // for how long a hold is kept for a call that comes; 0: not at all

	led       bool      // a call asks for a hold, or there is a hold
	left      int       // passes of the hold, or of the next
	followers list.List // of *Follower, by their calls

	place  ring.Ring // among the kept holds of the client
	listed bool
}

// MaxPasses is the most often that a hold may be passed on. If a client dies the server takes all passes for used: the
// next token is then up to a millisecond above the token of the grant.
const MaxPasses = 1 << 10

// reserved is how many passes a ticket reserves whose hold may be kept: after them it is given back, and asked for again. If the
// client dies they are taken for used, which is 65 ms from its grant.
const reserved = 1 << 16

// Tokens is how many tokens a ticket of a cohort reserves: it asks for them as permits.
func Tokens(passes int, keep time.Duration) int64 {
	if keep > 0 {
		passes = max(passes, reserved)
	}
	return int64(1 + passes)
}

// A Follower is a call that waits for others of its cohort.
type Follower struct {
	Owner any           // what the caller keeps of it
	place *list.Element // nil if it does not wait
}

// A Turn is what is decided about the next user of a hold.
type Turn uint8

const (
	Later Turn = iota // its turn has not come, or it has not come itself
	Uses              // it has the hold now, by the next token
	Leads             // it asks the queue for a hold; what the cohort has is given back before
)

// Begin makes c the cohort of calls that pass a hold on at most passes times, and keep it for the time keep.
func (l *Lock) Begin(c *Cohort, passes int, keep time.Duration) {
	c.lock, c.passes, c.keep = l, passes, keep
	l.cohorts = append(l.cohorts, c)
}

// Join takes in that a call comes. One whose turn is later may wait for it: see [Cohort.Wait].
func (c *Cohort) Join(x *Input, doubtful bool, v Leases) Turn {
	if c.isKept() {
		if c.lock.pass(x, c.Hold, false, doubtful, v) {
			return Uses
		}
		c.over()
	}
	if c.led {
		return Later
	}
	c.led, c.left = true, c.passes
	return Leads
}

// Wait has a call wait after the other followers. Who uses the hold is told, if it wants to know.
func (c *Cohort) Wait(x *Input, f *Follower) {
	f.place = c.followers.PushBack(f)
	c.tell(x)
	if c.followers.Len() > c.left {
		c.lock.Listen(x)
	}
}

// Leave takes in that a follower waits no more. It reports false if its turn has come before.
func (c *Cohort) Leave(f *Follower) bool {
	if f.place == nil {
		return false
	}
	c.remove(f)
	return true
}

// OnHold takes in that the leader has a hold.
func (c *Cohort) OnHold(x *Input, h *Hold) {
	if h.Ticket.state != held { // It was lost since.
		c.OnFailed(x)
		return
	}
	c.Hold = h
	h.Ticket.Joint = false
	if c.keep > 0 {
		c.lock.Wish(x, h)
	}
}

// OnFailed takes in that the leader has got no hold, or that its hold is lost. The first follower leads next.
func (c *Cohort) OnFailed(x *Input) {
	if f := c.over(); f != nil {
		x.Add(Effect{Do: Lead, Follower: f})
	}
}

// OnRelease takes in that a call has released what it used of a hold, and decides about the next user, which may be none: then
// Later means that the hold is kept, and Leads that it is only given back.
func (c *Cohort) OnRelease(x *Input, h *Hold, doubtful bool, v Leases) (Turn, *Follower) {
	first := c.first()
	switch {
	case c.Hold != h: // It was lost, and the followers have gone on.
		return Leads, nil
	case first == nil && c.keep > 0 && c.lock.keep(x, h, c.keep, doubtful, v):
		return Later, nil
	case first != nil && c.lock.pass(x, h, c.left > 0, doubtful, v):
		c.left--
		c.remove(first)
		return Uses, first
	}
	return Leads, c.over()
}

// Recall takes in that a kept hold is wanted back, and reports whether it is to be given back: not if a call uses it.
func (c *Cohort) Recall() (back bool) {
	if back = c.isKept(); back {
		c.over()
	}
	return back
}

// Want takes in that the call that uses the hold wants to know when somebody waits: followers count, and calls of the queue.
func (c *Cohort) Want(x *Input) {
	if c.followers.Len() > 0 {
		c.tell(x)
	}
	if c.Hold != nil {
		c.lock.Wish(x, c.Hold)
	}
}

// tell adds the effect that informs the user of the hold, if there is a hold: somebody waits.
func (c *Cohort) tell(x *Input) {
	if c.Hold != nil {
		x.do(Awaited, &c.Hold.Ticket.Call)
	}
}

// isKept reports whether the next user of the hold has not come yet.
func (c *Cohort) isKept() bool { return c.Hold != nil && !c.Hold.Idle.IsZero() }

// over ends what the leader had, and returns the follower that leads next. Without one nobody does.
func (c *Cohort) over() *Follower {
	c.Hold = nil
	f := c.first()
	if f != nil {
		c.remove(f)
	}
	c.led, c.left = f != nil, c.passes
	return f
}

// end ends the waits of all followers, for a reason.
func (c *Cohort) end(x *Input, why error) {
	for f := c.first(); f != nil; f = c.first() {
		c.remove(f)
		x.Add(Effect{Do: Lead, Follower: f, Err: why})
	}
	c.Hold, c.led = nil, false
}

func (c *Cohort) first() *Follower {
	if first := c.followers.Front(); first != nil {
		return first.Value.(*Follower)
	}
	return nil
}

func (c *Cohort) remove(f *Follower) {
	c.followers.Remove(f.place)
	f.place = nil
}

// drift is how far two clocks may run apart: one part in drift.
const drift = 1000

// mayPass reports whether a call may use the hold after the one that had it, by the next token. It may not if somebody is known
// to wait in the queue, unless it barges. The next token is one of those that the ticket reserves, and it is above the first
// by at most the microseconds that have passed since the grant: so the next hold has a higher one also where the server has
// forgotten the last (I13). A hold whose end is near, or in doubt, is not passed on.
func (l *Lock) mayPass(x *Input, h *Hold, barges, doubtful bool, v Leases) bool {
	since := x.Now.Sub(h.granted)
	return (barges || !h.isRecalled()) && int64(h.UseToken-h.Token) < (since-since/drift).Microseconds() && h.lasts(x.Now, doubtful, v)
}

// pass lets the next call use the hold, and reports whether it may. Nothing is sent.
func (l *Lock) pass(x *Input, h *Hold, barges, doubtful bool, v Leases) bool {
	if !l.mayPass(x, h, barges, doubtful, v) {
		return false
	}
	h.Idle = time.Time{}
	h.UseToken++
	h.Since = x.Now
	h.Ticket.used = h.UseToken
	x.Add(Effect{Do: RaiseToken, Token: h.UseToken})
	return true
}

// keep keeps the hold of a call that has released it, until a call takes it up or d has passed: then it is recalled, as if
// somebody waited. It reports false, and does nothing, where somebody does, or no call could take it up. Nothing is sent;
// renewals are for the grant lease from then on (I15).
func (l *Lock) keep(x *Input, h *Hold, d time.Duration, doubtful bool, v Leases) bool {
	if h.isRecalled() || !h.lasts(x.Now, doubtful, v) {
		return false
	}
	h.Idle = x.Now.Add(d)
	l.shorten(x, h)
	l.holdTimer(x, h, times.Earlier(h.Idle, h.due), false)
	return true
}

// shorten sees that the lease of an idle hold is soon made short, unless a call takes it up.
func (l *Lock) shorten(x *Input, h *Hold) {
	if !h.Idle.IsZero() && h.spans > l.GrantLease {
		h.due = times.Earlier(h.due, x.Now.Add(l.GrantLease/3))
	}
}

// isRecalled reports whether somebody is known to wait for the hold in the queue. Where its own call has waited there, others may
// come after it: that is not known before a renewal has said so (I14).
func (h *Hold) isRecalled() bool {
	return h.wish == fulfilled || h.wish == unsaid && h.Ticket.Arrival != 0
}

// lasts reports whether there is a next token, and time for it.
func (h *Hold) lasts(now time.Time, doubtful bool, v Leases) bool {
	return int64(h.UseToken-h.Token)+1 < h.Ticket.Permits &&
		h.Ticket.state == held && !h.Ticket.forced && !doubtful && h.failures == 0 && !v.Over && h.Lasts.Deadline.Sub(now) >= h.spans/4
}

// rest sees that an idle hold is given back in time, and returns when to look again.
func (l *Lock) rest(x *Input, h *Hold, next time.Time) time.Time {
	switch {
	case h.Idle.IsZero():
	case x.Now.Before(h.Idle):
		return times.Earlier(next, h.Idle)
	case h.wish != fulfilled: // Nobody takes it up any more.
		h.wish = fulfilled
		x.do(Recall, &h.Ticket.Call)
	}
	return next
}

// mostKept is how many holds a client keeps that no call uses.
const mostKept = 1000

// Kept are the cohorts of a client whose holds are kept, in the order in which they were used last.
type Kept struct {
	all ring.Ring // begins after this one, which is none
	n   int
}

// Add takes in that the hold of a cohort is kept. It returns the cohort whose hold is one too many, to be recalled, or nil.
func (k *Kept) Add(c *Cohort) (excess *Cohort) {
	c.place.Value, c.listed = c, true
	k.all.Prev().Link(&c.place)
	if k.n++; k.n > mostKept {
		excess = k.all.Next().Value.(*Cohort)
		k.Remove(excess)
	}
	return excess
}

// Remove takes in that the hold of a cohort is kept no more: a release looks at none that is in use.
func (k *Kept) Remove(c *Cohort) {
	if c.listed {
		c.listed = false
		c.place.Prev().Unlink(1)
		k.n--
	}
}
