package waitqueue

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// A bound is how many may wait in a queue when a ticket without a place comes (I11); 0: any number.
type bound int

// String is the bound as scripts want it.
func (b bound) String() string { return strconv.Itoa(int(b)) }

// Mode is the mode of an ask, with the bound after it, if there is one.
func (b bound) mode(mode string) string {
	if b == 0 {
		return mode
	}
	return mode + " " + b.String()
}

// fullBy is why an acquire request that found no room was refused; nil if it was not.
func (b bound) fullBy(r *wire.Reply) error {
	if r.Status != wire.Full || b == 0 {
		return nil
	}
	return full(r.Waiting, r.Now, r.Arrival)
}

// full is the error of a call that finds this number of waiters, the first of whom came at a time of the server.
func full(waiting int, now, oldest int64) error {
	return &lease.QueueFullError{Waiting: waiting, Oldest: time.Duration(now-oldest) * time.Microsecond}
}

// fromCheck makes that error of what a check says after the state of a ticket.
func (b bound) fromCheck(text string, now int64) error {
	var waiting int
	var oldest int64
	if _, err := fmt.Sscan(text, &waiting, &oldest); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrQueueFull, err)
	}
	return full(waiting, now, oldest)
}

// brought is what a check sends for a ticket: its arrival, the bound, if there is one, and its head start, in µs.
func (b bound) brought(arrival, headStart int64) string {
	text := strconv.FormatInt(arrival, 10)
	if b != 0 {
		text += ":" + b.String()
	}
	if headStart != 0 {
		text += "@" + strconv.FormatInt(headStart, 10)
	}
	return text
}
