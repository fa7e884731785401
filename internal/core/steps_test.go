package core

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// confirm asks by a renewal whether the grant of a ticket holds, and takes in the answer.
func (w *world) confirm(t *Ticket, r wire.Reply, f Failure) (string, Step) {
	w.t.Helper()
	var step Step
	effects := w.do(func(x *Input) {
		sent, ok := w.l.BeginConfirm(x, t, w.now, false)
		require.True(w.t, ok)
		w.l.OnConfirmReply(x, t, &sent, w.attempt(), &r, &f, nil, 0)
		step = w.l.AfterConfirm(x, t, &f, false)
	})
	return effects, step
}

func (w *world) use() string { w.t.Helper(); return w.do(w.l.Listen) }
func (w *world) confirmed() string {
	w.t.Helper()
	return w.do(func(x *Input) { w.l.OnSubscribed(x, 1, "n") })
}
func (w *world) cut() string { w.t.Helper(); return w.do(w.l.OnUnsubscribed) }
func (w *world) ping(nonce string) string {
	w.t.Helper()
	return w.do(func(x *Input) { w.l.OnPing(x, nonce) })
}

// begins begins a check, and returns the names of its tickets.
func (w *world) begins() (c Check, named []string) {
	w.t.Helper()
	require.True(w.t, w.l.Checking, "no check was asked for")
	w.do(func(x *Input) { c = w.l.BeginCheck(w.l.BeginRound(), w.now) })
	for _, n := range c.Named {
		named = append(named, w.name(n.Text))
	}
	return c, named
}

// answers takes in the answer to a check.
func (w *world) answers(c *Check, r wire.Reply, f Failure, states ...string) (more bool, effects string) {
	w.t.Helper()
	if r.Status == 0 {
		r.Status = wire.Done
	}
	if r.Now == 0 {
		r.Now = w.us()
	}
	all := make([]CheckState, 0, len(states))
	for _, s := range states {
		all = append(all, CheckState{State: s, Place: -1, Err: errRefusal})
	}
	effects = w.do(func(x *Input) { more = w.l.OnCheckReply(x, c, w.attempt(), &r, all, &f) })
	return more, effects
}

// check is a check that is answered at once.
func (w *world) check(states ...string) string {
	w.t.Helper()
	c, _ := w.begins()
	_, effects := w.answers(&c, wire.Reply{Until: w.us() + time.Hour.Microseconds()}, answered, states...)
	return effects
}

// renews begins the renewal of a hold that is due.
func (w *world) renewal(h *Hold) Renewal {
	w.t.Helper()
	require.True(w.t, w.renews[h.Ticket], "no renewal is due")
	delete(w.renews, h.Ticket)
	var r Renewal
	w.do(func(x *Input) { r = w.l.NextRenewal(x, h, w.attempt()) })
	return r
}

// renewed takes in the answer to a renewal that was sent now.
func (w *world) renewed(h *Hold, sent Renewal, r wire.Reply, f Failure) string {
	w.t.Helper()
	return w.do(func(x *Input) { w.l.OnRenewed(x, h, &sent, w.attempt(), &r, &f, w.v) })
}

// renew is a renewal that is answered at once.
func (w *world) renew(h *Hold) string {
	w.t.Helper()
	sent := w.renewal(h)
	return w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered)
}

// release begins the release of a hold by a caller that waits for the answer, and returns the request.
func (w *world) release(h *Hold) *Release {
	w.t.Helper()
	w.do(func(x *Input) {
		last, _, _ := w.l.Leave(x, h, h.Ticket.Kind, reason.ErrReleased, true)
		require.True(w.t, last)
		w.l.BeginRelease(x, h, "")
	})
	d := ReleaseOf(h.Ticket)
	w.sends[&d] = true
	return &d
}

// unlock is a release that nobody waits for.
func (w *world) unlock(h *Hold) (*Release, string) {
	w.t.Helper()
	d := &Release{}
	return d, w.do(func(x *Input) {
		w.l.BeginRelease(x, h, "")
		w.l.Unlock(x, h, d, w.now.Sub(h.Since))
	})
}

// released takes in the answer to a release.
func (w *world) released(d *Release, status wire.Status, f Failure) string {
	w.t.Helper()
	require.True(w.t, w.sends[d], "that is not under way")
	delete(w.sends, d)
	sent := w.now
	return w.do(func(x *Input) { w.l.OnReleaseReply(x, d, sent, &wire.Head{Status: status, Now: w.us()}, &f) })
}

// finish ends the ticket of a call that gives up.
func (w *world) finish(t *Ticket) string {
	w.t.Helper()
	return w.do(func(x *Input) { w.l.Finish(x, t) })
}

// sorted has effects whose order the rules leave open in the order of the alphabet.
func sorted(effects string) string {
	all := strings.Split(effects, ", ")
	slices.Sort(all)
	return strings.Join(all, ", ")
}
