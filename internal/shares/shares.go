// Package shares has the leases on one hold, which may be entered again. It sends nothing; the hold guards it.
package shares

import (
	"context"
	"errors"
	"strconv"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Share is one lease on a hold.
type Share struct {
	Keeper *lease.Keeper
	kind   byte
	over   bool // released; only of the first, which stays where it is
	at     int  // among the others, of any but the first
}

// Cause is why its context has ended; nil if it has not.
func (s *Share) Cause() error { return context.Cause(s.Keeper.Lease().Context()) }

// Released reports whether its release has begun.
func (s *Share) Released() bool { return errors.Is(s.Cause(), lease.ErrReleased) }

// Shares are the leases on a hold.
type Shares struct {
	first  *Share   // of the call that got the hold
	more   []*Share // of calls that entered it again
	Open   int      // how many of them are not released
	Writes int      // and of these, how many are for writing
	counts uint64   // how often their number has changed, as the server is told
}

// Add adds a lease of a kind.
func (h *Shares) Add(s *Share, kind byte) {
	h.Open++
	if s.kind = kind; kind == lua.Write {
		h.Writes++
	}
	if h.first == nil {
		h.first = s
		return
	}
	s.at = len(h.more)
	h.more = append(h.more, s)
}

// Each goes through the leases that are not released.
func (h *Shares) Each(yield func(*Share) bool) {
	if h.first != nil && !h.first.over && !yield(h.first) {
		return
	}
	for _, s := range h.more {
		if !yield(s) {
			return
		}
	}
}

// Leave takes a lease off that is not the last one, and reports whether it was the last for writing.
func (h *Shares) Leave(s *Share) (lower bool) {
	h.Open--
	if s == h.first {
		s.over = true
	} else {
		last := len(h.more) - 1
		h.more[s.at], h.more[last].at = h.more[last], s.at
		h.more[last] = nil
		h.more = h.more[:last]
	}
	return h.Unwrite(s)
}

// Unwrite notes that a lease is not for writing any more, and reports whether it was the last.
func (h *Shares) Unwrite(s *Share) (lower bool) {
	if s.kind != lua.Write {
		return false
	}
	s.kind = lua.Read
	h.Writes--
	return h.Writes == 0
}

// Recount notes that the server is to be told of their number.
func (h *Shares) Recount() { h.counts++ }

// Entries is what the server is told of the number of leases; nothing while there was never more than one.
func (h *Shares) Entries() string {
	if h.counts == 0 {
		return ""
	}
	return strconv.FormatUint(h.counts, 10) + ":" + strconv.Itoa(h.Open)
}

// Extend moves the end of all leases, and reports whether there was time for that.
func (h *Shares) Extend(u lease.Until) bool {
	for s := range h.Each {
		if !s.Keeper.Extend(u) && !s.Released() {
			return false
		}
	}
	return true
}

// Overdue reports whether all leases have ended.
func (h *Shares) Overdue() bool {
	for s := range h.Each {
		if !s.Keeper.Overdue() {
			return false
		}
	}
	return true
}

// Releasing reports whether the last owner has begun to release: then the rest is the release's.
func (h *Shares) Releasing() bool {
	for s := range h.Each {
		if !s.Released() {
			return false
		}
	}
	return true
}

// Count is how many leases of a kind are not released; of kind 0, how many of any kind.
func (h *Shares) Count(kind byte) int {
	switch kind {
	case lua.Write:
		return h.Writes
	case lua.Read:
		return h.Open - h.Writes
	}
	return h.Open
}

type ownerKey struct{}

// Owned returns a context on whose behalf several calls may enter one hold.
func Owned(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerOf is the owner that a context names; empty if it names none.
func OwnerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
