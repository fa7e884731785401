//go:build unix

package crowd

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
)

// Kinds of call in which nothing is held.
//
// A latch's calls wait for it. A barrier's arrive, each Entries times more after the first; N is how many
// parties meet, and Lease the lease of their places.
const (
	Latch   = "latch"
	Barrier = "barrier"
)

// Further kinds of event.
const (
	Passed  = "passed"  // a wait is over; the token is the place in which the party arrived
	Counted = "counted" // a count was taken off; the token is what is left
	Broken  = "broken"  // the barrier is
)

// count is what a child at a latch can be told.
const count = "count"

// meeting is a call of the plan for a name, of a latch or a barrier.
func (c *child) meeting(client *headwaiter.Client, name string) (call func()) {
	if c.plan.Kind == Barrier {
		return func() { c.arrive(client, name) }
	}
	l := countdown.New(client, name)
	c.latches = append(c.latches, l)
	return func() { c.tell(Event{Kind: Passed, Name: name}.unless(l.Wait(context.Background()))) }
}

// countDown takes one off each latch, by each client.
func (c *child) countDown() {
	for _, l := range c.latches {
		left, err := l.CountDown(context.Background())
		c.tell(Event{Kind: Counted, Name: l.Name(), Token: uint64(left)}.unless(err))
	}
}

// arrive is one party, as often as it is to come.
func (c *child) arrive(client *headwaiter.Client, name string) {
	b := barrier.New(client, name, int(c.plan.N), headwaiter.WithLease(c.plan.Lease))
	for range c.plan.Entries + 1 {
		index, err := b.Await(context.Background())
		c.tell(Event{Kind: Passed, Name: name, Client: client.ID(), Token: uint64(index)}.unless(err))
	}
}

// unless returns the event, or what there was instead.
func (e Event) unless(err error) Event {
	switch {
	case errors.Is(err, barrier.ErrBroken):
		e.Kind, e.Error = Broken, err.Error()
	case err != nil:
		e.Kind, e.Error = Failed, err.Error()
	}
	return e
}

// CountDown makes each client of the process take one off the count of each latch; a [Counted] tells the
// outcome.
func (c *Crowd) CountDown() {
	c.t.Helper()
	c.tell(count)
}
