package lease

import (
	"context"
	"errors"
	"fmt"
)

// A Giver is an engine's side of a hold that may go to another process: see [Terms].
type Giver interface {
	// Gives reports whether this hold can.
	Gives() bool
	// HandOver puts the hold in transit, and returns the text by which it is adopted. It is called once, instead of Release,
	// when the lease has ended.
	HandOver(ctx context.Context) (text string, err error)
}

// HandOver gives the hold to whoever adopts it by the text that it returns, in another process: see fairlock.Adopt. It takes
// one round trip. First the lease's context ends, with [ErrReleased]; then the hold is in transit, nobody's, for one grant
// lease of the client; and unless it is adopted by then, the queue is served.
//
// The text is worth the lock: pass it on by a way that others cannot read, and do not log it. It is one word, of letters,
// digits and the signs . - _, and good once.
//
// With an error that wraps [ErrUnconfirmed] the text is returned too: nobody knows whether the hold is in transit. It is
// tried again until the lease is over, so the text may be good, or become so. After any other error there is no text, and
// nothing to adopt: [ErrLost], [ErrReleased], or the context's error if ctx has ended before, or [errors.ErrUnsupported],
// and then nothing has changed. Only a lease of package fairlock can be handed over, without WithCohort and WithKeep. After HandOver,
// Unlock does nothing and Release returns ErrReleased.
//
// HandOver panics without a context, and then nothing has changed.
func (l *Lease) HandOver(ctx context.Context) (text string, err error) {
	if ctx == nil {
		panic("lease: HandOver: nil context")
	}
	giver, ok := l.terms.Engine.(Giver)
	switch {
	case !ok || !giver.Gives():
		return "", l.handing(fmt.Errorf("%w: only a lease of package fairlock can be, without WithCohort and WithKeep", errors.ErrUnsupported))
	case ctx.Err() != nil:
		return "", l.handing(fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx)))
	}
	ctx, free := Outlasting(ctx, l)
	defer free()
	first := l.give(errByHandOver)
	if cause := context.Cause(l.inner); !first || !errors.Is(cause, ErrReleased) {
		if first { // It is lost: its release is sent as for any other.
			_ = l.terms.Release(ctx)
		}
		return "", l.handing(cause)
	}
	text, err = giver.HandOver(ctx)
	return text, l.handing(err)
}

// handing is the error of a hand-over, with the name of the hold.
func (l *Lease) handing(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return l.loss(err)
	}
	return fmt.Errorf("lease: hand over %q: %w", l.terms.Name, err)
}
