package conn

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// The image of a process can be restored twice, and then two clients have one identity. No connection is left to both. So
// each introduction of a client leaves a link at the server: the number by which the server knows one of the client's
// connections, and the time. A client that finds a link which it has not made is a copy. A missing link, or an older one of its
// own, says nothing: an answer was lost, or the server has lost its data.
//
// A copy has to make new connections. So after any change of the connections to a node nothing of the protocol is sent there
// before the client is introduced again.

const (
	// linkFresh is for how long requests may follow an introduction. It is shorter than the link lives: while a client can
	// be granted anything, its copy finds the link.
	linkFresh = 50 * time.Second
	// linkLasts is for how long a client knows a link of its own: five times as long as a server does. Which of them is there
	// cannot be told: a replica that becomes the master may lack any number of the newest.
	linkLasts = 5 * whoLasts
	// linksKept is how many of them it knows under one key at the most, the newest and the last that was answered.
	linksKept = 1000
)

// links are those that a client has made.
type links struct {
	state    atomic.Int32 // one of those below
	numbered atomic.Bool  // a server has told the number of a connection

	mu   sync.Mutex        // guards the fields below
	made map[string][]link // by the key, the oldest first
	last map[string]string // of these, the last that was answered
}

// A link is the text that a client leaves at a server, and when it was made.
type link struct {
	text string
	at   time.Time
}

const (
	linksUnwanted int32 = iota // the client is not introduced yet, or never will be
	linksMade
	linksRefused // servers do not tell the number of a connection
)

// own notes a link that is about to be made, and returns it with the earlier ones that may be there. It forgets those that no
// server can know any more, and the oldest if there are too many, but not the last one that was answered.
func (l *links) own(key, text string, now time.Time) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, last := append(l.made[key], link{text, now}), l.last[key]
	over := len(own) - linksKept
	own = slices.DeleteFunc(own, func(l link) bool {
		gone := l.text != last && (over > 0 || now.Sub(l.at) > linkLasts)
		if gone {
			over--
		}
		return gone
	})
	l.made[key] = own
	for _, l := range own {
		all = append(all, l.text)
	}
	return all
}

// answered notes that a link was made, or was not.
func (l *links) answered(key, text string, made bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if made {
		l.last[key] = text
		return
	}
	l.made[key] = slices.DeleteFunc(l.made[key], func(other link) bool { return other.text == text })
}

// has reports whether a link is one of the client's own. An introduction at another node may have made it after the one that
// found it had left: while a slot moves, both can have one key.
func (l *links) has(key, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.made[key], func(own link) bool { return own.text == text })
}

// forget is for a client with a new identity, which has other keys.
func (l *links) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made, l.last = make(map[string][]link), make(map[string]string)
}

// introduction is what a node knows of the client.
type introduction struct {
	changes atomic.Uint64       // of the connections to the node
	met     atomic.Pointer[met] // nil: nothing

	mu  sync.Mutex // guards the field below; nothing is called under it but spawn
	now *meeting   // under way; nil if there is none
}

// met is when the client was introduced, and how many changes of connections there had been.
type met struct {
	changes uint64
	at      time.Time
}

// A meeting is one introduction, for all requests that wait for it.
type meeting struct {
	over chan struct{}
	err  error // set before the end
}

// known reports whether the client needs no introduction now.
func (n *Node) known(now time.Time) bool {
	m := n.intro.met.Load()
	return m != nil && m.changes == n.intro.changes.Load() && now.Sub(m.at) < linkFresh || n.servers.links.state.Load() != linksMade
}

// introduced sees that a request may follow on a connection of rc. An error says that nothing was sent.
func (n *Node) introduced(ctx context.Context, rc pipeline) error {
	if n.known(time.Now()) {
		return nil
	}
	return n.introduce(ctx, rc)
}

// introducedBeside is introduced for requests on a new connection. Its first reply comes before: until then, where connections
// fail, others may not be made, and an introduction that is under way may need one.
func (n *Node) introducedBeside(ctx context.Context, conn pipeline) error {
	if n.known(time.Now()) {
		return nil
	}
	if err := conn.DoMulti(ctx, conn.B().Ping().Build())[0].NonRedisError(); err != nil {
		return &undialled{err}
	}
	return n.introduce(ctx, conn)
}

// introduce says at the node who the client is, and makes a link. It does so by the connection that waits for it, the
// first of several, so that a silent one elsewhere does not slow it down. Any will do: a copy has none of them.
func (n *Node) introduce(ctx context.Context, rc pipeline) error {
	c, i := n.servers, &n.intro
	i.mu.Lock()
	m := i.now
	if m == nil {
		m = &meeting{over: make(chan struct{})}
		if !c.Spawn(func() {
			id := c.ID()
			m.err = n.meet(id, rc)
			i.mu.Lock()
			i.now = nil
			i.mu.Unlock()
			if errors.Is(m.err, lease.ErrCopied) && c.opts.Copied != nil {
				c.opts.Copied(id)
			}
			close(m.over)
		}) {
			i.mu.Unlock()
			return errUnbegun
		}
		i.now = m
	}
	i.mu.Unlock()
	if w, ok := ctx.(*watched); ok {
		ctx = w.ctx
	}
	select {
	case <-m.over:
		return m.err
	case <-ctx.Done():
		return &undialled{ctx.Err()}
	}
}

// meet is introduce for a client that was called id. It begins again if a connection was replaced meanwhile: the number
// may be of the old one, which a copy had too. It also does if another introduction of the client overtook it.
func (n *Node) meet(id string, rc pipeline) error {
	c := n.servers
	key, ok := c.linkKey(id, n)
	if !ok {
		return nil // Nothing is there yet.
	}
	for {
		at, link, own := time.Now(), "", []string(nil)
		if c.links.state.Load() == linksMade {
			number, err := n.number(rc)
			switch {
			case err == nil:
				c.links.numbered.Store(true)
				link = strconv.FormatInt(number, 10) + ":" + strconv.FormatInt(at.UnixNano(), 36)
				own = c.links.own(key, link, at)
			case !Answered(err) && (c.sockets != nil || c.links.numbered.Load()):
				return n.unmet(at, err)
			case Answered(err) && (Transient(err) || isLoggedOut(err)):
				return err
			default: // So too where a proxy in front of a caller's client closes the connection at what it does not know.
				c.links.state.Store(linksRefused)
			}
		}
		changes := n.intro.changes.Load() // After the answer: the request may have made the connection.
		found, err := n.say(rc, key, c.introduction(link, own))
		if err != nil && !Answered(err) {
			return n.unmet(at, err)
		}
		c.links.answered(key, link, err == nil && found == link)
		switch {
		case err != nil && (Transient(err) || isLoggedOut(err)):
			return err
		case err == nil && found != link && c.links.has(key, found):
			// Overtaken: begin again.
		case err == nil && found != link:
			return &undialled{lease.ErrCopied}
		case n.intro.changes.Load() == changes && c.ID() == id: // Also where it was refused: then what follows says why.
			n.intro.met.Store(&met{changes, at})
			return nil
		}
	}
}

// number is the number of a connection to the node.
func (n *Node) number(rc pipeline) (int64, error) {
	c := n.servers
	if !c.flights.begin() {
		return 0, errUnbegun
	}
	defer c.flights.end()
	if all, ok := rc.(rueidis.Client); ok && n.address != "" {
		if at := all.Nodes()[n.address]; at != nil {
			rc = at
		}
	}
	return rc.DoMulti(c.Patient, rc.B().ClientId().Build())[0].ToInt64()
}

// say runs the script of an introduction.
func (n *Node) say(rc pipeline, key string, args []string) (string, error) {
	c := n.servers
	if !c.flights.begin() {
		return "", errUnbegun
	}
	defer c.flights.end()
	res := rc.DoMulti(c.Patient, c.evalsha(rc.B(), lua.Introduce, []string{key}, args))[0]
	if noScript(res) {
		res = rc.DoMulti(c.Patient, c.eval(rc.B(), lua.Introduce, []string{key}, args))[0]
	}
	c.demoted(res)
	return res.ToString()
}

// unmet notes that a node did not answer.
func (n *Node) unmet(began time.Time, err error) error {
	c := n.servers
	n.slow.Store(true)
	c.routes.doubt()
	if c.opts.Requests != nil {
		c.tell(n, time.Since(began), err)
	}
	return &undialled{err}
}

// introduction are the arguments of the script.
func (c *Servers) introduction(link string, own []string) []string {
	return append([]string{c.opts.Who, strconv.FormatInt(whoLasts.Milliseconds(), 10), link}, own...)
}

// linkKey is the key of the client's links at a node; all copies of it have the same key. It is false for a node of a
// cluster that has no slots.
func (c *Servers) linkKey(id string, n *Node) (string, bool) {
	if !c.Clustered() {
		return lua.ClientKey(c.opts.Prefix, id), true
	}
	for slot := range c.routes.table {
		if c.routes.table[slot].Load() == n {
			return lua.LinkKey(c.opts.Prefix, id, uint16(slot)), true
		}
	}
	return "", false
}
