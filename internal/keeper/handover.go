package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// A Giver is an engine's side of a hold that may go to another process: see [Terms].
type Giver interface {
	// Gives reports whether this hold can.
	Gives() bool
	// HandOver puts the hold in transit, and returns the text by which it is adopted. It is called once, instead of Release,
	// when the lease has ended.
	HandOver(ctx context.Context) (text string, err error)
}

// HandOver puts the hold in transit, and returns the text by which it is adopted.
func (k *Keeper) HandOver(ctx context.Context) (text string, err error) {
	if ctx == nil {
		panic("lease: HandOver: nil context")
	}
	giver, ok := k.terms.Engine.(Giver)
	switch {
	case !ok || !giver.Gives():
		return "", k.handing(fmt.Errorf("%w: only a lease of package fairlock can be, without WithCohort and WithKeep", errors.ErrUnsupported))
	case ctx.Err() != nil:
		return "", k.handing(fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx)))
	}
	ctx, free := Outlasting(ctx, k)
	defer free()
	first := k.give(errByHandOver)
	if cause := context.Cause(k.inner); !first || !errors.Is(cause, reason.ErrReleased) {
		if first { // It is lost: its end is sent as that of any other.
			_ = k.terms.release(ctx)
		}
		return "", k.handing(cause)
	}
	text, err = giver.HandOver(ctx)
	return text, k.handing(err)
}

// handing is the error of a hand-over, with the name of the hold.
func (k *Keeper) handing(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, reason.ErrLost):
		return k.loss(err)
	}
	return fmt.Errorf("lease: hand over %q: %w", k.terms.Name, err)
}
