package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
)

// A session is one of ZooKeeper's, from the servers' grant to the word that it is no more, on a zk.Conn of its own:
// what was asked for in one session is never sent in another.
type session struct {
	engine.Session
	client *Client
	cable  *cable
	conn   *zk.Conn
	first  chan struct{} // closed when there is a session
	ended  chan struct{} // closed when the connection has nothing running any more

	// guarded by the client's core
	linked  bool              // there is a connection; Changed tells of that too
	timeout time.Duration     // as the server has granted it
	beat    moment            // when the last beat was sent that was answered, or the connection was begun
	watches map[string]*watch // that stand, by path
}

// event is called by the library, which waits for it.
func (s *session) event(e zk.Event) {
	c := s.client
	c.core.Lock()
	defer c.core.Unlock()
	switch {
	case e.Type == zk.EventNotWatching:
	case e.Type != zk.EventSession:
		s.firedLocked(e)
	case e.State == zk.StateHasSession:
		begun, timeout := s.cable.granted()
		s.timeout, s.linked, s.beat = timeout, true, begun
		s.AnswerLocked(nil)
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
		s.ChangeLocked()
	}
}

// extendLocked counts the session's time from a moment at which the leader is known to have heard of it, or later.
func (s *session) extendLocked(from moment) {
	// A hundredth, for clocks that run apart and for the time it takes to notice.
	s.client.core.ExtendLocked(s, keeper.Until{Deadline: from.at.Add(s.timeout - s.timeout/100), Slept: from.slept})
}

// Live asks for time, and ends the holds where there is none, until the session is over.
func (s *session) Live() {
	var both sync.WaitGroup
	both.Go(s.pulse)
	s.keep()
	both.Wait()
	if s.Over() {
		s.stop() // Otherwise the client closes, and does it with a farewell.
	}
}

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
		s.client.core.Lock()
		s.AskLocked(sent.at)
		s.client.core.Unlock()
		// Another server may answer while there is time.
		slow := time.AfterFunc(timeout/3, s.cable.cut)
		_, err := s.conn.Sync("/")
		slow.Stop()
		s.client.core.Watch.Request(s.Ctx, sent.at, err, transient)
		s.client.core.Lock()
		s.AnswerLocked(err)
		if err == nil && s.linked && s.beat.at.Before(sent.at) {
			s.extendLocked(s.beat)
			s.beat = sent
			s.guardAllLocked()
		}
		s.client.core.Unlock()
	}
}

// awaitBeat waits until there is a connection and the next beat is due. It returns false when the session has ended.
func (s *session) awaitBeat() (timeout time.Duration, ok bool) {
	for s.Ctx.Err() == nil {
		s.client.core.Lock()
		linked, changed, timeout, due := s.linked, s.Changed, s.timeout, s.beat.at.Add(s.timeout/4)
		s.client.core.Unlock()
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
	case <-s.Ctx.Done():
	}
}

// keep ends the holds when the session's time is over by the client's clock, whether or not a server can be asked.
func (s *session) keep() {
	for s.Ctx.Err() == nil {
		s.client.core.Lock()
		left, changed, timeout := s.LeftLocked(), s.Changed, s.timeout
		s.client.core.Unlock()
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

// expire ends the holds: by the client's clock the session may be over.
func (s *session) expire() {
	core := s.client.core
	core.Lock()
	defer core.Unlock()
	if s.LeftLocked() > 0 {
		return
	}
	if why := s.cable.trouble(); why != nil {
		core.FailingLocked(s, s.Until.Deadline.Add(-s.timeout), why)
	}
	core.ExpireLocked(s)
}

// succeed asks for another session when the servers end all connections of this one without a word. They do so while they
// have no leader; but also if they know less than they did, because their data were lost, and then for good: no server
// talks to a client that has seen more than it has. So this session is over if they give another.
func (s *session) succeed(limit time.Duration) {
	c := s.client
	ctx, cancel := context.WithTimeout(s.Ctx, limit)
	defer cancel()
	next, err := c.connect(ctx, false)
	if err != nil {
		return
	}
	c.core.Lock()
	taken := !s.linked && s.Ctx.Err() == nil && next.Ctx.Err() == nil && c.core.SpawnLocked(next.Live) == nil
	if taken {
		s.buryLocked()
		c.core.Session, c.cable = next, next.cable
	}
	c.core.Unlock()
	if !taken {
		_ = next.End(ctx)
	}
}

// buryLocked ends the session: the servers do not know it any more, and all its nodes are gone.
func (s *session) buryLocked() {
	s.linked = false
	s.client.core.BuryLocked(s)
	s.cable.end() // The library would go on with another session by itself.
}

// End ends the session at the servers, and with it all that is held.
func (s *session) End(ctx context.Context) error {
	defer s.stop()
	s.client.core.Lock()
	// What has run out by the client's clock will have by the servers', soon.
	limit := max(s.LeftLocked(), time.Second)
	s.client.core.Unlock()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s.client.core.Lock()
		linked, changed := s.linked, s.Changed
		s.client.core.Unlock()
		if s.Over() {
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
	if err := calls.WhyEnded(ctx); err != nil {
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
	s.Die(context.Canceled)
	s.cable.end()
	select {
	case <-s.cable.over:
	case <-s.ended:
	}
	s.conn.Close()
	<-s.ended
}
