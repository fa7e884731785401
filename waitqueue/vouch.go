package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lua"
)

// What a grant must have beside the word of the server before its call returns, where that is asked for:
// replicas that know of it, and a server that cannot have forgotten another's lease. Both are asked for behind a
// renewal, on the connection that wrote it: a grant by message was written by somebody else's.

// vouched reports whether a hold of the site on these terms needs more than the word of its node.
func (s *site) vouched(t Terms) bool {
	return t.Replicas > 0 || t.SafeRestart && !s.node().Sound(s.slot, t.Lease)
}

// vouch runs a renewal and what its terms want behind it.
func (s *site) vouch(n *conn.Node, j conn.Job, t Terms) conn.Voucher {
	p := conn.Proof{Replicas: t.Replicas, Timeout: t.ReplicasTimeout, Lease: t.Lease}
	if t.SafeRestart {
		p.Mark = lua.MarkKey(s.client.opts.Prefix, s.slot, s.client.servers.Clustered())
	}
	return s.client.servers.Vouch(n, j, p)
}

// giveWay gives a hold back whose call had to wait behind a restart, if others that came before it have come back to the
// queue meanwhile: what is free then goes by the order of arrivals again. The call waits on, at its place.
func (w *wait) giveWay() {
	t, s := w.ticket, w.site
	c, n := s.client, s.node()
	s.mu.Lock()
	arrival := t.arrival
	s.mu.Unlock()
	if now, ok := n.Clock.Steady(); arrival == 0 && ok {
		arrival = now.Add(-time.Since(w.begun)).UnixMicro() - t.headStart()
	}
	r, err := lua.Ahead.Decode(c.servers.RunFor(w.ctx, lua.Ahead.Script, s.keys.All(), strconv.FormatInt(arrival, 10)))
	s.mu.Lock()
	if err != nil || r.Before == 0 || arrival == 0 || t.state != held {
		s.mu.Unlock()
		return
	}
	d := s.newEndLocked(t.text, t.grant.token, time.Now())
	t.arrival = arrival
	t.lapsedLocked(idling)
	c.ends.owe() // Close waits for it.
	defer c.ends.done(1)
	s.mu.Unlock()

	// Its place first, then the end of what it held, so that it has that place when the queue is served.
	c.send(n, []outgoing{{w, s.prepare(n, w)}}, []*end{d})
}
