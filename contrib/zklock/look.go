package zklock

import (
	"context"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// A turn is how things stand for a ticket.
type turn struct {
	held  bool
	ahead int    // how many are before it
	watch string // the node whose end is a reason to look again
}

// A list is what a server says of a line.
type list struct {
	names []string
	stat  *zk.Stat // of the parent
	err   error
}

func (t *ticket) list() (l list) {
	l.names, l.stat, l.err = t.Session.conn.Children(t.line.parent)
	return l
}

// look tells how things stand, by a list that was asked for before, if that is of use.
func (t *ticket) look(early *list) (turn, error) {
	own := path.Base(t.path)
	if early != nil {
		if now, found := t.turn(own, *early); found {
			return now, nil
		}
	}
	var l list
	_, err := repeat(t.Ctx, t.Ctx, func() error {
		l = t.list()
		return l.err
	})
	if err != nil && err != zk.ErrNoNode {
		return turn{}, advise(err, "listing "+t.line.parent)
	}
	now, found := t.turn(own, l)
	if !found {
		return turn{}, errGone
	}
	return now, nil
}

// next waits for a reason to look again, and looks.
//
// With one before it, a ticket waits for the end of that, which is its turn. With more it waits for the end of the last
// but one, and then looks who is left: as a rule the last, who holds by then. So the look is over when that releases, and
// nothing has to be asked between the release and the next hold. The end of a node wakes two.
func (t *ticket) next(ctx context.Context, last turn) (turn, error) {
	next, err := do(ctx, t.Ctx, t.client, func() (turn, error) {
		gone, err := t.wait(last.watch)
		if gone && last.ahead == 1 {
			// There was nobody before the one that is gone, and nobody can have come.
			t.client.core.Lock()
			t.view.removed++
			t.client.core.Unlock()
			return turn{held: true}, nil
		}
		if err != nil {
			return turn{}, err
		}
		return t.look(nil)
	})
	return next, t.why(err)
}

// wait waits until something happens to a node, or so long that it may have been missed.
func (t *ticket) wait(node string) (gone bool, err error) {
	var w *watch
	_, err = repeat(t.Ctx, t.Ctx, func() error {
		w, err = t.Session.watch(node)
		return err
	})
	if err == zk.ErrNoNode {
		return true, nil
	}
	if err != nil {
		return false, advise(err, "reading "+node)
	}
	doubt := time.NewTimer(t.client.doubt())
	defer doubt.Stop()
	select {
	case <-w.done:
		return w.gone, nil
	case <-doubt.C:
		return false, nil
	case <-t.Ctx.Done():
		return false, t.Ctx.Err()
	}
}

// turn finds the ticket in a list.
func (t *ticket) turn(own string, l list) (now turn, found bool) {
	if l.err != nil {
		return now, false
	}
	for _, name := range l.names {
		if name == own {
			n, last, second := ahead(l.names, t.number)
			t.learn(l.stat)
			if n > 1 {
				last = second
			}
			return turn{held: n == 0, ahead: n, watch: t.line.parent + "/" + last}, true
		}
	}
	return now, false
}

// past is what a client remembers of a parent from one call to the next: how many nodes have been removed below it, at
// least.
type past struct {
	parent  int64 // its creation: another of that path counts anew
	removed int64
}

// learn finds out the token, the zxid of the node's creation. If nothing was made or removed below the parent since, it
// is the zxid of the parent's last change. Otherwise it is asked for, while the call waits.
//
// A parent counts what was made and removed; the nodes have the number of those made before. If none was made after the
// own, and no more are removed than were before it was asked for, the own node was the last change.
func (t *ticket) learn(stat *zk.Stat) {
	c, made := t.client, int64(t.number)+1
	children := int64(stat.NumChildren)
	removed := (int64(stat.Cversion) - children) / 2
	last := stat.Cversion >= 0 && int64(stat.Cversion) == 2*made-children
	// What another call of the client has removed since is not before it.
	before := t.before
	if removed > 0 && (before == nil || before.parent != stat.Czxid || before.removed != removed) {
		last = false
	}
	c.core.Lock()
	defer c.core.Unlock()
	if stat.Cversion >= 0 {
		t.view.parent, t.view.removed = stat.Czxid, removed
	}
	switch {
	case t.asked:
	case last:
		t.asked, t.token = true, uint64(stat.Pzxid)
		close(t.seen)
	default:
		t.asked = c.core.SpawnLocked(t.ask) == nil
	}
}

// ask reads the token.
func (t *ticket) ask() {
	var stat *zk.Stat
	_, err := repeat(t.Ctx, t.Ctx, func() error {
		there, found, err := t.Session.conn.Exists(t.path)
		if err == nil && !there {
			err = zk.ErrNoNode
		}
		stat = found
		return err
	})
	if err == nil {
		t.client.core.Lock()
		t.token = uint64(stat.Czxid)
		t.client.core.Unlock()
		close(t.seen)
	}
	t.found(err)
}
