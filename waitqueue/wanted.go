package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/observe"
)

// A holder may want to know that somebody waits for what it has. Its renewals then say so: where somebody waits, they are
// told; else they leave a mark, by which the script that queues the first ticket sends one message to the client. A
// message that is lost is made up for by the next renewal, which does not find the mark any more. A client without
// subscriptions hears of no message: there the hold is renewed more often, and each renewal looks. Without the wish nothing
// is sent, and nothing is stored.

// wish is how far that of a hold has come.
type wish uint8

const (
	noWish    wish = iota
	unsaid         // the server is to be told of it by the next renewal
	said           // it has been, and nobody had queued since
	fulfilled      // somebody waits, and the holder knows
)

// unsaidPause is how long a hold waits at the most before it says again what the server has forgotten, or was not told
// because the renewal before went wrong, or will not be told by a message.
const unsaidPause = time.Second

// Want is what the first Wanted of a lease does.
func (sh *share) Want() {
	h := sh.hold
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.ticket.state != held:
	case h.wish == fulfilled:
		h.awaitedLocked()
	case h.wish == noWish:
		h.wish = unsaid
		if s.trust.want() {
			s.subscribeLocked() // The confirmation hurries.
		}
		if s.trust.heard || s.trust.polls {
			h.hurryLocked()
		}
	}
}

// wantedLocked tells the holder that somebody waits.
func (h *hold) wantedLocked() {
	if h.wish != unsaid && h.wish != said {
		return
	}
	h.wish = fulfilled
	h.awaitedLocked()
	h.use.teller.tell(observe.Observation{Moment: observe.Wanted, Token: h.use.token, Held: h.held()})
}

func (h *hold) awaitedLocked() {
	for sh := range h.sharesLocked {
		sh.keeper.Awaited()
	}
	if h.awaited != nil {
		h.ticket.site.client.servers.Spawn(h.awaited)
	}
}

// wishedLocked takes in the answer to a renewal that said of the wish, or did not.
func (h *hold) wishedLocked(r *renewals.Renewal, wanted bool) {
	switch {
	case h.wish != unsaid && h.wish != said:
	case wanted:
		h.wantedLocked()
	case r.Wishes && !h.ticket.site.trust.polls:
		h.wish = said
	default:
		h.wish = unsaid
		if at := time.Now().Add(min(h.ticket.queue.terms.Lease/10, unsaidPause)); h.due.IsZero() || at.Before(h.due) {
			h.due = at // Also behind the last renewal before the longest hold.
		}
	}
}

// wantedLocked tells the holders that a message is about, which are those with a token up to that.
func (s *site) wantedLocked(token uint64) {
	for _, t := range s.tickets {
		if t.hold != nil && t.state == held && t.hold.token <= token {
			t.hold.wantedLocked()
		}
	}
}

// wishAgainLocked lets the holds of the site look whether somebody waits, because messages may have been missed.
func (s *site) wishAgainLocked() {
	for _, t := range s.tickets {
		if h := t.hold; h != nil && t.state == held && (h.wish == unsaid || h.wish == said) {
			h.wish = unsaid
			h.hurryLocked()
		}
	}
}
