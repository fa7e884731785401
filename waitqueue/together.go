package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lua"
)

// A client that waits for thousands of names looks at each of them every two seconds. Usually there is nothing to see: the
// ticket is in the queue, and the holder's lease goes on. So the usual looks at one node that are due at one tick go together,
// in few scripts, which say that much of many tickets. A name of which there is more to say gets a check of its own after
// that, and so does one that is due alone.

// lookBatch is how many tickets one script looks at, at the most, which takes the server about a millisecond.
const lookBatch = 160

// A look is that at one of several names.
type look struct {
	site       *site
	glances    []*glance
	now, until int64 // server µs: of the reply, and of the end of the present lease
	check      bool  // only a check can tell
	err        error // there was no answer
}

// A glance is that at one of its tickets.
type glance struct {
	*look
	ticket  *ticket
	text    string
	arrival string
	place   int
}

// flush sends what was due at one moment.
func (c *client) flush() {
	c.renewals.Flush()
	due := c.looks.Take()
	if len(due) == 0 {
		return
	}
	nodes := make(map[*conn.Node][]*site, 1)
	for _, s := range due {
		n := s.node()
		nodes[n] = append(nodes[n], s)
	}
	for n, sites := range nodes {
		if len(sites) == 1 {
			sites[0].mu.Lock()
			sites[0].startCheckLocked()
			sites[0].mu.Unlock()
			continue
		}
		c.servers.Spawn(func() { c.lookTogether(n, sites) })
	}
}

// lookTogether looks at names of one node, in one round trip.
func (c *client) lookTogether(n *conn.Node, sites []*site) {
	var looks []*look
	groups := make(map[*lua.Script][]*glance, 1)
	for _, s := range sites {
		if l := s.beginLook(); l != nil {
			looks = append(looks, l)
			groups[s.proto.Checks] = append(groups[s.proto.Checks], l.glances...)
		}
	}
	if len(looks) == 0 {
		return
	}
	a := n.Attempt(conn.AttemptTime)
	var jobs []conn.Job
	var parts [][]*glance
	for script, group := range groups {
		for _, part := range conn.Parts(c.servers, group, lookBatch, func(g *glance) uint16 { return g.site.slot }) {
			job := conn.Job{Script: script, Args: []string{a.NotAfter, part[0].site.id, c.servers.Counted()}}
			for _, g := range part {
				job.Keys = append(job.Keys, g.site.keys.All()...)
				job.Args = append(job.Args, g.text, g.arrival)
			}
			jobs, parts = append(jobs, job), append(parts, part)
		}
	}
	c.stats.Checks.Add(uint64(len(jobs)))
	last := &jobs[len(jobs)-1]
	last.Result = c.servers.Patiently(n, jobs[:len(jobs)-1], last.Script, last.Keys, last.Args)
	for i, j := range jobs {
		now, token, seen, err := j.Script.DecodeChecks(j.Result, len(parts[i]))
		if err == nil {
			n.Clock.Observe(a, now, false)
			c.floor.Raise(token)
		}
		for k, g := range parts[i] {
			switch {
			case err == nil && seen[k].Place >= 0:
				g.place, g.now, g.until = seen[k].Place, now, seen[k].Until
			case err == nil || conn.Answered(err):
				g.check = true // If it is refused, each is told why by its own.
			default:
				g.err = err
			}
		}
	}
	for _, l := range looks {
		l.site.endLook(l)
	}
}

// beginLook names tickets of a site as a check does. Where only a check will do, that is begun.
func (s *site) beginLook() *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, l := s.newRoundLocked(), &look{site: s}
	l.check = r.mode != lua.Hears || s.all || s.checking || len(r.tickets) == 0
	for _, t := range r.tickets {
		l.check = l.check || t.state != waiting || t.bound != 0
		l.glances = append(l.glances, &glance{look: l, ticket: t, text: t.text, arrival: strconv.FormatInt(t.arrival, 10)})
	}
	if l.check {
		s.startCheckLocked()
		return nil
	}
	s.answers.Sent(time.Now())
	return l
}

// endLook takes in what was seen, and begins a check where only that can tell.
func (s *site) endLook(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers.Over(l.err == nil)
	switch {
	case l.check:
		s.startCheckLocked()
	case l.err != nil:
		s.checkFailedLocked(l.err)
	case s.anyWaits():
		s.failures = 0
		for _, g := range l.glances {
			if g.ticket.text == g.text {
				g.ticket.place = g.place
			}
		}
		v := trust.SightOf(l.glances[0].place, l.now, l.until, 0)
		for _, t := range s.tickets {
			t.sees(&v)
		}
		s.checkAtLocked(s.nextCheckLocked(&v, time.Now()))
	}
}
