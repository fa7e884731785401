package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A session is one of ZooKeeper's, from the servers' grant to the word that it is no more, on a zk.Conn of its own:
// what was asked for in one session is never sent in another.
//
// Losing contact does not end it: the holds are lost when their time is over by the client's clock, but a waiter's node
// is there as long as the session is, and with it the place in the queue.
type session struct {
	client *Client
	cable  *cable
	conn   *zk.Conn
	ctx    context.Context // ends when the session is known to be over, or the client closes; the cause says why
	die    context.CancelCauseFunc
	first  chan struct{} // closed when there is a session
	ended  chan struct{} // closed when the connection has nothing running any more

	// guarded by the client's mu
	linked  bool          // there is a connection
	timeout time.Duration // as the server has granted it
	until   lease.Until
	beat    moment            // when the last beat was sent that was answered, or the connection was begun
	changed chan struct{}     // closed, and replaced, when one of these changes
	watches map[string]*watch // that stand, by path
}

// event is called by the library, which waits for it.
func (s *session) event(e zk.Event) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Type == zk.EventNotWatching:
	case e.Type != zk.EventSession:
		s.firedLocked(e)
	case e.State == zk.StateHasSession:
		begun, timeout := s.cable.granted()
		s.timeout, s.linked, s.beat = timeout, true, begun
		select {
		case <-s.first:
		default:
			close(s.first)
		}
		s.extendLocked(begun)
	case e.State == zk.StateExpired:
		s.buryLocked()
	case e.State == zk.StateDisconnected:
		s.linked = false
		s.changeLocked()
	}
}

// changeLocked tells the waiters of a change.
func (s *session) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// leftLocked is how long the session is certain.
func (s *session) leftLocked() time.Duration {
	return time.Until(s.until.Deadline) - (lease.Slept() - s.until.Slept)
}

// extendLocked counts the session's time from a moment at which the leader is known to have heard of it, or later.
// What was lost stays lost.
func (s *session) extendLocked(from moment) {
	// A hundredth, for clocks that run apart and for the time it takes to notice.
	s.until = lease.Until{Deadline: from.at.Add(s.timeout - s.timeout/100), Slept: from.slept}
	for _, t := range s.client.tickets {
		if t.session != s || t.grip.Keeper == nil || t.grip.Keeper.Extend(s.until) {
			continue
		}
		if errors.Is(context.Cause(t.grip.Keeper.Lease().Context()), lease.ErrLost) && !t.leavingLocked() {
			t.grip.Lose(lease.ErrExpired)
			s.client.sweepLocked(t)
		}
	}
	s.changeLocked()
}

// live does what a session needs until its end.
func (s *session) live() {
	var both sync.WaitGroup
	both.Go(s.pulse)
	s.keep()
	both.Wait()
	if s.over() {
		s.stop() // Otherwise the client closes, and does it with a farewell.
	}
}

// over reports whether the servers do not know the session any more.
func (s *session) over() bool { return errors.Is(context.Cause(s.ctx), lease.ErrLost) }

// pulse asks the leader for a word at every quarter of the time-out.
//
// When the session is touched, the server that the client is connected to knows, and the leader, which ends sessions,
// hears of it up to half a tick later. An answer of the leader to one beat is proof that it has heard of the beat before,
// as long as a quarter of the time-out is half a tick, which the servers see to unless they are configured otherwise. So
// time counts from the beat before, and without contact a hold lasts for another half of the time-out at least.
func (s *session) pulse() {
	for {
		timeout, ok := s.awaitBeat()
		if !ok {
			return
		}
		sent := now()
		// Another server may answer while there is time.
		slow := time.AfterFunc(timeout/3, s.cable.cut)
		_, err := s.conn.Sync("/")
		slow.Stop()
		s.client.watch.Request(s.ctx, sent.at, err, transient)
		s.client.mu.Lock()
		if err == nil && s.linked && s.beat.at.Before(sent.at) {
			s.extendLocked(s.beat)
			s.beat = sent
			s.guardAllLocked()
		}
		s.client.mu.Unlock()
	}
}

// awaitBeat waits until there is a connection and the next beat is due. It returns false when the session has ended.
func (s *session) awaitBeat() (timeout time.Duration, ok bool) {
	for s.ctx.Err() == nil {
		s.client.mu.Lock()
		linked, changed, timeout, due := s.linked, s.changed, s.timeout, s.beat.at.Add(s.timeout/4)
		s.client.mu.Unlock()
		wait := time.Until(due)
		if linked && wait <= 0 {
			return timeout, true
		}
		if !linked {
			wait = timeout
		}
		s.pass(wait, changed)
	}
	return 0, false
}

// pass lets so much time pass, or less if something changes.
func (s *session) pass(d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-s.ctx.Done():
	}
}

// keep ends the holds when the session's time is over by the client's clock, whether or not a server can be asked.
func (s *session) keep() {
	for s.ctx.Err() == nil {
		s.client.mu.Lock()
		left, changed, timeout := s.leftLocked(), s.changed, s.timeout
		s.client.mu.Unlock()
		wait := left
		if left <= 0 {
			s.expire()
			wait = timeout
		}
		if left < -timeout && s.cable.shut() {
			s.succeed(timeout)
		}
		s.pass(wait, changed)
	}
}

// expire ends the holds: by the client's clock the session may be over. A waiter keeps its place, for what that is
// worth.
func (s *session) expire() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.leftLocked() > 0 {
		return
	}
	for _, t := range c.tickets {
		if t.session == s && t.grip.Keeper != nil && !t.leavingLocked() {
			if why := s.cable.trouble(); why != nil {
				t.grip.Keeper.Failing(s.until.Deadline.Add(-s.timeout), why)
			}
			t.grip.Lose(lease.ErrExpired)
			c.sweepLocked(t)
		}
	}
}

// succeed asks for another session when the servers end all connections of this one without a word. They do so while they
// have no leader; but also if they know less than they did, because their data were lost, and then for good: no server
// talks to a client that has seen more than it has. So this session is over if they give another.
func (s *session) succeed(limit time.Duration) {
	c := s.client
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	next, err := c.connect(ctx, false)
	if err != nil {
		return
	}
	c.mu.Lock()
	taken := !c.closed && !s.linked && s.ctx.Err() == nil && next.ctx.Err() == nil && c.spawnLocked(next.live) == nil
	if taken {
		s.buryLocked()
		c.session, c.cable = next, next.cable
	}
	c.mu.Unlock()
	if !taken {
		_ = next.close(ctx)
	}
}

// buryLocked ends the session: the servers do not know it any more, and all its nodes are gone.
func (s *session) buryLocked() {
	c := s.client
	if c.session == s {
		c.session = nil
	}
	s.linked = false
	cause := lease.ErrForgotten
	if s.leftLocked() <= 0 {
		cause = lease.ErrExpired
	}
	s.die(cause)
	s.cable.end() // The library would go on with another session by itself.
	for id, t := range c.tickets {
		if t.session == s {
			t.grip.Lose(cause)
			delete(c.tickets, id)
			delete(c.ends, id)
		}
	}
	s.changeLocked()
}

// confirm waits until the session has time.
func (s *session) confirm(ctx context.Context) error {
	for {
		s.client.mu.Lock()
		left, changed := s.leftLocked(), s.changed
		s.client.mu.Unlock()
		if left > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the session at the servers, and with it all that is held.
func (s *session) close(ctx context.Context) error {
	defer s.stop()
	s.client.mu.Lock()
	// What has run out by the client's clock will have by the servers', soon.
	limit := max(s.leftLocked(), time.Second)
	s.client.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s.client.mu.Lock()
		linked, changed := s.linked, s.changed
		s.client.mu.Unlock()
		if s.over() {
			return nil // There is nothing left to end.
		}
		if linked {
			break
		}
		select {
		case <-changed:
		case <-limited.Done():
			return s.unheard(ctx)
		}
	}
	leave := make(chan struct{})
	go func() {
		defer close(leave)
		s.conn.Close()
	}()
	defer func() { <-leave }()
	select {
	case <-s.ended:
	case <-limited.Done():
		s.cable.end() // So that the library does not wait for an answer.
	}
	if !s.cable.answered() {
		return s.unheard(ctx)
	}
	return nil
}

// unheard is why nobody has confirmed the end.
func (s *session) unheard(ctx context.Context) error {
	if err := retry.WhyEnded(ctx); err != nil {
		return err
	}
	if err := s.cable.trouble(); err != nil {
		return err
	}
	return errors.New("no answer")
}

// stop ends the connection, and waits until nothing of it runs any more.
//
// The library's farewell is answered by the library where it asks for another server. Otherwise it would wait for a second.
func (s *session) stop() {
	s.die(context.Canceled)
	s.cable.end()
	select {
	case <-s.cable.over:
	case <-s.ended:
	}
	s.conn.Close()
	<-s.ended
}
