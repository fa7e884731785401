package sqllock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
)

// Key is the key of the advisory lock of a name: the first 64 bits of the SHA-256 of "headwaiter:" and the name, the
// first byte the highest, as a signed number. That is the same in all versions, so others may take the same lock by
// pg_advisory_lock.
//
// Two names may have one key, as may a name and a number that another program of the same database uses. With n names
// that happens with a chance of about n²/2⁶⁵, for a million names 1 in 37 million. They then exclude each other, and
// nothing else goes wrong, except for a holder of one that waits for the other.
func Key(name string) int64 {
	sum := sha256.Sum256([]byte("headwaiter:" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// A lock is what both kinds have: a name as one client sees it.
type lock struct {
	line   engine.Line
	client *Client
}

// heldKey finds the lease on a lock in a context.
type heldKey struct {
	client *Client
	kind   string
	name   string
}

func newLock(c *Client, kind, name string) lock {
	return lock{engine.Line{
		Package: "sqllock", Kind: "lock", Name: name, Key: heldKey{c, kind, name}, Err: names.Check(name, nil),
	}, c}
}

// Name returns the name of the lock.
func (l *lock) Name() string { return l.line.Name }

// usable is why a call with this context cannot lock, if it cannot.
func (l *lock) usable(ctx context.Context) error {
	if l.line.Own(ctx) {
		return lease.ErrDeadlock
	}
	return l.line.Usable(ctx, l.client.life)
}

// gaveUp is the error of a call whose context, or client, has ended. unanswered says that Postgres has not answered the
// last request of it.
func (l *lock) gaveUp(ctx context.Context, begun time.Time, place int, unanswered bool, last error) error {
	err := calls.WhyEnded(ctx)
	if err == nil {
		err, unanswered = lease.ErrClosed, false
	}
	return &lease.WaitError{Place: place, Waited: time.Since(begun), Last: last, Err: err, Unanswered: unanswered}
}

// noAnswer is the error of a try that has asked in vain for as often as it does.
func noAnswer(begun time.Time, err error) error {
	return &lease.WaitError{Place: -1, Waited: time.Since(begun), Err: err, Unanswered: true}
}

// until is the end of a hold that the server counts from at least the given local time on. A hundredth of it is for
// clocks that run apart.
func until(from time.Time, lasts, slept time.Duration) keeper.Until {
	return keeper.Until{Deadline: from.Add(lasts - lasts/100), Slept: slept}
}

// errNoAnswer is why a release does not wait any longer.
var errNoAnswer = errors.New("no answer from Postgres until the lease was over")
