package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// How a call for several names ends: with one lease on all of them, or with none.

// yield gives back the names that the call holds, so that nobody waits for them meanwhile. It waits for the answers,
// but not for long, nor beyond the call's context: what is not answered then goes on in the background.
func (w *whole) yield() {
	ctx, cancel := context.WithTimeout(w.ctx, conn.AnswerTime)
	defer cancel()
	var given []*part
	for _, p := range w.parts {
		if p.lease != nil {
			given = append(given, p)
		}
	}
	_ = w.release(ctx, given) // What is not answered ends with its lease.
	for _, p := range given {
		p.giveUp()
	}
}

// leave ends the call without a lease.
func (w *whole) leave(err error) {
	w.yield()
	for _, p := range w.parts {
		if p.wait != nil {
			p.wait.site.finish(p.wait.ticket, p.wait.clean)
			p.wait.ended(err)
		}
	}
}

// lease makes one lease of the leases of the parts.
func (w *whole) lease(waited time.Duration) *lease.Lease {
	parts := make([]*lease.Lease, len(w.parts))
	terms := lease.Terms{Parts: parts, Waited: waited}
	for i, p := range w.parts {
		parts[i] = p.lease
		terms.Token = max(terms.Token, p.lease.Token())
	}
	terms.Until = lease.Until{Deadline: time.Now().Add(lease.MaxLease), Slept: lease.Slept()}
	stops := make([]func() bool, len(parts))
	var keeper *lease.Keeper
	terms.Release = func(ctx context.Context) error {
		for _, stop := range stops {
			stop()
		}
		return w.release(ctx, w.parts)
	}
	terms.Unlock = func() {
		for i, stop := range stops {
			stop()
			parts[i].Unlock()
		}
	}
	keeper = lease.New(w.ctx, terms)
	for i, l := range parts {
		stops[i] = context.AfterFunc(l.Context(), func() { w.lost(keeper, l) })
	}
	return keeper.Lease()
}

// lost ends the lease because that of a part has ended, and gives back the others.
func (w *whole) lost(keeper *lease.Keeper, one *lease.Lease) {
	keeper.Lose(context.Cause(one.Context()))
	if errors.Is(context.Cause(keeper.Lease().Context()), lease.ErrReleased) {
		return // The release has begun, which gives back the others.
	}
	for _, p := range w.parts {
		_ = p.lease.Release(w.ended()) // In the background: nobody waits for the answer.
	}
}

// ended is a context that has ended: what is given back on it goes out in the background.
func (w *whole) ended() context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	cancel()
	return ctx
}

// release gives back parts: the parts of a slot in one script, and the slots side by side: a node that does not answer
// holds up none of the others. It returns the first error.
func (w *whole) release(ctx context.Context, parts []*part) error {
	var slots [][]*part
	for rest := parts; len(rest) > 0; {
		n := 1
		for n < len(rest) && w.slot(rest[n]) == w.slot(rest[0]) {
			n++
		}
		slots = append(slots, rest[:n])
		rest = rest[n:]
	}
	if len(slots) == 1 {
		return w.releaseSlot(ctx, slots[0])
	}
	errs := make([]error, len(slots))
	var all sync.WaitGroup
	for i, slot := range slots {
		all.Go(func() { errs[i] = w.releaseSlot(ctx, slot) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

func (w *whole) releaseSlot(ctx context.Context, parts []*part) (err error) {
	c := w.client
	if ctx.Err() != nil || len(w.parts) == 1 {
		for _, p := range parts {
			if failed := p.lease.Release(ctx); err == nil {
				err = failed
			}
		}
		return err
	}
	var held []*part
	args, keys := []string{c.highest(), c.servers.Counted()}, []string(nil)
	for _, p := range parts {
		if !p.wait.ticket.hold.first.let() {
			err = cmp.Or(err, p.lease.Release(ctx))
			continue
		}
		held = append(held, p)
		args = append(args, p.wait.ticket.text)
		keys = append(keys, p.wait.site.keys.All()...)
	}
	if len(held) == 0 {
		return err
	}
	c.ends.owe() // Close waits for it.
	defer c.ends.done(1)
	a := conn.Sending()
	c.stats.ends.Add(1)
	replies, failed := lua.MultiEnd.DecodeAll(c.servers.RunFor(ctx, lua.MultiEnd, keys, args...), len(held))
	for i, p := range held {
		var r lua.Reply
		if failed == nil {
			r = replies[i]
		}
		h := p.wait.ticket.hold
		if failed == nil {
			p.wait.site.absorb(a, &r, false)
		}
		head := r.Head()
		p.wait.site.endAnswered(&end{site: p.wait.site, text: p.wait.ticket.text, ticket: p.wait.ticket}, a, &head, failed)
		ended := lease.ErrUnconfirmed
		switch {
		case failed == nil:
			ended = h.outcome(&head)
		case err == nil:
			ended = h.outlast(ctx)
		}
		h.released(h.held(), ended)
		err = cmp.Or(err, ended)
	}
	return err
}
