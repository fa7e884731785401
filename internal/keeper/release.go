package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// By which call a hold was released.
var (
	errByRelease  = fmt.Errorf("%w by Release", reason.ErrReleased)
	errByUnlock   = fmt.Errorf("%w by Unlock", reason.ErrReleased)
	errByDo       = fmt.Errorf("%w at the end of Do", reason.ErrReleased)
	errByHandOver = fmt.Errorf("%w by HandOver", reason.ErrReleased)
)

// Release ends the lease's context, gives the hold back and waits for the answer.
func (k *Keeper) Release(ctx context.Context) error {
	if ctx == nil {
		panic("lease: Release: nil context")
	}
	ctx, free := Outlasting(ctx, k)
	defer free()
	return k.release(ctx, errByRelease)
}

// Outlasting returns a context for the release of leases. It is ctx, unless that comes from one of the holds, also
// by way of another hold: such a context ends before anything is sent. Then it lasts until the deadline of ctx or, without
// one, until the leases are over. A nil Keeper is left out. Should ctx panic, nothing has changed.
func Outlasting(ctx context.Context, leases ...*Keeper) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	until, bounded := ctx.Deadline()
	within := false
	for _, k := range leases {
		if k == nil {
			continue
		}
		within = within || ctx.Value(withinKey{k}) != nil
		if d := k.Until().Deadline; !bounded && d.After(until) {
			until = d
		}
	}
	if !within {
		return ctx, func() {}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}

// release gives the hold back and waits for the server's word.
func (k *Keeper) release(ctx context.Context, by error) error {
	first := k.give(by)
	cause := context.Cause(k.inner)
	if !first {
		return k.named(cause)
	}
	if err := k.terms.Release(ctx); errors.Is(cause, reason.ErrReleased) {
		return k.named(err)
	}
	return cause
}

// Unlock ends the lease's context and gives the hold back without waiting for the answer.
func (k *Keeper) Unlock() {
	switch {
	case k == nil || !k.give(errByUnlock):
	case k.terms.Unlock != nil:
		k.terms.Unlock()
	default:
		_ = k.terms.Release(k.inner) // Which has ended: nobody waits for the answer.
	}
}

// give ends the context, and reports whether the hold is the caller's to give back: the first one's.
func (k *Keeper) give(by error) (first bool) {
	k.err() // A deadline that has passed is a loss, however late anybody looks.
	k.cancel(by)
	k.mu.Lock()
	defer k.mu.Unlock()
	first, k.given = !k.given, true
	return first
}

// named is the error of a release, with the name of the hold.
func (k *Keeper) named(err error) error {
	switch {
	case err == nil || k.terms.Name == "":
		return err
	case errors.Is(err, reason.ErrLost):
		return k.loss(err)
	}
	var part *unreleased
	if errors.As(err, &part) {
		return err // It names the part of the hold that failed.
	}
	return &unreleased{k.terms.Name, err}
}

// Named is the error of a release that the engine does without [Lease.Release], with the name of the hold.
func (k *Keeper) Named(err error) error { return k.named(err) }

// unreleased is the error of a release that failed.
type unreleased struct {
	name  string
	cause error
}

func (e *unreleased) Error() string { return fmt.Sprintf("lease: release %q: %v", e.name, e.cause) }
func (e *unreleased) Unwrap() error { return e.cause }
