package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Holding is what a script is told of the hold for which it runs.
type Holding struct {
	Ticket string
	Token  string
	Who    string // the client, for operators
	Number string // of the request: later ones of the same hold have higher ones
}

// CallHeld runs a script that only a holder may run, as [Call] does, with the keys of a renewal. It gives up when
// l ends, with the cause of that. If the server says that l does not hold any more, l is lost at once, and the error is
// why. The lease of another name is [lease.ErrNotHeld].
func (q Queue) CallHeld(ctx context.Context, l *lease.Lease, request lua.Request[lua.Head], limit time.Duration, args func(Holding, Attempt) []string) (lua.Head, error) {
	retry.Given(ctx)
	if q.err != nil {
		return lua.Head{}, q.err
	}
	sh := q.shareOf(l)
	if sh == nil {
		return lua.Head{}, fmt.Errorf("%w: the lease is one of another name", lease.ErrNotHeld)
	}
	if l.Context().Err() != nil {
		return lua.Head{}, context.Cause(l.Context())
	}
	c, h, s := q.client, sh.hold, sh.hold.ticket.site
	x := Holding{
		Ticket: h.ticket.text, Token: strconv.FormatUint(h.token, 10), Who: c.who,
		Number: strconv.FormatUint(c.numbers.Add(1), 10),
	}
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	t, err := q.call(during, q.keys.Renewed(), request.Script, limit, func(a Attempt) []string { return args(x, a) })
	r := t.Head()
	switch {
	case err != nil && ctx.Err() == nil && during.Err() != nil: // What ended is the hold.
		return r, unsureOf(errors.Is(err, lease.ErrOutcomeUnknown), context.Cause(during))
	case err != nil || r.Status != lua.Refused:
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := context.Cause(l.Context()); cause != nil {
		return r, cause // It has ended meanwhile.
	}
	cause := h.lossOf(&r)
	h.loseLocked(cause)
	return r, cause
}
