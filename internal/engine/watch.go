package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// A Watch tells an observer and a log what happens to the calls and holds of a client; nil tells nobody.
type Watch struct {
	notifier *notify.Notifier
	client   string
	calls    atomic.Uint64
	server   string
	requests func(server string, took time.Duration, err error) // nil if nobody wants to know
}

// NewWatch returns what tells an observer and a log, one or both of them nil; nil if both are. held and waited are how
// long a hold and a wait may last before that is told, 0 for as long as they like; who is the client, for operators.
// engine and server are the names in what is told of requests.
func NewWatch(to observe.Observer, log *slog.Logger, held, waited time.Duration, who, engine, server string) *Watch {
	n := notify.New(to, log, held, waited, who)
	if n == nil {
		return nil
	}
	return &Watch{notifier: n, client: rand.Text(), server: server, requests: n.Requests(engine)}
}

// Lasting reports what is wrong with how long a hold and a wait may last before that is told.
func Lasting(held, waited time.Duration) error {
	if held < 0 || waited < 0 {
		return fmt.Errorf("%w: held too long, and waited too long, must not be negative", lease.ErrInvalid)
	}
	return nil
}

// Sending is when a request is sent, if anybody wants to know. It may be called on nil.
func (w *Watch) Sending() (sent time.Time) {
	if w != nil && w.requests != nil {
		sent = time.Now()
	}
	return sent
}

// Request tells of a round trip that began at sent, and whether it was answered: without an error, or with one that does
// not pass. One that failed because life has ended is not told of. It may be called on nil.
func (w *Watch) Request(life context.Context, sent time.Time, err error, passes func(error) bool) {
	switch {
	case w == nil || w.requests == nil:
		return
	case err != nil && !passes(err):
		err = nil
	case err != nil && life.Err() != nil:
		return
	}
	w.requests(w.server, time.Since(sent), err)
}

// Stop writes what is left of the log.
func (w *Watch) Stop() {
	if w != nil {
		w.notifier.Stop()
	}
}

// watched is one call, and then its hold.
type watched struct {
	*notify.Teller
	token uint64    // of the hold
	begun time.Time // of the call, and then of the hold
	held  atomic.Bool
	lease atomic.Pointer[lease.Lease] // once the call has returned it
	once  sync.Once                   // for the end of the hold
	now   *lasting                    // nil if nobody wants to know how long it lasts

	placed atomic.Bool
	place  atomic.Int64 // how many are before it; -1 as long as that is not known
}

// callKey finds the call in its context.
type callKey struct{}

// Acquire runs a call, with a context by which [Hold] knows it.
func (w *Watch) Acquire(ctx context.Context, kind, name string, call func(context.Context) (*lease.Lease, error)) (*lease.Lease, error) {
	if w == nil {
		return call(ctx)
	}
	ticket := fmt.Sprintf("%s:%d", w.client, w.calls.Add(1))
	c := &watched{Teller: w.notifier.Teller(&notify.Teller{}, kind, name, &ticket), begun: time.Now()}
	c.place.Store(-1)
	c.Asked(ctx)
	c.lasts(func(waited time.Duration) (time.Duration, bool) { return c.Waits(int(c.place.Load()), waited) })
	l, err := call(context.WithValue(ctx, callKey{}, c))
	switch {
	case err == nil:
		c.lease.Store(l)
		context.AfterFunc(l.Context(), func() {
			if cause := context.Cause(l.Context()); errors.Is(cause, lease.ErrLost) {
				c.end(cause)
			}
		})
	case c.held.Load(): // The client was closed at that moment.
		c.end(err)
	default:
		c.silence()
		c.Passed(time.Since(c.begun), false, err)
	}
	return l, err
}

// Queued tells of a call that it has a place, the first time, and keeps how many are before it for what may be told of a
// long wait; -1 if that is not known.
func Queued(ctx context.Context, ahead int) {
	c, _ := ctx.Value(callKey{}).(*watched)
	if c == nil || c.held.Load() {
		return // Nobody looks, or the context is another hold's.
	}
	if ahead >= 0 {
		c.place.Store(int64(ahead))
	}
	if !c.placed.Swap(true) {
		c.Tell(observe.Observation{Event: observe.Queued, Place: ahead})
	}
}

// Hold tells of the hold of a call that is about to be made, and returns the context and the terms to make it with.
func Hold(ctx context.Context, how keeper.Terms) (context.Context, keeper.Terms) {
	c, _ := ctx.Value(callKey{}).(*watched)
	if c == nil || !c.held.CompareAndSwap(false, true) {
		return ctx, how // Nobody looks, or the context is another hold's.
	}
	c.silence()
	ctx = c.Granted(ctx, how.Token, how.Waited, "", "")
	c.token, c.begun = how.Token, time.Now()
	c.lasts(func(held time.Duration) (time.Duration, bool) { return c.Holds(c.token, held) })
	release, unlock := how.Release, how.Unlock
	how.Release = func(ctx context.Context) error {
		err := release(ctx)
		c.end(err)
		return err
	}
	how.Unlock = func() {
		var err error
		if unlock != nil {
			unlock()
		} else if err = release(calls.Over); !errors.Is(err, lease.ErrLost) {
			err = nil // Nobody waits for the answer.
		}
		c.end(err)
	}
	return ctx, how
}

// end tells of the end of the hold, once. One that was lost before is told as that, whoever is first to come here.
func (c *watched) end(err error) {
	if l := c.lease.Load(); err == nil && l != nil && errors.Is(context.Cause(l.Context()), lease.ErrLost) {
		err = context.Cause(l.Context())
	}
	c.once.Do(func() {
		c.silence()
		c.Ended(observe.Released, c.token, time.Since(c.begun), err)
	})
}

// A lasting is what may last for too long.
type lasting struct {
	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	over  bool
}

// lasts has look tell of what lasts for too long, until silence.
func (c *watched) lasts(look func(lasted time.Duration) (left time.Duration, wanted bool)) {
	begun := time.Now()
	left, wanted := look(0)
	if !wanted {
		return
	}
	l := &lasting{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(left, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			left, _ := look(time.Since(begun))
			l.timer.Reset(left)
		}
	})
	c.now = l
}

// silence ends that.
func (c *watched) silence() {
	l := c.now
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
}
