package conn

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/rueidis"
)

// rueidis gives out connections that nobody else uses from a pool. If the pool is used up it waits for one, whatever any
// context says. That happens on a caller's client: its own blocking commands, and other clients on it, use the same pool.
// So a connection is asked for in the background. If nobody wants it any more when it comes, it goes back at once.

// A dedication is a connection that nobody else uses until it is released.
type dedication struct {
	conn    rueidis.DedicatedClient
	release func()
}

// dedications are the connections of one node that are asked for.
type dedications struct {
	mu     sync.Mutex // guards the fields below; nothing is called under it
	wanted []chan dedication
	asking int // goroutines that wait for the pool, at most as many as there were at once who wanted one
}

// errUsedUp is why there is no connection.
var errUsedUp = errors.New("no connection is left for subscriptions and waits: raise BlockingPoolSize of the rueidis client")

// dedicate takes a connection to the node that nobody else uses until it is released. It returns nil if the node is
// not one of the cluster any more, and an error if there was none when ctx ended.
func (n *Node) dedicate(ctx context.Context) (conn rueidis.DedicatedClient, release func(), err error) {
	nothing := func() {}
	side := n.servers.Side
	if n.servers.routes.table != nil {
		if side = n.servers.routes.reach(n); side == nil {
			n.listener.introduce()
			side = n.servers.routes.reach(n)
		}
	}
	if side == nil {
		return nil, nothing, nil
	}
	comes := n.own.want(side)
	select {
	case d := <-comes:
		return d.conn, d.release, nil
	case <-ctx.Done():
	}
	if !n.own.leave(comes) {
		d := <-comes
		return d.conn, d.release, nil
	}
	return nil, nothing, errUsedUp
}

// want asks for a connection, and returns where it comes.
func (o *dedications) want(side rueidis.Client) chan dedication {
	o.mu.Lock()
	defer o.mu.Unlock()
	comes := make(chan dedication, 1)
	o.wanted = append(o.wanted, comes)
	if o.asking < len(o.wanted) {
		o.asking++
		go o.ask(side) // Not work that Close waits for: it may stand until the caller's client is closed.
	}
	return comes
}

// ask takes a connection for the first goroutine that wants one.
func (o *dedications) ask(side rueidis.Client) {
	var d dedication
	d.conn, d.release = side.Dedicate()
	o.mu.Lock()
	o.asking--
	var first chan dedication
	if len(o.wanted) > 0 {
		first, o.wanted = o.wanted[0], o.wanted[1:]
	}
	o.mu.Unlock()
	if first == nil {
		d.release()
		return
	}
	first <- d
}

// leave gives up the wish for a connection, and reports false if the connection is there.
func (o *dedications) leave(comes chan dedication) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.wanted, comes)
	if i < 0 {
		return false
	}
	o.wanted = slices.Delete(o.wanted, i, i+1)
	return true
}

// dedicate takes a connection, but does not wait for it for longer than for an answer.
func (l *listener) dedicate() (rueidis.DedicatedClient, error) {
	ctx, cancel := context.WithTimeout(l.servers.life, AnswerTime)
	defer cancel()
	conn, _, err := l.node.dedicate(ctx) // It is closed, and not released: it has subscriptions.
	if l.servers.Over() {
		err = nil
	}
	return conn, err
}

// tellRefused tells all subscribers why there is no connection.
func (l *listener) tellRefused(err error) {
	l.mu.Lock()
	var told []Subscriber
	for _, sub := range l.channels {
		if sub.want && sub.by != nil {
			told = append(told, sub.by)
		}
	}
	l.mu.Unlock()
	for _, s := range told {
		s.Refused(err)
	}
}
