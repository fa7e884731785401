package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/shares"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A hold can be entered again, by a call whose context comes from it. Each entry is a lease of its own with
// the hold's token; the hold ends when the last of them is released, and a loss ends them all. To enter and
// to leave is a matter of this process alone: what the server has is one hold, and it is told the number of
// entries with the renewals.

// Nesting says what a call means whose context comes from a hold of the same name.
type Nesting int

const (
	// Deadlocks: the call would wait for itself. It fails with [lease.ErrDeadlock].
	Deadlocks Nesting = iota
	// Independent: the call has nothing to do with that hold.
	Independent
	// Reenters: the call enters that hold once more.
	Reenters
)

const (
	// MaxEntries bounds how often one hold is entered: more is a recursion without end.
	MaxEntries = 1<<16 - 1
	// entriesPause is how long a change of the number of entries waits for others before the server is told.
	entriesPause = 50 * time.Millisecond
)

// A share is one lease on a hold. The lock of the site guards it.
type share struct {
	shares.Share
	hold *hold
}

// WithOwner returns a context on whose behalf several calls may enter one hold, as if each had the context of
// the others' lease. It counts within one client, for primitives that can be entered again.
func WithOwner(ctx context.Context, owner string) context.Context { return shares.Owned(ctx, owner) }

// grantLocked makes a lease on the hold.
func (h *hold) grantLocked(ctx context.Context, sh *share, q *binding, waited time.Duration) *lease.Lease {
	sh.hold = h
	sh.Keeper = lease.New(ctx, lease.Terms{
		Name: names.Label(q.name), Token: h.token, Until: h.lasts, Waited: waited, Release: sh.release, Unlock: sh.unlock,
		Engine: sh, Key: q.held, Shared: q.terms.Shared, Stall: h.stall,
	})
	h.leases.Add(&sh.Share, q.kind)
	return sh.Keeper.Lease()
}

// extendLocked moves the end of all leases, and reports whether there was time for that: where one has run out
// meanwhile, the hold is lost with all of them.
func (h *hold) extendLocked(u lease.Until) bool {
	h.lasts = u
	return h.leases.Extend(u)
}

// ownLocked notes on whose behalf a ticket holds, and lets the calls of the same owner enter.
func (s *site) ownLocked(t *ticket) {
	if t.owner == "" {
		return
	}
	if s.owners == nil {
		s.owners = make(map[string]*hold)
	}
	s.owners[t.owner] = t.hold
	for _, other := range s.tickets {
		if other != t && other.owner == t.owner {
			other.pokeLocked()
		}
	}
}

// disownLocked lets the calls of a hold's owner enter another hold of that owner from now on, or none. Two calls of one
// owner that were granted at once have a hold each. It does not wait for the answer to the end, which may have to be sent again.
func (h *hold) disownLocked() {
	if t, s := h.ticket, h.ticket.site; s.owners[t.owner] == h {
		delete(s.owners, t.owner)
		for _, other := range s.tickets {
			if other != t && other.owner == t.owner && other.state == held {
				s.owners[t.owner] = other.hold
			}
		}
	}
}

// heldByLocked returns what the owner of a waiting ticket holds by another.
func (s *site) heldByLocked(t *ticket) *hold {
	if h := s.owners[t.owner]; h != nil && h.ticket != t && t.state != held {
		return h
	}
	return nil
}

// within returns what a call is to get, or why it fails, whose context comes from a hold of the same name;
// nothing if it is to ask.
func (q *binding) within(ctx context.Context) (*lease.Lease, error) {
	switch q.nesting {
	case Deadlocks:
		if l, ok := ctx.Value(q.held).(*lease.Lease); ok && l.Context().Err() == nil {
			return nil, lease.ErrDeadlock
		}
	case Reenters:
		if sh := q.shareIn(ctx); sh != nil {
			return sh.hold.ticket.site.reenter(ctx, sh.hold, q)
		}
	}
	return nil, nil
}

// shareOf returns the share behind a lease on the name, nil if it is one of another.
func (q *binding) shareOf(l *lease.Lease) *share {
	if l == nil || l.Context().Value(q.held) != l {
		return nil
	}
	sh, _ := l.Engine().(*share)
	return sh
}

// shareIn returns the share that a context comes from, or one of the owner that it names.
func (q *binding) shareIn(ctx context.Context) *share {
	if l, ok := ctx.Value(q.held).(*lease.Lease); ok {
		if sh, ok := l.Engine().(*share); ok {
			return sh
		}
	}
	owner := shares.OwnerOf(ctx)
	if owner == "" {
		return nil
	}
	s := q.client.known(q.keys.Site)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.owners[owner]; h != nil {
		return &h.first
	}
	return nil
}

// reenter enters a hold once more. It returns nothing where the hold has ended.
func (s *site) reenter(ctx context.Context, h *hold, q *binding) (*lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.ticket.state != held || h.leases.Releasing() || h.leases.Overdue():
		return nil, nil
	case q.kind == lua.Write && h.leases.Writes == 0:
		return nil, lease.ErrUpgrade
	case h.leases.Open >= MaxEntries:
		return nil, fmt.Errorf("%w: it was entered %d times", lease.ErrTooLarge, MaxEntries)
	}
	l := h.grantLocked(ctx, &share{}, q, 0)
	h.recountLocked()
	return l, nil
}

// recountLocked sees that the server is told of a change in the number of leases, with others that come soon.
func (h *hold) recountLocked() {
	s := h.ticket.site
	if !s.proto.Entries {
		return
	}
	h.leases.Recount()
	if h.due.IsZero() {
		return // The last renewal was sent.
	}
	h.due = timers.Earlier(h.due, time.Now().Add(entriesPause))
	if !h.renewing {
		s.client.servers.Timers.Before(&h.entry, h.due)
	}
}

// release is what Release of a lease does, once. The lease's context has ended.
func (sh *share) release(ctx context.Context) error {
	ended := ctx.Err() != nil
	return sh.finish(ctx, sh.takeOff(ended), ended)
}

// finish does what of a release is done without the site's lock.
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
			return unconfirmed(err)
		}
		return err
	}
	return todo.gone
}

// A remainder is what of a release is done without the site's lock.
type remainder struct {
	gone  error         // nothing: the hold was lost
	last  bool          // to end the hold
	held  time.Duration // for how long it was held then
	lower bool          // to tell the server that no lease for writing is left
}

// takeOff takes a lease off its hold, or begins its end; ended says that nobody can wait for the answer.
func (sh *share) takeOff(ended bool) (todo remainder) {
	h := sh.hold
	t := h.ticket
	t.site.mu.Lock()
	defer t.site.mu.Unlock()
	if !sh.Released() {
		h.loseLocked(sh.Cause()) // If nobody had noticed before: it is the loss of all leases on the hold.
	}
	if t.state != held {
		todo.gone = sh.Cause()
		if h.gone != nil && errors.Is(todo.gone, lease.ErrReleased) {
			todo.gone = h.gone // The server's word came between the end of the context and this.
		}
		return todo
	}
	if h.leases.Open > 1 {
		todo.lower = h.leases.Leave(&sh.Share)
		h.recountLocked()
		return todo
	}
	todo.last, todo.held = true, h.held()
	h.endLocked()
	if ended {
		t.unlockLocked(todo.held) // Nobody can wait for the answer, which is no reason to keep the lock.
	}
	return todo
}

// let ends the lease as released if its release only has to be sent, and leaves the end of its ticket to the caller:
// if it is the only one on its hold, and it has not ended. Else it reports false, and the release
// is one for [lease.Lease.Release]. All of that is seen under one lock, so no call enters the hold in between.
func (sh *share) let() bool {
	h := sh.hold
	t := h.ticket
	s := t.site
	s.mu.Lock()
	defer s.mu.Unlock()
	// A deadline that has passed is a loss, however late anybody looks.
	if t.state != held || h.leases.Open != 1 || t.restsLocked() || sh.Keeper.Overdue() || s.client.servers.Doubtful() {
		return false
	}
	sh.Keeper.End()
	if !sh.Released() {
		return false // The deadline has passed just now.
	}
	h.endLocked()
	return true
}

// lower tells the server that of a write hold only reading is left, and lets the readers that wait go on. A
// hold that the server does not know any more is lost, or was released meanwhile: that is [lease.ErrReleased].
func (h *hold) lower(ctx context.Context) error {
	s := h.ticket.site
	_, t, err := h.ticket.queue.call(ctx, s.keys.All(), lua.Downgrade.Script, 0, conn.Mendable, func(a Attempt) []string {
		return []string{h.ticket.text, strconv.FormatUint(h.token, 10), a.Floor, a.Counted, a.NotAfter}
	})
	r, strange := lua.Downgrade.Of(&t)
	if err = cmp.Or(err, strange); err != nil {
		return err
	}
	if r.Status == lua.Granted {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.ticket.state != held { // What is left of it was released beside this, and was faster.
		return cmp.Or(h.gone, lease.ErrReleased)
	}
	cause := h.lossOfLocked(&r)
	h.loseLocked(cause)
	return cause
}

// Downgrade turns a lease that was got for writing into one for reading. Where no lease for writing is left
// on its hold, readers may hold beside it from then on. After an error that wraps [lease.ErrOutcomeUnknown] or the
// context's, it is one for reading, though the server may keep others out until Downgrade is called again or
// the lease ends.
func (q Queue) Downgrade(ctx context.Context, l *lease.Lease) error {
	retry.Given(ctx)
	if q.err != nil {
		return q.err
	}
	sh := q.shareOf(l)
	if sh == nil {
		return fmt.Errorf("%w: the lease is one of another lock", lease.ErrNotHeld)
	}
	h := sh.hold
	s := h.ticket.site
	s.mu.Lock()
	if h.ticket.state != held || l.Context().Err() != nil {
		s.mu.Unlock()
		return context.Cause(l.Context())
	}
	h.leases.Unwrite(&sh.Share)
	lower := h.ticket.queue.kind == lua.Write && h.leases.Writes == 0
	s.mu.Unlock()
	if !lower {
		return nil
	}
	return h.lower(ctx)
}

// HoldCount returns how many leases of a kind there are on the hold that ctx comes from or whose owner it
// names; of kind 0, how many of any kind.
func (q Queue) HoldCount(ctx context.Context, kind byte) int {
	retry.Given(ctx)
	if q.err != nil {
		return 0
	}
	sh := q.shareIn(ctx)
	if sh == nil {
		return 0
	}
	h := sh.hold
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.ticket.state != held || h.leases.Overdue() {
		return 0
	}
	return h.leases.Count(kind)
}
