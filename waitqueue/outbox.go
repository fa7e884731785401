package waitqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
)

const (
	// linger is the longest that an item waits for a request which takes it along.
	linger = 5 * time.Millisecond
	// outBatch is how many requests go in one round trip.
	outBatch = 128
)

// An outItem is a request in an outbox.
type outItem[T any] struct {
	Of    *T
	taken bool // somebody sends it, or it rests before it is sent again; guarded by the lock of the outbox
}

// An outbox sends what nobody waits for, several requests to one node in one round trip. It counts what is not over: what was
// pushed, and what is owed otherwise.
// spawn and sendAll are set before it is used.
type outbox[T any] struct {
	spawn   func(func()) bool      // runs something in the background; false: its client was closed
	sendAll func(*conn.Node, []*T) // sends to a node, and takes in the answers

	mu       sync.Mutex // guards the fields below; nothing is called under it but spawn and timers
	ready    map[*conn.Node]*box[T]
	open     int           // what is not yet over
	progress chan struct{} // closed when one of that is; nil while nobody waits for it
}

// A box has what is to be sent to a node. A goroutine sends it, and ends when there is nothing. Where requests have taken
// along what it was started for, they may go on doing so: then the box lingers, and a timer that each such request sets
// back starts the goroutine. To start it each time would take longer than what it sends.
type box[T any] struct {
	ready   []*outItem[T]
	lingers bool
	timer   *time.Timer // of that
}

// push makes an item ready for a node, and sees that it is sent: at once, or also with a request that comes soon.
func (o *outbox[T]) push(n *conn.Node, i *outItem[T], atOnce bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, runs := o.ready[n], true
	if b == nil {
		b, runs = &box[T]{}, false
		if o.ready == nil {
			o.ready = make(map[*conn.Node]*box[T])
		}
		o.ready[n] = b
	}
	i.taken = false
	b.ready = append(b.ready, i)
	o.open++
	if !runs || b.lingers && atOnce {
		o.startLocked(n, b)
	}
}

// startLocked begins to send what is in a box.
func (o *outbox[T]) startLocked(to *conn.Node, b *box[T]) {
	if b.lingers = false; !o.spawn(func() { o.send(to, b) }) {
		o.dropLocked(to, b)
	}
}

// lingerLocked lets the next request take along what was pushed.
func (o *outbox[T]) lingerLocked(to *conn.Node, b *box[T]) {
	b.lingers = true
	if b.timer != nil {
		b.timer.Reset(linger)
		return
	}
	b.timer = time.AfterFunc(linger, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case !b.lingers:
		case len(b.ready) > 0:
			o.startLocked(to, b)
		default:
			o.dropLocked(to, b)
		}
	})
}

// dropLocked is the end of a box that is empty. Its node may have another one by now: a timer that is set back when it
// has just fired ends the box once, and then fires again.
func (o *outbox[T]) dropLocked(to *conn.Node, b *box[T]) {
	b.lingers = false
	if o.ready[to] == b {
		delete(o.ready, to)
	}
}

// hasten sends what lingers, because somebody waits for it.
func (o *outbox[T]) hasten(to *conn.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.ready[to]; b != nil && b.lingers && len(b.ready) > 0 {
		o.startLocked(to, b)
	}
}

// count adds n things that are not over and are sent elsewhere, or takes off some that are.
func (o *outbox[T]) count(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settleLocked(-n)
}

func (o *outbox[T]) settleLocked(n int) {
	o.open -= n
	if o.progress != nil {
		close(o.progress)
		o.progress = nil
	}
}

// send runs in the background while there is something to send to a node.
func (o *outbox[T]) send(to *conn.Node, b *box[T]) {
	for {
		batch, passed := o.nextBatch(to, b)
		if len(batch) == 0 {
			return
		}
		o.sendAll(to, batch)
		o.count(-passed)
	}
}

// nextBatch takes what goes in one round trip out of a box. Where there is nothing to send, the box lingers or is over.
// passed is how many items are in it no more, those included that a request has taken along.
func (o *outbox[T]) nextBatch(to *conn.Node, b *box[T]) (batch []*T, passed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(batch) < outBatch && passed < len(b.ready) {
		if i := b.ready[passed]; !i.taken {
			i.taken = true
			batch = append(batch, i.Of)
		}
		passed++
	}
	b.ready = b.ready[passed:]
	switch {
	case len(batch) > 0:
	case passed > 0:
		o.settleLocked(passed)
		o.lingerLocked(to, b)
	default:
		o.dropLocked(to, b)
	}
	return batch, passed
}

// claim takes items for a node out of the hands of the background: all, or none if it has begun to send one of them.
func (o *outbox[T]) claim(n *conn.Node, all []*outItem[T]) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, i := range all {
		if i.taken {
			return false
		}
	}
	for _, i := range all {
		i.taken = true
	}
	o.open += len(all)
	if b := o.ready[n]; b != nil && b.lingers {
		before := len(b.ready)
		b.ready = slices.DeleteFunc(b.ready, func(i *outItem[T]) bool { return i.taken })
		o.settleLocked(before - len(b.ready))
		if len(b.ready) == 0 { // Else the timer is for others.
			o.lingerLocked(n, b)
		}
	}
	return true
}

// unclaim gives them back.
func (o *outbox[T]) unclaim(n *conn.Node, all []*outItem[T]) {
	for _, i := range all {
		o.push(n, i, true)
	}
	o.count(-len(all))
}

// left is how much is not over, and to how many nodes something is to be sent.
func (o *outbox[T]) left() (open, nodes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open, len(o.ready)
}

// wait returns when all is over, or until has passed, or with an error when ctx ends.
func (o *outbox[T]) wait(ctx context.Context, until func() time.Time) error {
	for {
		o.mu.Lock()
		if o.open == 0 {
			o.mu.Unlock()
			return nil
		}
		if o.progress == nil {
			o.progress = make(chan struct{})
		}
		progress := o.progress
		o.mu.Unlock()
		left := time.Until(until()) // After taking the channel, so that no later progress is missed.
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-progress:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return calls.WhyEnded(ctx)
		}
		timer.Stop()
	}
}
