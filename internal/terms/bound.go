package terms

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Bound is what a queue may be like that a ticket without a place comes to (I11).
type Bound struct {
	limit int       // how many may wait; 0: any number
	by    time.Time // when its call has to hold; zero: at any time
}

// Bound is that of a call, nil if it has none.
func (t Terms) Bound(ctx context.Context) *Bound {
	if t.QueueLimit == 0 && !t.Admission {
		return nil
	}
	b := &Bound{limit: t.QueueLimit}
	if t.Admission {
		b.by, _ = ctx.Deadline()
	}
	return b
}

// Admits is why a call with a context cannot be admitted, whatever the queue is like.
func (t Terms) Admits(ctx context.Context, mode string) error {
	if _, ok := ctx.Deadline(); !ok && t.Admission && mode == lua.Wait {
		return fmt.Errorf("%w: WithAdmission: the context has no deadline, and there is no WithMaxWait", lease.ErrInvalid)
	}
	return nil
}

// String is the bound as scripts want it: the limit, and what is left of the time in µs.
func (b *Bound) String() string {
	text := strconv.Itoa(b.limit) + ":"
	if !b.by.IsZero() {
		text += strconv.FormatInt(max(time.Until(b.by), 0).Microseconds(), 10)
	}
	return text
}

// Mode is the mode of an ask with the bound behind it, if there is one.
func (b *Bound) Mode(mode string) string {
	if b == nil {
		return mode
	}
	return mode + " " + b.String()
}

// FullBy is why an ask was refused that found no room; nil if it was not.
func (b *Bound) FullBy(r *lua.Reply) error {
	if r.Status != lua.Full || b == nil {
		return nil
	}
	return b.full(r.Waiting, r.Now, r.Arrival)
}

// full is the error of a call with the bound that finds so many waiters, the first of whom came at a time of the server.
func (b *Bound) full(waiting int, now, oldest int64) error {
	e := &lease.QueueFullError{Waiting: waiting, Oldest: time.Duration(now-oldest) * time.Microsecond}
	if b.limit == 0 || waiting < b.limit {
		e.Left = max(time.Until(b.by), 1)
	}
	return e
}

// Told is that error from what a check says behind the state of a ticket.
func (b *Bound) Told(text string, now int64) error {
	var waiting int
	var oldest int64
	if _, err := fmt.Sscan(text, &waiting, &oldest); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrQueueFull, err)
	}
	return b.full(waiting, now, oldest)
}

// Brought is what a check says of a ticket: its arrival, the bound behind it, if there is one, and its head start, in µs.
func (b *Bound) Brought(arrival, headStart int64) string {
	text := strconv.FormatInt(arrival, 10)
	if b != nil {
		text += ":" + b.String()
	}
	if headStart != 0 {
		text += "@" + strconv.FormatInt(headStart, 10)
	}
	return text
}
