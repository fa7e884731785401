package etcdlock

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
)

// A session is an etcd lease of a client, from the server's grant to the word that it is no more.
type session struct {
	engine.Session
	client   *Client
	id       clientv3.LeaseID
	hurry    chan struct{} // asks for a renewal now
	sent     time.Time     // when it was asked for
	revision int64         // at which it was granted

	// guarded by the client's core
	spell context.Context // of requests that begin now; ends with the time of the lease as it is now, or with Ctx
	free  []uint64        // numbers that tickets have had, to be used again
}

// open asks for a lease.
func (c *Client) open() (*session, error) {
	var sent time.Time
	var slept time.Duration
	granted, _, err := repeat(c.core.Life, c.limit(), func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		sent, slept = time.Now(), keeper.Slept()
		answer, err := c.etcd.Grant(ctx, int64(c.opts.Lease/time.Second))
		c.core.Watch.Request(c.core.Life, sent, err, transient)
		return answer, err
	})
	if err != nil {
		return nil, fmt.Errorf("asking for a lease: %w", err)
	}
	s := &session{
		Session: engine.NewSession(c.core.Life), client: c, id: granted.ID, hurry: make(chan struct{}, 1), sent: sent,
		revision: granted.Revision,
	}
	s.Hurry = s.renewNow
	c.core.Lock()
	defer c.core.Unlock()
	s.Until = until(sent, granted.TTL, slept)
	s.beginLocked()
	return s, nil
}

// Live renews the lease until it is gone, or the client closes, and hears what is told to it.
func (s *session) Live() {
	_ = s.client.core.Spawn(func() { s.listen(s.revision + 1) }) // If it is closed, all is over.
	s.keep()
}

// until is the end of a lease that the server counts from the given time or a later one.
func until(from time.Time, ttl int64, slept time.Duration) keeper.Until {
	d := time.Duration(ttl) * time.Second
	// A hundredth, for clocks that run apart and for the time it takes to notice.
	return keeper.Until{Deadline: from.Add(d - d/100), Slept: slept}
}

// errLate ends a spell.
var errLate = fmt.Errorf("no answer in the time of the lease: %w", context.DeadlineExceeded)

// beginLocked begins a spell, as long as the lease is certain now.
//
// A spell has no deadline, which the server would be told of, at a price for each request.
func (s *session) beginLocked() {
	spell, end := context.WithCancelCause(s.Ctx)
	s.spell = spell
	time.AfterFunc(s.LeftLocked(), func() { end(errLate) })
}

// renewNow lets keep renew the lease at once.
func (s *session) renewNow() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// keep renews the lease until it is gone, or the client closes. It ends holds when the time of the lease is over by the
// client's clock, whether or not the server can be asked.
func (s *session) keep() {
	c := s.client
	third := c.opts.Lease / 3 // Two renewals may fail before the holds are in doubt.
	due, tries := s.sent.Add(third), 0
	for {
		if !s.restUntil(due) {
			return
		}
		sent, ok := s.renew(third)
		switch {
		case s.Ctx.Err() != nil:
			return
		case ok:
			due, tries = sent.Add(third), 0
			s.look(due)
		default:
			tries++
			due = time.Now().Add(calls.Backoff(tries))
		}
	}
}

// restUntil waits for the next renewal, and ends the holds if their time is over before. It returns false when the
// session has ended.
func (s *session) restUntil(due time.Time) bool {
	for {
		left := s.left()
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
		case <-s.Ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// left is how long the lease is certain.
func (s *session) left() time.Duration {
	s.client.core.Lock()
	defer s.client.core.Unlock()
	return s.LeftLocked()
}

// renew asks once for more time. An attempt ends with the time of the lease, if that is near: the holds are to be told.
func (s *session) renew(limit time.Duration) (sent time.Time, ok bool) {
	core := s.client.core
	if left := s.left(); left > 0 {
		limit = min(limit, left)
	}
	ctx, cancel := context.WithTimeout(s.Ctx, limit)
	defer cancel()
	sent, slept := time.Now(), keeper.Slept()
	core.Lock()
	s.AskLocked(sent)
	core.Unlock()
	answer, err := s.client.etcd.KeepAliveOnce(ctx, s.id)
	core.Watch.Request(s.Ctx, sent, err, transient)
	if leaseGone(err) {
		s.bury()
	}
	core.Lock()
	defer core.Unlock()
	s.AnswerLocked(err)
	if err != nil {
		core.FailingLocked(s, s.Until.Deadline.Add(-s.client.opts.Lease), err)
		return sent, false
	}
	core.ExtendLocked(s, until(sent, answer.TTL, slept))
	s.beginLocked()
	return sent, true
}

// expire ends the holds: by the client's clock the lease may be over.
func (s *session) expire() {
	s.client.core.Lock()
	defer s.client.core.Unlock()
	s.client.core.ExpireLocked(s)
}

// bury ends the session: the server does not know the lease any more, and all its keys are gone.
func (s *session) bury() {
	s.client.core.Lock()
	defer s.client.core.Unlock()
	s.client.core.BuryLocked(s)
}

// look compares the keys that the server has of the lease with the tickets. A key that nobody knows is the ghost of a
// request that was given up and came late: it goes. A ticket whose key is missing has been removed by somebody.
func (s *session) look(before time.Time) {
	c := s.client
	ctx, cancel := context.WithDeadline(s.Ctx, before)
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
	c.core.Lock()
	for key := range there {
		if c.core.Tickets[key] == nil {
			unknown = append(unknown, key)
		}
	}
	for key, t := range c.core.Tickets {
		if t.Session == s && !c.core.LeavingLocked(t) && !t.put.IsZero() && t.put.Before(begun) && !there[key] {
			missing = append(missing, t)
		}
	}
	c.core.Unlock()
	for _, key := range unknown {
		s.exorcise(ctx, key)
	}
	for _, t := range missing {
		// The member that told may lag behind the one that put the key. A read of the key itself never is.
		found, err := c.etcd.Get(ctx, t.ID, clientv3.WithCountOnly())
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
	c.core.Lock()
	known := c.core.Tickets[key] != nil
	c.core.Unlock()
	if !known {
		_, _ = c.remove(ctx, key, found.Kvs[0].CreateRevision)
	}
}

// End revokes the lease, and ends with it all that is held.
func (s *session) End(ctx context.Context) error {
	// What has run out by the client's clock will have by the server's, soon.
	limit := max(s.left(), time.Second)
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	_, _, err := repeat(ctx, limit, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return s.client.etcd.Revoke(ctx, s.id)
	})
	if leaseGone(err) {
		return nil
	}
	return err
}
