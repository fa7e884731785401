package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Calls of scripts that wait for nothing, and have no ticket.

// An Attempt is what scripts are told of each sending of a request.
type Attempt struct {
	NotAfter string // server µs after which it changes nothing (R7)
	Floor    string // the highest token that the client has seen
	Counted  string // 1 if subscribers can be counted
}

// Call runs a script that waits for nothing, and repeats it until it is answered. A request that changes something has
// its effect once, however often it is sent, and none after Call has returned its answer. args gets what scripts are told
// of an attempt. Call gives up when ctx ends, and after limit if that is not 0. Then the error wraps
// [lease.ErrOutcomeUnknown] if the script may have run, or may run still; it no longer can once the next call of this
// client about the name has returned.
func Call[R any](ctx context.Context, q Queue, request lua.Request[R], limit time.Duration, args func(Attempt) []string) (R, error) {
	var t wire.Tuple
	err := q.settle(ctx)
	if err == nil {
		_, t, err = q.call(ctx, q.keys.All(), request.Script, limit, conn.Transient, args)
	}
	r, strange := request.Of(&t)
	return r, cmp.Or(err, strange)
}

// settle waits until no request about the name that this client has given up can run any more.
func (q *binding) settle(ctx context.Context) error {
	if q.err != nil {
		return q.err
	}
	if q.client.identity.Replaced() {
		return lease.ErrReplaced
	}
	return q.client.servers.Overtake(ctx, q.keys.Lock)
}

// call is Call with the keys that the script wants, and the errors after which a script that may run twice is sent again.
// It also returns the last attempt.
func (q *binding) call(
	ctx context.Context, keys []string, script *lua.Script, limit time.Duration, passes func(error) bool, args func(Attempt) []string,
) (conn.Attempt, wire.Tuple, error) {
	var a conn.Attempt
	var r wire.Tuple
	calls.Given(ctx)
	switch {
	case q.err != nil:
		return a, r, q.err
	case ctx.Err() != nil:
		return a, r, calls.WhyEnded(ctx)
	case q.client.servers.Over():
		return a, r, lease.ErrClosed
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	last, ends := ctx.Deadline()
	if !ends {
		last = time.Now().Add(lease.MaxLease)
	}
	c := q.client
	each := func(a conn.Attempt) []string { return args(Attempt{a.NotAfter, c.highest(), c.servers.Counted()}) }
	late := func(n *conn.Node, a conn.Attempt, r wire.Head) { c.observeHeader(n, a, q.proto, q.name, r, 0) }
	var err error
	if script.Plain() != nil {
		a, r, err = c.servers.Once(ctx, script, keys, last, each, late)
	} else {
		a, r, err = c.servers.Repeat(ctx, script, keys, passes, each, late)
	}
	if err == nil {
		q.applyReply(a, &r)
	}
	return a, r, err
}

// applyReply takes in a reply to a request without a ticket.
func (q *binding) applyReply(a conn.Attempt, r *wire.Tuple) {
	c := q.client
	if reply := q.proto.Reply(r); reply != nil {
		if e, ok := c.entryOf(q.keys.Entry).(interface {
			applyReply(conn.Attempt, *wire.Reply)
		}); ok {
			e.applyReply(a, reply)
			return
		}
	}
	c.observeHeader(c.servers.NodeOf(q.keys.Lock), a, q.proto, q.name, r.Head(), q.proto.Token(r))
}

// Spawn runs a function in the background, and the client's Close waits for it; the error is why it does not.
func (q Queue) Spawn(f func()) error {
	if q.err != nil {
		return q.err
	}
	if !q.client.servers.Spawn(f) {
		return lease.ErrClosed
	}
	return nil
}

// A Holding is what a script is told of the hold that it runs for.
type Holding struct {
	Ticket string
	Token  string
	Who    string // the client, for operators
	Number string // of the request: later ones of the same hold have higher ones
}

// CallHeld runs a script that only a holder may run, as [Call] does, with the keys of a renewal. It gives up when l ends,
// with its cause, and after limit if that is not 0. Without a limit somebody waits for l: then it also repeats what the
// server refuses until it is mended. If the server says that l does not hold any more, l is lost at once, and the error
// is why. The lease of another name is [lease.ErrNotHeld].
func (q Queue) CallHeld(ctx context.Context, l *lease.Lease, request lua.Request[wire.Head], limit time.Duration, args func(Holding, Attempt) []string) (wire.Head, error) {
	calls.Given(ctx)
	if err := q.settle(ctx); err != nil {
		return wire.Head{}, err
	}
	sh := q.shareOf(l)
	if sh == nil {
		return wire.Head{}, fmt.Errorf("%w: the lease is one of another name", lease.ErrNotHeld)
	}
	if l.Context().Err() != nil {
		return wire.Head{}, context.Cause(l.Context())
	}
	c, h, e := q.client, sh.hold, sh.hold.ticket.entry
	x := Holding{
		Ticket: h.ticket.Text, Token: strconv.FormatUint(h.Token, 10), Who: c.who,
		Number: strconv.FormatUint(c.numbers.Add(1), 10),
	}
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	passes := conn.Transient
	if limit == 0 {
		passes = conn.Mendable
	}
	_, t, err := q.call(during, q.keys.Renewed(), request.Script, limit, passes, func(a Attempt) []string { return args(x, a) })
	r := t.Head()
	switch {
	case err != nil && ctx.Err() == nil && during.Err() != nil: // What ended is the hold.
		return r, conn.Unsure(errors.Is(err, lease.ErrOutcomeUnknown), context.Cause(during))
	case err != nil || r.Status != wire.Refused:
		return r, err
	}
	turn := e.begin()
	defer e.end(turn)
	if cause := context.Cause(l.Context()); cause != nil {
		return r, cause // It has ended meanwhile.
	}
	return r, e.lock.Refuse(&turn.Input, &h.Hold, &r)
}
