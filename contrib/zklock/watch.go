package zklock

import (
	"github.com/go-zookeeper/zk"
)

// A watch is what tells of the next change of a node. Each is set once, for all that wait for it: a call that gives up
// leaves its watch set until the node goes, and the next call takes it up.
type watch struct {
	set  chan struct{} // closed when the server has answered, or no answer will come
	err  error         // why there is no watch; set before set is closed
	done chan struct{} // closed when something happened
	gone bool          // that was the end of the node; set before done is closed
}

// watch returns the watch on a node when the server has it. Who joins a request that is under way gets the answer to it.
func (s *session) watch(path string) (*watch, error) {
	c := s.client
	c.core.Lock()
	w := s.watches[path]
	joins := w != nil
	if !joins {
		w = &watch{set: make(chan struct{}), done: make(chan struct{})}
		s.watches[path] = w // Before the request: the event may come right after the answer.
	}
	c.core.Unlock()
	if joins {
		<-w.set
		return w, w.err
	}
	defer close(w.set)
	// Not Exists: on a node that is gone that sets a watch too, which nothing ever ends.
	if _, _, _, w.err = s.conn.GetW(path); w.err != nil {
		c.core.Lock()
		defer c.core.Unlock()
		if s.watches[path] == w {
			delete(s.watches, path) // Whoever tries again makes another.
		}
	}
	return w, w.err
}

// firedLocked tells of a change.
func (s *session) firedLocked(e zk.Event) {
	if w := s.watches[e.Path]; w != nil {
		delete(s.watches, e.Path)
		w.gone = e.Type == zk.EventNodeDeleted
		close(w.done)
	}
	t := s.client.core.Tickets[nodeID(e.Path)]
	switch {
	case t == nil || t.Session != s || s.client.core.LeavingLocked(t):
	case e.Type == zk.EventNodeDeleted:
		s.client.core.MissedLocked(t, errGone)
	case t.guarded: // Somebody changed the node: it needs another watch.
		_ = s.client.core.SpawnLocked(t.guard)
	}
}

// guardAllLocked watches the nodes of the tickets that have been there for a beat: most have gone before, and cost no
// watch.
func (s *session) guardAllLocked() {
	for _, t := range s.client.core.Tickets {
		if t.Session == s && t.path != "" && !t.guarded && !s.client.core.LeavingLocked(t) {
			t.guarded = s.client.core.SpawnLocked(t.guard) == nil
		}
	}
}

// guard watches the ticket's own node, which somebody may remove.
func (t *ticket) guard() {
	_, err := repeat(t.Ctx, t.Ctx, func() error {
		_, err := t.Session.watch(t.path)
		return err
	})
	t.found(err)
}

// found takes in what a request about the ticket's own node has said.
func (t *ticket) found(err error) {
	c := t.client
	c.core.Lock()
	defer c.core.Unlock()
	switch {
	case err == nil || transient(err):
	case err != zk.ErrNoNode:
		t.End(advise(err, "reading "+t.path))
	default:
		c.core.MissedLocked(t, errGone)
	}
}
