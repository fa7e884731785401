package fairlock

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Mutex] is asked for and held. It takes all options of package headwaiter, [WithCohort], [WithHistory] and
// [WithKeep].
type Option interface{ option.Fairlock }

// own are the options of this package that are no terms of the queue.
type own struct {
	passes int
	keep   time.Duration
}

// MaxCohort is how often a hold may be passed on at the most; see [WithCohort].
const MaxCohort = waitqueue.MaxPasses

// WithCohort lets calls of one client that wait for the same lock pass it on among themselves, without a request to Redis.
// After at most n such passes in a row the queue is served. The calls must have the same options. Each has a token, a
// context and a release of its own. n is at most [MaxCohort]. The default is 0: every release serves the queue.
//
// Among clients the order is kept, with these exceptions. Each client that holds before a waiting call may let n of its
// later calls go first, so k clients let at most k*n. If the last of these n ends its hold by Unlock, the next call of
// this client may be overtaken by one later call of another client. After the server's clock has stepped back, a client
// that has not noticed it yet may let more than n calls go first.
//
// Inspect shows the first token of a hold, and each pass takes the next token. If that token is still ahead of the clock,
// the next call joins the queue instead.
//
// With [headwaiter.WithMaxHold] and [headwaiter.WithMaxStall] it has no effect. With [headwaiter.WithMinHold] and
// [headwaiter.WithPrevious] calls fail with [lease.ErrInvalid].
func WithCohort(n int) Option { return option.Set(func(o *own) { o.passes = n }) }

// WithHistory keeps the last n ends of holds in Redis, for operators: `headwaiter log NAME` and inspect.History tell of each
// the token, the client, since and until when it was held, and how it ended. The script that ends a hold writes that; with
// the release a cycle takes about a sixth longer. They are kept for a day after the last one, some 100 bytes each, so this is
// not for names without number.
//
// All clients should name the lock so: what a client ends that does not, or a multilock, is missing. The user of Redis
// needs more rights, see docs/deploy.md. The default is 0, none; n is at most 1000.
func WithHistory(n int) Option { return option.Set(func(t *waitqueue.Terms) { t.History = n }) }

// MaxKeep is for how long a lock can be kept at the most; see [WithKeep].
const MaxKeep = time.Hour

// WithKeep lets a client keep the lock after a call has given it back, for up to d, until another call of the client with the
// same options takes it up, without asking Redis: at the speed of the process. As soon as somebody else waits for the lock
// the client is called, by one message, and gives it back: at once if no call uses it, else when that call does. Each use has
// a token, a context and a deadline of its own. Close gives back what is kept.
//
// It is for a lock that mostly one client uses, again and again. While it is kept its lease is the grant lease
// ([headwaiter.Options]): if the client dies, the next one waits at most that long. If the message is lost the next
// renewal makes up for it. A TryLock of another client, also of a multilock, waits for up to 50 ms while the kept lock is
// called back;
// [TryLockEach] says at once that it is busy. A client keeps 1,000 locks at the most that no call uses, those that were used
// last. If a call ends its hold by Unlock, the next call of the client may be overtaken by one of another that came later.
//
// For the server all the uses in a row are one hold: Inspect, and [WithHistory], tell its first token, and since when the
// client has it. With [WithCohort], calls that wait here may pass the lock on before others get it, up to its number. As
// with a cohort, HandOver of a lease is [errors.ErrUnsupported], and the hold stays.
//
// d is from 1 ms to [MaxKeep]; the default, and 0, is not to keep. With [headwaiter.WithMaxHold], [headwaiter.WithMinHold],
// [headwaiter.WithPrevious], [headwaiter.WithMaxStall], [headwaiter.WithReplicas], [headwaiter.WithFsync] and [headwaiter.WithSafeRestart] calls fail
// with [lease.ErrInvalid].
func WithKeep(d time.Duration) Option { return option.Set(func(o *own) { o.keep = d }) }

// cohortOf is the queue of calls that pass their holds on or keep them, if the options say so, or why they cannot.
func cohortOf(q waitqueue.Queue, opts []Option) (*waitqueue.Cohort, error) {
	o, t := option.Apply(own{}, opts), q.Terms()
	n, d := o.passes, o.keep
	bounded, other := t.MaxHold+t.MaxStall != 0, notWithKeep(t)
	switch {
	case n < 0 || n > MaxCohort:
		return nil, fmt.Errorf("%w: WithCohort: %d passes must be from 0 to %d", lease.ErrInvalid, n, MaxCohort)
	case n != 0 && t.MinHold != 0:
		return nil, fmt.Errorf("%w: WithCohort cannot go with WithMinHold", lease.ErrInvalid)
	case n != 0 && t.Remember != 0:
		return nil, fmt.Errorf("%w: WithCohort cannot go with WithPrevious", lease.ErrInvalid)
	case d != 0 && (d < time.Millisecond || d > MaxKeep):
		return nil, fmt.Errorf("%w: WithKeep: a time of %v must be from 1ms to %v, or 0 not to keep", lease.ErrInvalid, d, MaxKeep)
	case d != 0 && other != "":
		return nil, fmt.Errorf("%w: WithKeep cannot go with %s", lease.ErrInvalid, other)
	case n == 0 && d == 0 || bounded:
		return nil, nil
	}
	return q.Passing(n, d), nil
}

// notWithKeep is the option that a use of a kept hold could not have, since no server is told of a use; "" if there is none.
func notWithKeep(t waitqueue.Terms) string {
	switch {
	case t.MaxHold != 0:
		return "WithMaxHold"
	case t.MinHold != 0:
		return "WithMinHold"
	case t.Remember != 0:
		return "WithPrevious"
	case t.MaxStall != 0:
		return "WithMaxStall"
	case t.OnDisk:
		return "WithFsync"
	case t.Replicas > 0:
		return "WithReplicas"
	case t.SafeRestart:
		return "WithSafeRestart"
	}
	return ""
}
