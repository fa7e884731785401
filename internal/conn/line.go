package conn

import (
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
)

// A line is one connection of a listener. Where a line is in doubt, or has too many channels that nobody wants, another one
// takes its place: it is made and subscribes to all that is wanted, while the first goes on. So no subscriber is without a
// subscription meanwhile, and no script passes over its tickets.
type line struct {
	conn  rueidis.DedicatedClient
	lost  <-chan error
	epoch int
}

// open makes a line. It returns nil if there is no connection, and an error if all are in use.
func (l *listener) open() (*line, error) {
	conn, err := l.dedicate()
	if conn == nil {
		return nil, err
	}
	l.node.intro.met.Store(nil) // Only the connection of a caller's client is known to be new.
	if l.node.introducedBeside(l.servers.life, conn) != nil {
		conn.Close()
		return nil, nil // What is granted by message may be a copy's.
	}
	l.mu.Lock()
	l.lines++
	epoch := l.lines
	l.mu.Unlock()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { l.onMessage(epoch, m) },
		OnSubscription: func(s rueidis.PubSubSubscription) { l.onSubscription(epoch, s) },
	})
	return &line{conn, lost, epoch}, nil
}

// connection makes a line and serves it, and the lines that take its place, until the last of them breaks. It returns
// false when there is nothing to listen to any more.
func (l *listener) connection() bool {
	if l.over() {
		return false
	}
	now, err := l.open()
	if now == nil {
		l.servers.routes.doubt()
		if err != nil {
			l.tellRefused(err)
		}
		return true
	}
	l.mu.Lock()
	l.epoch, l.conn, l.broken, l.unsure = now.epoch, now.conn, false, l.servers.Sharded
	l.changes++
	l.dirty = l.dirty[:0]
	for channel := range l.channels {
		l.dirty = append(l.dirty, channel)
	}
	l.mu.Unlock()
	for next := l.serve(now); next != nil; next = l.serve(now) {
		now = next
	}
	l.servers.routes.doubt()
	l.silence()
	now.conn.Close()
	return true
}

// serve subscribes to what is wanted until the line breaks, or nothing is wanted, or another line has taken its place: then it
// returns that.
func (l *listener) serve(now *line) (next *line) {
	made, ended := make(chan *line), make(chan struct{})
	defer close(ended)
	making, failures := false, 0
	var pause <-chan time.Time
	for {
		if !l.sure(now.conn) {
			return nil
		}
		subscribe, wanted, replace := l.next()
		if !wanted {
			return nil
		}
		for part := range slices.Chunk(subscribe, subscribeBatch) {
			if !l.subscribe(now.conn, part) {
				return nil
			}
		}
		if replace && !making && pause == nil {
			making = l.servers.Spawn(func() {
				next, _ := l.open()
				select {
				case made <- next:
				case <-ended:
					if next != nil {
						next.conn.Close()
					}
				}
			})
		}
		select {
		case <-l.woken:
		case <-now.lost:
			return nil
		case <-l.servers.Ended():
			return nil
		case <-pause:
			pause = nil
		case next := <-made:
			if next != nil && l.adopt(now, next) {
				return next
			}
			making, pause = false, time.After(calls.Backoff(failures))
			failures++
		}
	}
}

// adopt subscribes on another line to all that is wanted. When all of it is confirmed the other line takes the place of
// the present one. It reports whether that is so; if not, the other line is closed.
func (l *listener) adopt(now, next *line) bool {
	l.mu.Lock()
	l.coming, l.spare, l.unsure = next.epoch, next.conn, l.servers.Sharded
	var channels []string
	for channel, sub := range l.channels {
		if sub.next = subNone; sub.want {
			sub.next = subSent
			channels = append(channels, channel)
		}
	}
	l.mu.Unlock()
	good := l.sure(next.conn)
	for part := range slices.Chunk(channels, subscribeBatch) {
		good = good && l.subscribe(next.conn, part)
	}
	if good = good && l.joined(now); good {
		l.change(now, next)
		return true
	}
	l.mu.Lock()
	l.coming, l.spare = 0, nil
	l.mu.Unlock()
	next.conn.Close()
	return false
}

// joined waits until all is confirmed on the line that is coming, and reports whether it is. For the client's own channel it
// does not wait: a user may lack the right to it.
func (l *listener) joined(now *line) bool {
	timer := time.NewTimer(AnswerTime)
	defer timer.Stop()
	for {
		l.mu.Lock()
		l.pending = 0
		for channel, sub := range l.channels {
			if sub.want && sub.next == subSent && channel != l.servers.own() {
				l.pending++
			}
		}
		pending := l.pending
		l.mu.Unlock()
		if pending == 0 {
			return true
		}
		select {
		case <-l.woken:
		case <-now.lost:
			return false
		case <-l.servers.Ended():
			return false
		case <-timer.C:
			return false
		}
	}
}

// joinedLocked notes a confirmation of the connection that is coming.
func (l *listener) joinedLocked(sub *subscription, kind string) {
	switch kind {
	case "subscribe", "ssubscribe":
		if sub.next == subSent {
			sub.next = subConfirmed
			if l.pending--; l.pending == 0 {
				l.wake()
			}
		}
	case "sunsubscribe":
		sub.next, l.unsure = subNone, true
		l.wake()
	}
}

// change lets a line take the place of another, and closes the other. If the old line is not in doubt, its last messages
// count.
func (l *listener) change(now, next *line) {
	var confirmed, gone []Subscriber
	l.mu.Lock()
	l.dirty = l.dirty[:0]
	for channel, sub := range l.channels {
		heard := sub.state == subConfirmed
		sub.state, sub.next = sub.next, subNone
		switch {
		case sub.state == subNone && !sub.want:
			delete(l.channels, channel)
		case sub.state == subNone:
			l.touchLocked(channel)
			if heard && sub.by != nil {
				gone = append(gone, sub.by)
			}
		case sub.state == subConfirmed && sub.want && sub.by != nil:
			confirmed = append(confirmed, sub.by)
		}
	}
	doubt, n := l.broken, len(l.channels)
	l.epoch, l.conn, l.broken = next.epoch, next.conn, false
	l.changes++
	l.coming, l.spare = 0, nil
	if l.going = now.epoch; doubt {
		l.going = 0
	}
	l.mu.Unlock()
	for _, s := range confirmed {
		s.Confirmed(l, n)
	}
	for _, s := range gone {
		s.Unheard(l)
	}
	if !l.servers.Spawn(func() { l.retire(now, !doubt) }) {
		now.conn.Close()
	}
}

// retire closes a line whose place another one has taken; first, if it is to be drained, it takes in what was published before.
func (l *listener) retire(before *line, drain bool) {
	if drain {
		_ = before.conn.Do(context.Background(), before.conn.B().Ping().Build()).Error() // Its answer comes last.
	}
	l.mu.Lock()
	if l.going == before.epoch {
		l.going = 0
	}
	l.mu.Unlock()
	before.conn.Close()
}
