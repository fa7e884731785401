package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/lease"
)

// A sight is what somebody who observes an election saw.
type sight struct {
	at             time.Duration
	client, object int
	leader         lease.Leader
}

func (s sight) String() string {
	if s.leader.Token == 0 {
		return fmt.Sprintf("%v client %d sees nobody lead object %d", s.at, s.client, s.object)
	}
	return fmt.Sprintf("%v client %d sees token %d lead object %d with %q", s.at, s.client, s.leader.Token, s.object, s.leader.Value)
}

// value is one that nobody else proclaims, and notes it.
func (a *actor) value(noted *Call) string {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	v := fmt.Sprintf("%d/%d at %v", a.id, len(noted.Values), noted.Begin)
	noted.Values = append(noted.Values, v)
	return v
}

func (a *actor) campaign(c *headwaiter.Client, noted *Call) func(context.Context) (*lease.Lease, error) {
	e, value := election.New(c, name(a.plan.Object), a.terms(noted.Step)), a.value(noted)
	return func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, value) }
}

// proclaim changes the value of a leader.
func (a *actor) proclaim(c *headwaiter.Client, l *lease.Lease, noted *Call) {
	e, value := election.New(c, name(a.plan.Object)), a.value(noted)
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := e.Proclaim(ctx, l, value); err == nil {
		a.world.mu.Lock()
		noted.Proclaimed = a.world.now()
		a.world.mu.Unlock()
	}
}

// observe notes what a client sees of an election, until ctx ends.
func (w *world) observe(ctx context.Context, n *node, object int) {
	<-n.ready
	c := n.alive()
	if c == nil {
		return
	}
	w.mu.Lock()
	w.watched = append(w.watched, watched{w.now(), n.id, object})
	w.mu.Unlock()
	for l := range election.New(c, name(object)).Observe(ctx) {
		w.mu.Lock()
		w.sights = append(w.sights, sight{w.now(), n.id, object, l})
		w.mu.Unlock()
	}
}

// A watched is since when a client observes an election.
type watched struct {
	from           time.Duration
	client, object int
}

// nobodyLeads judges what observers see last, when everything is over.
func (w *world) nobodyLeads() {
	w.mu.Lock()
	last := map[watched]sight{}
	for _, o := range w.watched {
		for _, s := range w.sights {
			if s.client == o.client && s.object == o.object {
				last[o] = s
			}
		}
	}
	w.mu.Unlock()
	for o, s := range last {
		if w.nodes[o.client].alive() == nil {
			continue
		}
		if s.leader.Token != 0 || s.leader.Err != nil {
			w.violate("in the end nobody leads: %v, %v", s, s.leader.Err)
		}
	}
}
