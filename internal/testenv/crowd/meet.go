package crowd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
)

// Kinds of call in which nothing is held: a plan of one of them is for processes that call [Meet].
//
// A latch's calls wait for it. A barrier's arrive, each Entries times more after the first; N is how many
// parties meet, and Lease that of their places.
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

// Meet is [Main] for plans of a latch or a barrier.
func Meet() {
	text, ok := os.LookupEnv(planVariable)
	if !ok {
		return
	}
	c := &child{out: json.NewEncoder(os.Stdout)}
	err := json.Unmarshal([]byte(text), &c.plan)
	var latches []*countdown.Latch
	if err == nil {
		latches, err = c.meet()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1)
	}
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		if commands.Text() != count {
			continue
		}
		for _, l := range latches {
			left, err := l.CountDown(context.Background())
			c.tell(Event{Kind: Counted, Name: l.Name(), Token: uint64(left)}.unless(err))
		}
	}
	os.Exit(0)
}

// meet makes the clients, starts their calls, and returns the latches if it is about some.
func (c *child) meet() (latches []*countdown.Latch, err error) {
	for range c.plan.Clients {
		option := rueidis.ClientOption{InitAddress: []string{c.plan.Addr}, ForceSingleClient: true}
		client, err := headwaiter.Dial(headwaiter.Options{Redis: option})
		if err != nil {
			return nil, err
		}
		for _, name := range c.plan.Names {
			var call func()
			switch c.plan.Kind {
			case Latch:
				l := countdown.New(client, name)
				latches = append(latches, l)
				call = func() { c.tell(Event{Kind: Passed, Name: name}.unless(l.Wait(context.Background()))) }
			case Barrier:
				call = func() { c.arrive(client, name) }
			default:
				return nil, fmt.Errorf("%q is no meeting", c.plan.Kind)
			}
			for range c.plan.Waiters {
				go call()
			}
		}
	}
	return latches, nil
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
