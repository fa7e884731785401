//go:build unix

package crowd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/lease"
)

// Main returns at once, unless this process was started by [Start]: then it does what it was made for,
// and the process ends.
func Main() {
	text, ok := os.LookupEnv(planVariable)
	if !ok {
		return
	}
	c := &child{out: json.NewEncoder(os.Stdout)}
	err := json.Unmarshal([]byte(text), &c.plan)
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1)
	}
	// The end of the input is the end of the test: nothing is tidied up.
	c.serve(bufio.NewScanner(os.Stdin))
	os.Exit(0)
}

// child is the process that Start has started.
type child struct {
	plan    Plan
	latches []*countdown.Latch

	mu   sync.Mutex // guards the fields below
	out  *json.Encoder
	kept []kept
}

// kept is a hold that lasts until the test says otherwise.
type kept struct {
	Event
	lease *lease.Lease
}

// begin makes the clients and starts their calls.
func (c *child) begin() error {
	for range c.plan.Clients {
		option := rueidis.ClientOption{InitAddress: []string{c.plan.Addr}, ForceSingleClient: true}
		client, err := headwaiter.Dial(headwaiter.Options{Redis: option})
		if err != nil {
			return err
		}
		for _, name := range c.plan.Names {
			call, err := c.calling(client, name)
			if err != nil {
				return err
			}
			for range c.plan.Waiters {
				go call()
			}
		}
	}
	return nil
}

// calling is a call of the plan for a name.
func (c *child) calling(client *headwaiter.Client, name string) (call func(), err error) {
	if c.plan.Kind == Latch || c.plan.Kind == Barrier {
		return c.meeting(client, name), nil
	}
	lock, err := c.plan.acquire(client, name)
	return func() { c.hold(lock, Event{Kind: Held, Name: name, Client: client.ID()}) }, err
}

// hold is one call. The event is what it tells when it holds.
func (c *child) hold(lock acquire, e Event) {
	l, err := lock(context.Background())
	if err != nil {
		c.tell(e.with(Failed, err))
		return
	}
	e.Token = l.Token()
	if c.plan.Keep {
		// Before it is told: the test that hears of the hold may ask for its release at once.
		c.mu.Lock()
		c.kept = append(c.kept, kept{e, l})
		c.mu.Unlock()
		c.tell(e)
		return
	}
	c.tell(e)
	c.tell(e.with(Released, l.Release(context.Background())))
}

// serve does what the test says.
func (c *child) serve(commands *bufio.Scanner) {
	for commands.Scan() {
		c.mu.Lock()
		all := c.kept
		c.mu.Unlock()
		switch commands.Text() {
		case watch:
			// Told before the first look, which is fine: the test stops the process some time later.
			c.tell(Event{Kind: Watching})
			c.look(all)
		case release:
			for _, k := range all {
				c.tell(k.with(Released, k.lease.Release(context.Background())))
			}
		case unlock:
			for _, k := range all {
				l := k.lease
				l.Unlock()
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case count:
			c.countDown()
		}
	}
}

// look watches the contexts until the process was stopped for longer than the lease, or one has ended.
// What it sees then is the first look after the stop.
func (c *child) look(all []kept) {
	for last := time.Now(); ; {
		now := time.Now()
		over := now.Sub(last) > c.plan.Lease
		last = now
		for _, k := range all {
			over = k.lease.Context().Err() != nil || over
		}
		if !over {
			continue
		}
		for _, k := range all {
			var err error
			if k.lease.Context().Err() != nil {
				err = context.Cause(k.lease.Context())
			}
			c.tell(k.with(Looked, err))
		}
		return
	}
}

// with returns the event with another kind and an error, or none.
func (e Event) with(kind string, err error) Event {
	e.Kind = kind
	if err != nil {
		e.Error, e.Lost = err.Error(), errors.Is(err, lease.ErrLost)
	}
	return e
}

func (c *child) tell(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Nobody reads any more: the end of the input follows.
	_ = c.out.Encode(e)
}
