package zklock

import (
	"github.com/go-zookeeper/zk"
)

// A watch is what tells of the next change of a node. Each is set once, for all that wait for it: a call that gives up
// leaves its watch behind until the node goes, and the next call takes it up.
type watch struct {
	done chan struct{} // closed when something happened
	gone bool          // that was the end of the node; set before done is closed
}

// watch returns the watch on a node.
func (s *session) watch(path string) (*watch, error) {
	c := s.client
	c.mu.Lock()
	if w := s.watches[path]; w != nil {
		c.mu.Unlock()
		return w, nil
	}
	w := &watch{done: make(chan struct{})}
	s.watches[path] = w // Before the request: the event may come right behind the answer.
	c.mu.Unlock()
	// Not Exists: on a node that is gone that sets a watch too, which nothing ever ends.
	_, _, _, err := s.conn.GetW(path)
	if err == nil {
		return w, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.watches[path] == w {
		delete(s.watches, path)
		close(w.done) // Who has joined meanwhile looks again.
	}
	return nil, err
}

// firedLocked tells of a change.
func (s *session) firedLocked(e zk.Event) {
	if w := s.watches[e.Path]; w != nil {
		delete(s.watches, e.Path)
		w.gone = e.Type == zk.EventNodeDeleted
		close(w.done)
	}
	t := s.client.tickets[nodeID(e.Path)]
	switch {
	case t == nil || t.session != s || t.leavingLocked():
	case e.Type == zk.EventNodeDeleted:
		t.missedLocked()
	case t.guarded: // Somebody changed the node: it needs another watch.
		_ = s.client.spawnLocked(t.guard)
	}
}

// guardAllLocked watches the nodes of the tickets that have been there for a beat: most have gone before, and cost no
// watch.
func (s *session) guardAllLocked() {
	for _, t := range s.client.tickets {
		if t.session == s && t.path != "" && !t.guarded && !t.leavingLocked() {
			t.guarded = s.client.spawnLocked(t.guard) == nil
		}
	}
}

// guard watches the ticket's own node, which somebody may remove.
func (t *ticket) guard() {
	_, err := repeat(t.ctx, t.ctx, func() error {
		_, err := t.session.watch(t.path)
		return err
	})
	t.found(err)
}

// found takes in what a request about the ticket's own node has said.
func (t *ticket) found(err error) {
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil || transient(err):
	case err != zk.ErrNoNode:
		t.end(advise(err, "reading "+t.path))
	case c.tickets[t.id] == t && !t.leavingLocked():
		t.missedLocked()
	}
}
