package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A Call is one for a lock, from its first attempt to the hold or the error. An attempt is a ticket: where one is lost
// by no fault of the call, the next begins at the end of the line.
type Call struct {
	// Life is the client's, and ends with its Close.
	Life context.Context
	// Once is one attempt. It keeps place up to date: how many are before the call, -1 as long as that is not known.
	Once func(place *int) (*lease.Lease, error)
	// Again reports whether there may be another after an error.
	Again func(error) bool
	// Trouble, if not nil, is why the servers cannot be asked, as far as is known.
	Trouble func() error
	// Between, if not nil, is called with the error of an attempt before the next.
	Between func(error)
}

// Usable is why a call fails before anything is sent: what is wrong with its name, that ctx has ended, or the client's
// life.
func Usable(ctx, life context.Context, wrong error) error {
	retry.Given(ctx)
	switch {
	case wrong != nil:
		return wrong
	case ctx.Err() != nil:
		return WaitError(-1, time.Now(), nil, retry.WhyEnded(ctx))
	case life.Err() != nil:
		return lease.ErrClosed
	}
	return nil
}

// Acquire tries until there is a hold, ctx or the client's life ends, or an error is final. Errors tell the place and
// the time waited ([lease.WaitError]), but for [lease.ErrBusy], which comes as it is.
func (c Call) Acquire(ctx context.Context) (*lease.Lease, error) {
	begun, place := time.Now(), -1
	var last error
	for tries := 0; ; tries++ {
		held, err := c.Once(&place)
		if err == nil {
			return held, nil
		}
		switch {
		case c.Life.Err() != nil:
			return nil, WaitError(place, begun, last, lease.ErrClosed)
		case ctx.Err() != nil:
			if c.Trouble != nil {
				if trouble := c.Trouble(); trouble != nil {
					last = trouble
				}
			}
			return nil, WaitError(place, begun, last, retry.WhyEnded(ctx))
		case errors.Is(err, lease.ErrBusy):
			return nil, err
		case !c.Again(err):
			return nil, WaitError(place, begun, nil, err)
		}
		last = err
		switch {
		case c.rest(ctx, retry.Backoff(tries)) == nil:
		case c.Life.Err() != nil:
			return nil, WaitError(place, begun, last, lease.ErrClosed)
		default:
			return nil, WaitError(place, begun, last, retry.WhyEnded(ctx))
		}
		if c.Between != nil {
			c.Between(err)
		}
	}
}

// rest pauses, unless the call or its client ends first.
func (c Call) rest(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Life, cancel)()
	return retry.Rest(ctx, d)
}

// An Opening is a session that is asked for. All calls that need one wait for the same.
type Opening[S any] struct {
	done    chan struct{} // closed when the fields below are set
	session S
	err     error
}

// NewOpening makes one that somebody is to settle.
func NewOpening[S any]() *Opening[S] { return &Opening[S]{done: make(chan struct{})} }

// Settle tells all who wait, once.
func (o *Opening[S]) Settle(session S, err error) {
	o.session, o.err = session, err
	close(o.done)
}

// Wait returns what it was settled with, or why ctx ended before.
func (o *Opening[S]) Wait(ctx context.Context) (session S, err error) {
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return session, retry.WhyEnded(ctx)
	}
}

// A Grip is the hold of a ticket: the lease, and what ends it at its limits. The zero one holds nothing. The caller
// sees to it that its methods do not run at the same time.
type Grip struct {
	// Keeper is of the lease; nil before there is one.
	Keeper *lease.Keeper
	stall  *lease.Stall
	ends   time.Time // by the maximum hold
	limit  *time.Timer
}

// never is later than any hold lasts.
const never = 100 * 365 * 24 * time.Hour

// Take makes the lease. When one of its limits may be over, over is called on a goroutine of its own: it is to call
// [Grip.Over].
func (g *Grip) Take(ctx context.Context, how lease.Terms, limits Limits, over func()) *lease.Lease {
	how.Stall = lease.NewStall(limits.Stall)
	g.Keeper, g.stall = lease.New(Hold(ctx, how)), how.Stall
	if limits != (Limits{}) {
		g.ends = time.Now().Add(cmp.Or(limits.Hold, never))
		g.limit = time.AfterFunc(time.Until(g.stall.Earlier(g.ends)), over)
	}
	return g.Keeper.Lease()
}

// Over reports whether the hold has ended by a limit, or is lost otherwise, and ends it if one is over now. If none is,
// as there was progress, over of Take is called again when that may be so. A hold that was released is not over.
func (g *Grip) Over() bool {
	switch cause := g.cause(); {
	case errors.Is(cause, lease.ErrReleased):
		return false
	case cause == nil && time.Now().Before(g.ends):
		g.limit.Reset(time.Until(g.stall.Earlier(g.ends)))
		return false
	}
	g.Lose(lease.ErrMaxHold) // If it has not stalled.
	return true
}

// cause is why the hold has ended, nil if it has not: the lease looks at the clock of its progress by itself.
func (g *Grip) cause() error {
	ctx := g.Keeper.Lease().Context()
	_ = ctx.Err()
	return context.Cause(ctx)
}

// Lose ends the hold, if there is one.
func (g *Grip) Lose(cause error) {
	if g.Keeper != nil {
		g.Keeper.Lose(cause)
	}
	g.loosen()
}

// Ended is why the hold has ended: [lease.ErrReleased], or the loss. Its maximum is of no interest any more.
func (g *Grip) Ended() error {
	g.loosen()
	return context.Cause(g.Keeper.Lease().Context())
}

func (g *Grip) loosen() {
	if g.limit != nil {
		g.limit.Stop()
	}
}
