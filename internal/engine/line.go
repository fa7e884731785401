package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
)

// Limits end a hold though its client renews it; 0 is no such end.
type Limits struct {
	Hold  time.Duration // since the grant
	Stall time.Duration // since the last Progress
}

// Check says why a hold cannot have such ends.
func (l Limits) Check(most time.Duration) error {
	switch {
	case l.Hold < 0 || l.Hold > most:
		return fmt.Errorf("%w: WithMaxHold: a maximum hold of %v must be up to %v", lease.ErrInvalid, l.Hold, most)
	case l.Stall != 0 && (l.Stall < lease.MinLease || l.Stall > most):
		return fmt.Errorf("%w: WithMaxStall: a time without progress of %v must be from %v to %v", lease.ErrInvalid, l.Stall, lease.MinLease, most)
	}
	return nil
}

// Terms are what the options of a name say.
type Terms struct {
	Limits
	MaxWait time.Duration // 0 is as long as the context of a call lasts
}

// A Line is one name as one client sees it, and its waiters in their order. It is immutable.
type Line struct {
	Terms
	Package string // that is named in errors
	Kind    string // for the observer
	Name    string
	Key     any   // by which the context of a hold tells its lease
	Err     error // why it cannot be used
}

// NewLine names a line. Refused are further characters that the engine cannot take, in addition to those refused in every
// name; most is the longest lease.
func NewLine[O ~func(*Terms)](pkg, kind, name string, refused func(rune) bool, most time.Duration, opts []O) Line {
	l := Line{Package: pkg, Kind: strings.Replace(kind, "mutex", "lock", 1), Name: name, Err: names.Check(name, refused)}
	for _, o := range opts {
		o(&l.Terms)
	}
	if l.Err == nil {
		l.Err = l.Check(most)
	}
	return l
}

// Label is the name for messages.
func (l *Line) Label() string { return names.Label(l.Name) }

// Failed wraps err with the call and the name that failed. Nil stays nil.
func (l *Line) Failed(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %q: %w", l.Package, call, l.Label(), err)
}

// Own reports whether ctx comes from a hold of the name that lasts.
func (l *Line) Own(ctx context.Context) bool {
	calls.Given(ctx)
	held, ok := ctx.Value(l.Key).(*keeper.Keeper)
	return ok && !held.Overdue()
}

// Usable is why a call fails before anything is sent: what is wrong with the name, that ctx has ended, or the client's
// life.
func (l *Line) Usable(ctx, life context.Context) error {
	calls.Given(ctx)
	switch {
	case l.Err != nil:
		return l.Err
	case ctx.Err() != nil:
		return WaitError(-1, time.Now(), nil, calls.WhyEnded(ctx))
	case life.Err() != nil:
		return lease.ErrClosed
	}
	return nil
}
