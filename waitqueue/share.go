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
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A hold can be entered again, by a call whose context comes from it. Each entry is a lease of its own with the hold's
// token. The hold ends when the last of them is released, and a loss ends them all. Entering and leaving concern this
// process alone: the server has one hold, and learns the number of entries with the renewals.

// Nesting is the meaning of a call whose context comes from a hold of the same name.
type Nesting int

const (
	// Deadlocks: the call would wait for itself. It fails with [lease.ErrDeadlock].
	Deadlocks Nesting = iota
	// Independent: the call has nothing to do with that hold.
	Independent
	// Reenters: the call enters that hold once more.
	Reenters
)

// MaxEntries bounds how often one hold is entered: more is a recursion without end.
const MaxEntries = core.MaxEntries

// A share is one lease on a hold.
type share struct {
	hold   *hold
	keeper *keeper.Keeper
	kind   byte
	over   bool // released; only of the first, which stays where it is
	at     int  // among the others, of any but the first
}

// cause is why its context has ended; nil if it has not.
func (sh *share) cause() error { return context.Cause(sh.keeper.Context()) }

// isReleased reports whether its release has begun.
func (sh *share) isReleased() bool { return errors.Is(sh.cause(), lease.ErrReleased) }

// open goes through the leases on the hold that are not released.
func (h *hold) open(yield func(*share) bool) {
	if h.first.hold != nil && !h.first.over && !yield(&h.first) {
		return
	}
	for _, sh := range h.more {
		if !yield(sh) {
			return
		}
	}
}

// extend moves the end of all leases, and reports whether there was time for that.
func (h *hold) extend(u keeper.Until) bool {
	for sh := range h.open {
		if !sh.keeper.Extend(u) && !sh.isReleased() {
			return false
		}
	}
	return true
}

// overdue reports whether all leases have ended.
func (h *hold) overdue() bool {
	for sh := range h.open {
		if !sh.keeper.Overdue() {
			return false
		}
	}
	return true
}

// releasing reports whether the last owner has begun to release: then the release does the rest.
func (h *hold) releasing() bool {
	for sh := range h.open {
		if !sh.isReleased() {
			return false
		}
	}
	return true
}

// WithOwner returns a context on whose behalf several calls may enter one hold, as if each had the context of
// the others' lease. It counts within one client, for primitives that can be entered again.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

type ownerKey struct{}

// ownerOf is the owner that a context names; empty if it names none.
func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

// grant makes a lease on the hold. Both mu and act are held.
func (h *hold) grant(ctx context.Context, sh *share, q *binding, waited time.Duration) *lease.Lease {
	sh.hold, sh.kind, sh.keeper = h, q.asks.Kind, &h.lease
	if sh != &h.first {
		sh.keeper, sh.at, h.more = new(keeper.Keeper), len(h.more), append(h.more, sh)
	}
	return (*lease.Lease)(sh.keeper.Init(ctx, keeper.Terms{
		Name: names.Label(q.name), Token: h.Token, Until: keeper.Until(h.Lasts), Waited: waited,
		Engine: sh, Key: q.held, Shared: q.terms.Shared, Stall: h.stall, Previous: core.Previous(&h.Hold, q.tellsNothing()),
	}))
}

// leave takes a lease off that is not the last one. Both mu and act are held.
func (h *hold) leave(sh *share) {
	if sh == &h.first {
		sh.over = true
		return
	}
	last := len(h.more) - 1
	h.more[sh.at], h.more[last].at = h.more[last], sh.at
	h.more[last] = nil
	h.more = h.more[:last]
}

// within returns what a call gets, or why it fails, if its context comes from a hold of the same name; nothing if it has
// to ask.
func (q Queue) within(ctx context.Context) (*lease.Lease, error) {
	switch q.nesting {
	case Deadlocks:
		if k, ok := ctx.Value(q.held).(*keeper.Keeper); ok && !k.Overdue() {
			return nil, lease.ErrDeadlock
		}
	case Reenters:
		if sh := q.shareIn(ctx); sh != nil {
			return sh.hold.ticket.entry.reenter(ctx, sh.hold, q.binding)
		}
	}
	return nil, nil
}

// shareOf returns the share of a lease on the name, nil if the lease is of another name.
func (q Queue) shareOf(l *lease.Lease) *share {
	k := (*keeper.Keeper)(l)
	if l == nil || k.Context().Value(q.held) != k {
		return nil
	}
	sh, _ := k.Engine().(*share)
	return sh
}

// shareBehind returns the share behind a lease, if it is one of this package.
func shareBehind(l *lease.Lease) (*share, bool) {
	sh, ok := (*keeper.Keeper)(l).Engine().(*share)
	return sh, ok
}

// shareIn returns the share that a context comes from, or a share of the owner that it names.
func (q Queue) shareIn(ctx context.Context) *share {
	if k, ok := ctx.Value(q.held).(*keeper.Keeper); ok {
		if sh, ok := k.Engine().(*share); ok {
			return sh
		}
	}
	owner := ownerOf(ctx)
	if owner == "" {
		return nil
	}
	e, _ := q.client.entryOf(q.keys.Entry).(*lockEntry)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.lock.HeldBy(owner); h != nil {
		return &ticketOf(&h.Ticket.Call).hold.first
	}
	return nil
}

// reenter enters a hold once more. It returns nothing where the hold has ended.
func (e *lockEntry) reenter(ctx context.Context, h *hold, q *binding) (l *lease.Lease, err error) {
	x := e.begin()
	entered, err := e.lock.Enter(&x.Input, &h.Hold, q.asks.Kind, h.leases())
	e.act.Lock()
	if entered {
		l = h.grant(ctx, &share{}, q, 0)
	}
	e.endActing(x)
	return l, err
}

// ReleaseHold is what Release of a lease does, once. The lease's context has ended.
func (sh *share) ReleaseHold(ctx context.Context) error {
	ended := ctx.Err() != nil
	return sh.finish(ctx, sh.takeOff(ended), ended)
}

// finish sends what a release has to send; the caller must not hold mu.
func (sh *share) finish(ctx context.Context, todo remainder, ended bool) error {
	h := sh.hold
	switch {
	case todo.last:
		err := h.letGo(ctx, ended)
		if !ended { // Else it is told when the end is answered.
			h.released(todo.held, err)
		}
		return err
	case todo.lower:
		err := h.lower(ctx)
		switch {
		case errors.Is(err, lease.ErrReleased):
			return nil
		case err != nil && !errors.Is(err, lease.ErrLost):
			h.lowerAlone() // What is left of the hold may last for long.
			return core.Unconfirmed(err)
		}
		return err
	}
	return todo.gone
}

// A remainder is the part of a release that is done once mu is free.
type remainder struct {
	gone  error         // nothing: the hold was lost
	last  bool          // to end the hold
	held  time.Duration // for how long it was held then
	lower bool          // to tell the server that no lease for writing is left
}

// takeOff takes a lease off its hold, or begins its release; ended says that nobody can wait for the answer.
func (sh *share) takeOff(ended bool) (todo remainder) {
	h := sh.hold
	e := h.ticket.entry
	x := e.begin()
	cause := sh.cause()
	todo.last, todo.lower, todo.gone = e.lock.Leave(&x.Input, &h.Hold, sh.kind, cause, errors.Is(cause, lease.ErrReleased))
	e.act.Lock()
	switch {
	case todo.last:
		todo.held = h.held()
		h.beginRelease(x)
		if ended { // Nobody can wait for the answer, which is no reason to keep the lock.
			d := &owned{}
			d.set(&e.entry, &d.Release)
			e.lock.Unlock(&x.Input, &h.Hold, &d.Release, todo.held)
			d.Owner = &d.sender
		}
	case todo.gone == nil:
		h.leave(sh)
	}
	e.endActing(x)
	return todo
}

// beginRelease begins the release of the hold. act is held.
func (h *hold) beginRelease(x *turn) {
	h.ticket.entry.lock.BeginRelease(&x.Input, &h.Hold, h.teller.Note())
}

// let ends the lease as released if its release only has to be sent, and leaves that to the caller. This is so if it is
// the only lease on its hold, and has not ended. Else it reports false, and [lease.Lease.Release] has to release it. All
// of that is checked under one lock, so no call enters the hold in between.
func (sh *share) let() (let bool) {
	h := sh.hold
	e := h.ticket.entry
	x := e.begin()
	// A deadline that has passed is a loss, however late anybody looks.
	if e.lock.MayLet(&h.Hold, core.Leases{Over: sh.keeper.Overdue()}) && !e.client.servers.Doubtful() {
		sh.keeper.End()
		if let = sh.isReleased(); let { // Else the deadline has passed just now.
			e.act.Lock()
			h.beginRelease(x)
			e.endActing(x)
			return true
		}
	}
	e.end(x)
	return false
}

// lower tells the server that a write hold is now only for reading, and lets the waiting readers go on. A hold that the
// server does not know any more is lost, or was released meanwhile: that is [lease.ErrReleased].
func (h *hold) lower(ctx context.Context) error {
	e := h.ticket.entry
	_, t, err := h.ticket.queue.call(ctx, e.keys.All(), lua.Downgrade.Script, 0, conn.Mendable, func(a Attempt) []string {
		return []string{h.ticket.Text, strconv.FormatUint(h.Token, 10), a.Floor, a.Counted, a.NotAfter}
	})
	r, strange := lua.Downgrade.Of(&t)
	if err = cmp.Or(err, strange); err != nil {
		return err
	}
	x := e.begin()
	defer e.end(x)
	return e.lock.Lowered(&x.Input, &h.Hold, &r)
}

// Downgrade turns a lease for writing into one for reading. If no lease for writing is left on its hold, other readers may
// then hold too. After an error that wraps [lease.ErrOutcomeUnknown] or the context's error the lease is for reading, but
// the server may still keep other readers out, until Downgrade is called again or the lease ends.
func (q Queue) Downgrade(ctx context.Context, l *lease.Lease) error {
	calls.Given(ctx)
	if q.err != nil {
		return q.err
	}
	sh := q.shareOf(l)
	if sh == nil {
		return fmt.Errorf("%w: the lease is one of another lock", lease.ErrNotHeld)
	}
	h := sh.hold
	e := h.ticket.entry
	e.mu.Lock()
	lower, holds := false, l.Context().Err() == nil
	if holds {
		if lower, holds = e.lock.Downgrade(&h.Hold, sh.kind); holds && sh.kind == wire.Write {
			sh.kind = wire.Read
		}
	}
	e.mu.Unlock()
	switch {
	case !holds:
		return context.Cause(l.Context())
	case lower:
		return h.lower(ctx)
	}
	return nil
}

// HoldCount returns how many leases of a kind there are on the hold that ctx comes from or whose owner it
// names; of kind 0, how many of any kind.
func (q Queue) HoldCount(ctx context.Context, kind byte) int {
	calls.Given(ctx)
	if q.err != nil {
		return 0
	}
	sh := q.shareIn(ctx)
	if sh == nil {
		return 0
	}
	h := sh.hold
	h.ticket.entry.mu.Lock()
	defer h.ticket.entry.mu.Unlock()
	if !h.ticket.Held() || h.overdue() {
		return 0
	}
	return h.Count(kind)
}
