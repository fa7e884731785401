package etcdlock

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A session is an etcd lease of a client, from the server's grant to the word that it is no more.
//
// Losing contact does not end it: the holds are lost when their time is over by the client's clock, but a waiter's key
// is there as long as the lease is, and with it the place in the queue.
type session struct {
	client *Client
	id     clientv3.LeaseID
	ctx    context.Context // ends when the lease is known to be gone, or the client closes; the cause says why
	die    context.CancelCauseFunc
	hurry  chan struct{} // asks for a renewal now

	// guarded by the client's mu
	until   lease.Until
	spell   context.Context // of requests that begin now; ends with the time of the lease as it is now, or with ctx
	renewed chan struct{}   // closed, and replaced, at each renewal
	free    []uint64        // numbers that tickets have had, to be used again
}

// current returns the session of the client; there is one from the first call on that needs it.
func (c *Client) current(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if s := c.session; s != nil {
		c.mu.Unlock()
		return s, nil
	}
	o := c.opening
	if o == nil {
		o = engine.NewOpening[*session]() // All calls that need one wait for the same.
		if err := c.spawnLocked(func() { c.open(o) }); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		c.opening = o
	}
	c.mu.Unlock()
	return o.Wait(ctx)
}

// open asks for a lease, and keeps it to its end.
func (c *Client) open(o *engine.Opening[*session]) {
	var sent time.Time
	var slept time.Duration
	granted, _, err := repeat(c.life, c.limit(), func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		sent, slept = time.Now(), lease.Slept()
		answer, err := c.etcd.Grant(ctx, int64(c.opts.Lease/time.Second))
		c.watch.Request(c.life, sent, err, transient)
		return answer, err
	})
	var opened *session
	c.mu.Lock()
	c.opening = nil
	switch {
	case c.closed:
		err = lease.ErrClosed
	case err != nil:
		err = fmt.Errorf("asking for a lease: %w", err)
	default:
		opened = &session{
			client: c, id: granted.ID, hurry: make(chan struct{}, 1), renewed: make(chan struct{}),
		}
		opened.ctx, opened.die = context.WithCancelCause(c.life)
		opened.extendLocked(until(sent, granted.TTL, slept))
		c.session = opened
		_ = c.spawnLocked(func() { opened.listen(granted.Revision + 1) }) // It is not closed.
	}
	c.mu.Unlock()
	o.Settle(opened, err)
	if opened != nil {
		opened.keep(sent)
	}
}

// until is the end of a lease that the server counts from the given time or a later one.
func until(from time.Time, ttl int64, slept time.Duration) lease.Until {
	d := time.Duration(ttl) * time.Second
	// A hundredth, for clocks that run apart and for the time it takes to notice.
	return lease.Until{Deadline: from.Add(d - d/100), Slept: slept}
}

// errLate ends a spell.
var errLate = fmt.Errorf("no answer in the time of the lease: %w", context.DeadlineExceeded)

// extendLocked says how long the lease is certain now. For a session that nobody else has yet, no lock is needed.
//
// A spell has no deadline, which the server would be told of, at a price for each request.
func (s *session) extendLocked(u lease.Until) {
	s.until = u
	spell, end := context.WithCancelCause(s.ctx)
	s.spell = spell
	time.AfterFunc(s.leftLocked(), func() { end(errLate) })
}

// leftLocked is how long the lease is certain.
func (s *session) leftLocked() time.Duration {
	return time.Until(s.until.Deadline) - (lease.Slept() - s.until.Slept)
}

// keep renews the lease until it is gone, or the client closes. It ends holds when the time of the lease is over by the
// client's clock, whether or not the server can be asked.
func (s *session) keep(renewed time.Time) {
	c := s.client
	third := c.opts.Lease / 3 // Two renewals may fail before the holds are in doubt.
	due, tries := renewed.Add(third), 0
	for {
		if !s.restUntil(due) {
			return
		}
		sent, ok := s.renew(third)
		switch {
		case s.ctx.Err() != nil:
			return
		case ok:
			due, tries = sent.Add(third), 0
			s.look(due)
		default:
			tries++
			due = time.Now().Add(retry.Backoff(tries))
		}
	}
}

// restUntil waits for the next renewal, and ends the holds if their time is over before. It returns false when the
// session has ended.
func (s *session) restUntil(due time.Time) bool {
	for {
		s.client.mu.Lock()
		left := s.leftLocked()
		s.client.mu.Unlock()
		if left <= 0 {
			s.expire()
			left = s.client.opts.Lease
		}
		timer := time.NewTimer(min(left, time.Until(due)))
		select {
		case <-timer.C:
			if !time.Now().Before(due) {
				return true
			}
		case <-s.hurry:
			timer.Stop()
			return true
		case <-s.ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// renew asks once for more time. An attempt ends with the time of the lease, if that is near: the holds are to be told.
func (s *session) renew(limit time.Duration) (sent time.Time, ok bool) {
	c := s.client
	c.mu.Lock()
	if left := s.leftLocked(); left > 0 {
		limit = min(limit, left)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	sent, slept := time.Now(), lease.Slept()
	answer, err := c.etcd.KeepAliveOnce(ctx, s.id)
	c.watch.Request(s.ctx, sent, err, transient)
	if leaseGone(err) {
		s.bury()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		s.failingLocked(err)
		return sent, false
	}
	s.extendLocked(until(sent, answer.TTL, slept))
	for _, t := range c.tickets {
		if t.session == s && t.grip.Keeper != nil {
			t.grip.Keeper.Extend(s.until)
		}
	}
	close(s.renewed)
	s.renewed = make(chan struct{})
	return sent, true
}

// failingLocked notes why the lease is not renewed.
func (s *session) failingLocked(why error) {
	for _, t := range s.client.tickets {
		if t.session == s && t.grip.Keeper != nil {
			t.grip.Keeper.Failing(s.until.Deadline.Add(-s.client.opts.Lease), why)
		}
	}
}

// expire ends the holds: by the client's clock the lease may be over. A waiter keeps its place, for what that is worth.
func (s *session) expire() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tickets {
		if t.session == s && t.grip.Keeper != nil {
			t.grip.Lose(lease.ErrExpired)
			c.sweepLocked(t)
		}
	}
}

// bury ends the session: the server does not know the lease any more, and all its keys are gone.
func (s *session) bury() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
	}
	cause := lease.ErrForgotten
	if s.leftLocked() <= 0 {
		cause = lease.ErrExpired
	}
	s.die(cause)
	for key, t := range c.tickets {
		if t.session == s {
			t.grip.Lose(cause)
			delete(c.tickets, key)
			delete(c.ends, key)
		}
	}
}

// confirm waits until the lease has time.
func (s *session) confirm(ctx context.Context) error {
	for {
		s.client.mu.Lock()
		left, renewed := s.leftLocked(), s.renewed
		s.client.mu.Unlock()
		if left > 0 {
			return nil
		}
		select {
		case s.hurry <- struct{}{}:
		default:
		}
		select {
		case <-renewed:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look compares the keys that the server has of the lease with the tickets. A key that nobody knows is the ghost of a
// request that was given up and came late: it goes. A ticket whose key is missing has been removed by somebody.
func (s *session) look(before time.Time) {
	c := s.client
	ctx, cancel := context.WithDeadline(s.ctx, before)
	defer cancel()
	begun := time.Now()
	answer, err := c.etcd.TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
	if err != nil || answer.TTL < 0 {
		return // The next renewal tells more.
	}
	there := make(map[string]bool, len(answer.Keys))
	for _, key := range answer.Keys {
		there[string(key)] = true
	}
	var missing []*ticket
	var unknown []string
	c.mu.Lock()
	for key := range there {
		if c.tickets[key] == nil {
			unknown = append(unknown, key)
		}
	}
	for key, t := range c.tickets {
		if t.session == s && !t.leavingLocked() && !t.put.IsZero() && t.put.Before(begun) && !there[key] {
			missing = append(missing, t)
		}
	}
	c.mu.Unlock()
	for _, key := range unknown {
		s.exorcise(ctx, key)
	}
	for _, t := range missing {
		// The member that told may be behind the one that put the key. A read of the key itself never is.
		found, err := c.etcd.Get(ctx, t.key, clientv3.WithCountOnly())
		if err == nil && found.Count == 0 {
			t.missed()
		}
	}
}

// exorcise removes a key that nobody knows. What the list showed may be gone since, and a new call may have the key: so
// the key is read first, and only that one removed.
func (s *session) exorcise(ctx context.Context, key string) {
	c := s.client
	found, err := c.etcd.Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 {
		return // If it is still there, the next look finds it again.
	}
	c.mu.Lock()
	known := c.tickets[key] != nil
	c.mu.Unlock()
	if !known {
		_, _ = c.remove(ctx, key, found.Kvs[0].CreateRevision)
	}
}

// revoke ends the lease, and with it all that is held.
func (s *session) revoke(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	// What has run out by the client's clock will have by the server's, soon.
	limit := max(s.leftLocked(), time.Second)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	_, _, err := repeat(ctx, limit, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return c.etcd.Revoke(ctx, s.id)
	})
	if leaseGone(err) {
		return nil
	}
	return err
}
