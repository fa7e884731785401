package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Unlock gives a hold back without waiting for the answer. Its end is sent in the background; there is one record of it,
// and no goroutine, until it is answered or the lease is over. An ask of the same client for the same name follows it
// (R1): it takes along in its own round trip what is not sent yet, and waits for the answers to what is under way.

// An unlock is the end of a hold that nobody waits for. The lock of the site guards it.
type unlock struct {
	end
	index int           // among those of the site
	held  time.Duration // for how long it was held

	isStuck bool          // the server refuses it until somebody mends the server
	stuck   chan struct{} // closed when that is so; nil while no call wants to know
}

// stuckLocked returns a channel that is closed once the server has refused the end until somebody mends the server.
func (u *unlock) stuckLocked() <-chan struct{} {
	if u.stuck == nil {
		u.stuck = make(chan struct{})
		if u.isStuck {
			close(u.stuck)
		}
	}
	return u.stuck
}

// unlock is what Unlock of a lease does, once. The lease's context has ended.
func (sh *share) unlock() {
	switch c := sh.hold.ticket.site.client; {
	case c.servers.Doubtful() && c.servers.Spawn(func() { _ = sh.release(context.Background()) }): // Which overtakes.
	case sh.takeOff(true).lower:
		sh.hold.lowerAlone()
	}
}

// lowerAlone does lower in the background, for as long as the hold lasts.
func (h *hold) lowerAlone() {
	s, over := h.ticket.site, make(chan struct{})
	s.mu.Lock()
	s.lowers = append(s.lowers, over)
	s.mu.Unlock()
	s.client.servers.Spawn(func() { // Else the client was closed, and nobody asks any more.
		for late := true; late; {
			s.mu.Lock()
			until, holds := h.lasts.Deadline, h.ticket.state == held
			s.mu.Unlock()
			if !holds || !time.Now().Before(until) {
				break
			}
			ctx, cancel := context.WithDeadline(context.Background(), until)
			err := h.lower(ctx)                   // A loss is told to the leases that are left.
			late = err != nil && ctx.Err() != nil // It was renewed meanwhile, or has ended.
			cancel()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lowers = slices.DeleteFunc(s.lowers, func(other chan struct{}) bool { return other == over })
		close(over)
	})
}

// unlockLocked sends the end of a hold that lasted for so long.
func (t *ticket) unlockLocked(held time.Duration) {
	s := t.site
	t.endAgain = t.endAgain || t.inflight > 0
	t.unlock = &unlock{end: t.end(), index: len(s.unlocks), held: held}
	s.unlocks = append(s.unlocks, t.unlock)
	t.unlock.push(!t.lingersLocked(held))
}

// lingersLocked reports whether the end of a hold may wait for the next ask, though not for longer than [outbox.Linger]: it
// was got at once, which says that nobody waited, and so short a time ago that nobody will have come since; of this client
// nobody has, as a call that waits has a check to come (I5).
func (t *ticket) lingersLocked(held time.Duration) bool {
	return t.arrival == 0 && held < outbox.Linger && t.hold.wish != fulfilled && t.site.check.IsZero() && !t.site.checking
}

// unlockedLocked tells what came of the end of a hold that was answered or given up, if Unlock has sent it.
func (t *ticket) unlockedLocked(err error) {
	u, s := t.unlock, t.site
	if u == nil {
		return
	}
	t.unlock = nil
	last := len(s.unlocks) - 1
	s.unlocks[last].index = u.index
	s.unlocks[u.index], s.unlocks[last] = s.unlocks[last], nil
	s.unlocks = s.unlocks[:last]
	t.hold.released(u.held, err)
}

var errUnsettled = errors.New("the end of an earlier hold of this client has not been answered")

// endsAhead returns the ends that an ask is to take along, and waits where some are under way.
func (w *wait) endsAhead() ([]*outbox.Item[end], error) {
	s := w.site
	s.mu.Lock()
	n := len(s.unlocks)
	if n == 0 || n > outbox.Batch || len(s.lowers) > 0 {
		s.mu.Unlock()
		return nil, w.afterEnds(w.ctx)
	}
	ahead := w.ahead[:0]
	for _, u := range s.unlocks {
		ahead = append(ahead, &u.item)
	}
	taken := s.client.ends.Claim(s.node(), ahead)
	s.mu.Unlock()
	if taken {
		return ahead, nil
	}
	return nil, w.afterEnds(w.ctx)
}

// afterEnds waits until the ends that are under way now are answered or given up. A call that does not wait for its turn
// does so for as long as it waits out errors. A call without a place fails with the error of an end that the server refuses
// until somebody mends it: its own request would be refused as well.
func (w *wait) afterEnds(ctx context.Context) error {
	type leaving struct {
		over, stuck <-chan struct{}
		ticket      *ticket
	}
	s, mode := w.site, w.mode
	s.mu.Lock()
	before := make([]leaving, 0, len(s.unlocks)+len(s.lowers))
	for _, u := range s.unlocks {
		l := leaving{over: u.ticket.overLocked(), ticket: u.ticket}
		if w.ticket.arrival == 0 {
			l.stuck = u.stuckLocked()
		}
		before = append(before, l)
	}
	for _, over := range s.lowers {
		before = append(before, leaving{over: over})
	}
	s.mu.Unlock()
	if len(before) == 0 {
		return nil
	}
	s.client.ends.Hasten(s.node())
	patience := ctx
	if mode != lua.Wait {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, retry.TryTime)
		defer cancel()
	}
	for _, l := range before {
		select {
		case <-l.over:
		case <-l.stuck:
			s.mu.Lock()
			defer s.mu.Unlock()
			return l.ticket.hold.endFailure
		case <-patience.Done():
			return cmp.Or(ctx.Err(), errUnsettled)
		case <-s.client.servers.Ended():
			return lease.ErrClosed
		}
	}
	return nil
}

// unsettled reports whether ends are not answered that an ask has to follow.
func (s *site) unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unlocks)+len(s.lowers) > 0
}

// takeAlong lets ends go ahead of an ask.
func (q *ask) takeAlong(all []*outbox.Item[end]) {
	q.ahead, q.jobs = all, q.jobs[:0]
	for _, i := range all {
		q.jobs = append(q.jobs, i.Of.job())
	}
}

// endedAhead takes in the answers to the ends that went ahead of an ask.
func (s *site) endedAhead(q *ask) {
	s.client.stats.Ends.Add(uint64(len(q.ahead)))
	sent := q.Attempt
	for i, one := range q.ahead {
		d := one.Of
		sent.Note = d.note()
		s.ended(d, sent, q.jobs[i].Result)
	}
	s.client.ends.Count(-len(q.ahead))
	q.ahead = nil
	clear(q.jobs)
}
