package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A Call is one for a lock, from its first attempt to the hold or the error. An attempt is a ticket: where one is lost
// by no fault of the call, the next begins at the end of the line.
type Call struct {
	Line  *Line
	Watch *Watch
	// Life is the client's, and ends with its Close.
	Life context.Context
	// Once is one attempt of a call that began then. It keeps up to date how far that has come.
	Once func(ctx context.Context, begun time.Time, at *Place) (*lease.Lease, error)
	// Again reports whether there may be another after an error.
	Again func(error) bool
	// Trouble, if not nil, is why the servers cannot be asked, as far as is known.
	Trouble func() error
	// Between, if not nil, is called with the error of an attempt before the next.
	Between func(context.Context, error)
}

// A Place is how far a call has come.
type Place struct {
	Ahead    int  // how many are before it, -1 as long as that is not known
	Answered bool // the servers have answered the present attempt
}

// Acquire tries until there is a hold, ctx or the client's life ends, or an error is final. Errors tell the place and
// the time waited ([lease.WaitError]), except [lease.ErrBusy], which comes as it is.
func (c Call) Acquire(ctx context.Context) (*lease.Lease, error) {
	if err := c.Line.Usable(ctx, c.Life); err != nil {
		return nil, err
	}
	ctx, free, err := calls.InTime(ctx, c.Line.MaxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	return c.Watch.Acquire(ctx, c.Line.Kind, c.Line.Name, c.insist)
}

func (c Call) insist(ctx context.Context) (*lease.Lease, error) {
	begun, at := time.Now(), Place{Ahead: -1}
	var last error
	for tries := 0; ; tries++ {
		at.Answered = false
		held, err := c.Once(ctx, begun, &at)
		switch {
		case err == nil:
			return held, nil
		case c.Life.Err() != nil: // The rest is none.
		case ctx.Err() != nil && at.Answered:
			last = nil
		case ctx.Err() != nil:
		case errors.Is(err, lease.ErrBusy):
			return nil, err
		case !c.Again(err):
			return nil, WaitError(at.Ahead, begun, nil, err)
		default:
			last = err
		}
		if Rest(ctx, c.Life, calls.Backoff(tries)) != nil {
			if c.Life.Err() != nil {
				return nil, WaitError(at.Ahead, begun, last, lease.ErrClosed)
			}
			trouble := c.trouble()
			return nil, &lease.WaitError{
				Place: at.Ahead, Waited: time.Since(begun), Last: cmp.Or(trouble, last), Err: calls.WhyEnded(ctx),
				Unanswered: trouble != nil || !at.Answered,
			}
		}
		if c.Between != nil {
			c.Between(ctx, err)
		}
	}
}

func (c Call) trouble() error {
	if c.Trouble == nil {
		return nil
	}
	return c.Trouble()
}

// Rest waits for d, or less if the first of two contexts ends, and then returns why.
func Rest(ctx, other context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(other, cancel)()
	return calls.Rest(ctx, d)
}

// A Grip is the hold of a ticket: the lease, and what ends it at its limits. The zero one holds nothing. The caller
// sees to it that its methods do not run at the same time.
type Grip struct {
	// Keeper is of the lease; nil before there is one.
	Keeper *keeper.Keeper
	stall  *keeper.Stall
	ends   time.Time     // by the maximum hold
	slept  time.Duration // what keeper.Slept said when that began
	limit  *time.Timer
}

// never is later than any hold lasts.
const never = 100 * 365 * 24 * time.Hour

// Take makes the lease. When one of its limits may be over, over is called on a goroutine of its own: it is to call
// [Grip.Over].
func (g *Grip) Take(ctx context.Context, how keeper.Terms, limits Limits, over func()) *lease.Lease {
	how.Stall = keeper.NewStall(limits.Stall)
	g.slept = keeper.Slept() // First: what is slept from here on must show.
	g.ends = time.Now().Add(cmp.Or(limits.Hold, never))
	how.Until = g.within(how.Until)
	g.Keeper, g.stall = keeper.New(Hold(ctx, how)), how.Stall
	if limits != (Limits{}) {
		g.limit = time.AfterFunc(time.Until(g.stall.Earlier(g.ends)), over)
	}
	return (*lease.Lease)(g.Keeper)
}

// within is an end that is no later than the maximum hold.
func (g *Grip) within(u keeper.Until) keeper.Until {
	if g.ends.Add(g.slept).Before(u.Deadline.Add(u.Slept)) { // By a clock that goes on while the machine sleeps.
		return keeper.Until{Deadline: g.ends, Slept: g.slept, Cause: lease.ErrMaxHold}
	}
	return u
}

// Extend gives the hold more time, within its maximum, and reports whether it has not ended.
func (g *Grip) Extend(u keeper.Until) bool { return g.Keeper.Extend(g.within(u)) }

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
	ctx := g.Keeper.Context()
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
	return context.Cause(g.Keeper.Context())
}

func (g *Grip) loosen() {
	if g.limit != nil {
		g.limit.Stop()
	}
}
