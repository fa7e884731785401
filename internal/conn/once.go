package conn

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Requests without a ticket: to count, to set, to reset, to release by force. Each is sent again and again until it is
// answered, and an attempt that was not answered may run later. It then changes nothing, because lib/once.lua notes what
// it answered to each request. A call that ends with an error leaves a request in doubt. Before the client's next call
// about that name that request is overtaken, or its not-after has passed.

// lanes is how many requests without a ticket a client sends about one name at once: in each lane they go one after the
// other, so the server needs to know only the last. A further call waits until one is free.
const lanes = 64

// onces are the requests without a ticket of a client.
type onces struct {
	doubtful atomic.Int64 // names with requests in doubt

	mu     sync.Mutex // guards the fields below; nothing is called under it
	number uint64     // of the last request: those in one lane must rise
	names  map[string]*once
}

// once is what a client knows of its requests about one name.
type once struct {
	calls  int           // that have a lane or wait for one
	room   chan struct{} // has one for each call that has a lane
	busy   uint64        // the lanes that calls have, a bit each
	doubts []doubt
}

// doubt is a request that was given up, and may run until a time.
type doubt struct {
	id     string // of the client at that time
	lane   int
	number uint64
	until  time.Time
}

// inLocked returns what is known of a name, and makes an empty record if there is none.
func (o *onces) inLocked(lock string) *once {
	if o.names == nil {
		o.names = make(map[string]*once)
	}
	x := o.names[lock]
	if x == nil {
		x = &once{room: make(chan struct{}, lanes)}
		o.names[lock] = x
	}
	return x
}

// change changes what is known of a name. It also looks at one or two other names, so that none is kept for ever if no
// call is about it any more.
func (o *onces) change(lock string, f func(x *once)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.changeLocked(lock, now, f)
	others := 2
	for other := range o.names {
		if others--; others < 0 {
			return
		}
		o.changeLocked(other, now, func(*once) {})
	}
}

// changeLocked changes what is known of a name, and forgets the name if nothing is left.
func (o *onces) changeLocked(lock string, now time.Time, f func(x *once)) {
	x := o.inLocked(lock)
	was := x.doubted()
	f(x)
	x.doubts = slices.DeleteFunc(x.doubts, func(d doubt) bool { return !now.Before(d.until) })
	o.doubtful.Add(x.doubted() - was)
	if x.calls == 0 && x.doubted() == 0 {
		delete(o.names, lock)
	}
}

// doubted is 1 if a request of the name was in doubt when it was last looked at.
func (x *once) doubted() int64 {
	if len(x.doubts) > 0 {
		return 1
	}
	return 0
}

// enter waits for a lane, and returns it with the number of the next request in it.
func (o *onces) enter(ctx context.Context, lock string) (lane int, number uint64, err error) {
	var room chan struct{}
	o.change(lock, func(x *once) {
		x.calls++
		room = x.room
	})
	select {
	case room <- struct{}{}:
	case <-ctx.Done():
		o.change(lock, func(x *once) { x.calls-- })
		return 0, 0, GaveUp(ctx, calls.WhyEnded(ctx), nil)
	}
	o.change(lock, func(x *once) {
		lane = bits.TrailingZeros64(^x.busy)
		x.busy |= 1 << lane
		o.number++
		number = o.number
	})
	return lane, number, nil
}

// leave frees a lane. The request in it is in doubt until a time, if that is not zero.
func (o *onces) leave(lock string, d doubt) {
	o.change(lock, func(x *once) {
		x.calls--
		x.busy &^= 1 << d.lane
		if !d.until.IsZero() {
			x.doubts = append(x.doubts, d)
		}
		<-x.room
	})
}

// Once is Repeat for a request that has no ticket, by a script of lib/once.lua. The first of the keys is the lock. last is
// when the call gives it up at the latest.
func (c *Servers) Once(
	ctx context.Context, s *lua.Script, keys []string, last time.Time, args func(Attempt) []string, late func(*Node, Attempt, wire.Head),
) (Attempt, wire.Tuple, error) {
	lock := keys[0]
	lane, number, err := c.onces.enter(ctx, lock)
	if err != nil {
		return Attempt{}, wire.Tuple{}, err
	}
	d := doubt{id: c.ID(), lane: lane, number: number}
	defer func() { c.onces.leave(lock, d) }()
	if err := c.Overtake(ctx, lock); err != nil {
		return Attempt{}, wire.Tuple{}, err
	}
	request := strconv.Itoa(lane) + " " + strconv.FormatUint(number, 10) + " "
	keys = append(slices.Clip(keys), lua.RequestsKey(lock, d.id))
	a, r, err := c.Repeat(ctx, s, keys, Transient, func(a Attempt) []string {
		return append(args(a), request+a.NotAfter+" "+repeats(last))
	}, late)
	if errors.Is(err, lease.ErrOutcomeUnknown) {
		d.until = a.Expires
	}
	return a, r, err
}

// repeats is for how many ms a request that is given up at a time may come again: an attempt that was sent before may be
// under way for long.
func repeats(last time.Time) string {
	return strconv.FormatInt((max(time.Until(last), 0) + LongestAttempt).Milliseconds(), 10)
}

// Doubtful reports whether a request without a ticket, about any name, was given up and may still run.
func (c *Servers) Doubtful() bool { return c.onces.doubtful.Load() > 0 }

// Overtake makes sure that requests without a ticket about this name that calls have given up have no effect any more. It
// takes no longer than until they can run no more.
func (c *Servers) Overtake(ctx context.Context, lock string) error {
	if !c.Doubtful() {
		return nil
	}
	var doubts []doubt
	c.onces.change(lock, func(x *once) { doubts = slices.Clone(x.doubts) }) // Some may be over, which does no harm.
	if len(doubts) == 0 {
		return nil
	}
	args, until := make([]string, 0, 2*len(doubts)), time.Time{}
	for _, d := range doubts {
		args = append(args, strconv.Itoa(d.lane), strconv.FormatUint(d.number, 10))
		until = times.Later(until, d.until)
	}
	during, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	id, err := c.ID(), error(lease.ErrCopied)
	if !slices.ContainsFunc(doubts, func(d doubt) bool { return d.id != id }) { // Nothing is sent in the name of a copy.
		_, _, err = c.Repeat(during, lua.Overtake, []string{lua.RequestsKey(lock, id)}, Transient,
			func(Attempt) []string { return args }, func(*Node, Attempt, wire.Head) {})
	}
	switch {
	case err == nil:
		c.onces.change(lock, func(x *once) {
			x.doubts = slices.DeleteFunc(x.doubts, func(d doubt) bool { return slices.Contains(doubts, d) })
		})
	case ctx.Err() != nil:
		return err
	case during.Err() == nil: // It was refused: then they are waited out.
		return c.Rest(ctx, time.Until(until))
	}
	return nil
}
