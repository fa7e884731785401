package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// Info is what the server knows of one name at one moment.
type Info struct {
	Held    bool
	Holder  Waiter        // who holds, if Held
	Token   uint64        // the last that was given; that of the holder, if Held
	Since   time.Duration // how long it has been held
	Left    time.Duration // until the lease ends, unless it is renewed; negative if it has run out
	Waiting int           // how many wait
	Queue   []Waiter      // the first of them, in their order
	// Suspects are clients that let a lease run out and have not been heard of since.
	Suspects []string
}

// A Waiter is a ticket as the server knows it.
type Waiter struct {
	Client string
	Ticket string
	// Who is name@host#pid. It is known of holders only, and of those that were granted by message only once
	// they have renewed.
	Who  string
	Wait time.Duration // since its arrival, less the head start of its priority; for the holder, 0
}

// inspectQueue is how many waiters an inspection names.
const inspectQueue = 100

// Inspect tells who holds and who waits. It changes nothing, and takes no place in any order.
func (q Queue) Inspect(ctx context.Context) (Info, error) {
	if q.err != nil {
		return Info{}, q.err
	}
	c := q.client
	v, err := q.proto.Inspect.DecodeInspect(c.runFor(ctx, q.proto.Inspect, q.keys, strconv.Itoa(inspectQueue)))
	if err != nil {
		return Info{}, advise(err)
	}
	micros := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	info := Info{Held: v.Owner != "", Token: v.Token, Waiting: v.Waiting, Suspects: v.Suspects}
	if info.Held {
		info.Holder = Waiter{Client: lua.TicketClient(v.Owner), Ticket: v.Owner, Who: v.Who}
		info.Since, info.Left = micros(v.Now-v.Since), micros(v.Until-v.Now)
	}
	for _, w := range v.Queue {
		info.Queue = append(info.Queue, Waiter{Client: lua.TicketClient(w.Ticket), Ticket: w.Ticket, Wait: micros(v.Now - w.Arrival)})
	}
	return info, nil
}

// ForceRelease frees the name whoever holds it, and lets the next in the queue hold. The holder is told:
// its context ends with the cause [lease.ErrForced], at once if its client hears, else with the next
// renewal. Until then it may still act as the holder, so what it protects should look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: what was seen is what is freed. It returns
// what it freed, and ErrNotHeld if there was nothing to free.
func (q Queue) ForceRelease(ctx context.Context, token uint64) (Waiter, error) {
	if q.err != nil {
		return Waiter{}, q.err
	}
	c := q.client
	r, err := inBackground(ctx, c, func() (lua.Reply, error) {
		a := sending()
		r, err := c.run(q.proto.Force, q.keys, strconv.FormatUint(token, 10), c.highest(), c.counted())
		if err == nil {
			c.clock.observe(a, r.Now, false)
			c.count(&r)
		}
		return r, err
	})
	switch {
	case err != nil:
		return Waiter{}, fmt.Errorf("it may have been freed or not: %w", advise(err))
	case r.Status != lua.Done || len(r.States) == 0:
		return Waiter{}, ErrNotHeld
	case r.Has(lua.Unwoken):
		err = ErrUnwoken
	}
	return Waiter{Client: lua.TicketClient(r.States[0]), Ticket: r.States[0]}, err
}

// ErrNotHeld: there was no hold to release by force.
var ErrNotHeld = errors.New("not held")
