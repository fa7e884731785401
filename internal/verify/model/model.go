// Package model is the protocol of the fair lock told a second time, as plain Go: what the scripts of
// lua/fairlock and lua/multilock must answer, store and publish, from the design and the headers of the scripts.
//
// A [Mutex] is one lock as Redis keeps it. The tests of this package drive it, or several, and the scripts with the
// same random histories and compare replies, keys and messages after each step.
package model

import (
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Times are server µs, as everywhere in the protocol.
const (
	millisecond = stage.Millisecond
	second      = stage.Second
	minute      = stage.Minute

	granted = "granted"       // the phase of a grant that was not renewed yet
	wants   = wire.PhaseWants // and of a hold whose holder is to be told when somebody waits
)

// Estimated is what Waiting of a reply of the model says where the scripts draw a sample.
const Estimated = line.Estimated

// A Mutex is one lock: its three keys, and what the server knows of the clients.
type Mutex struct {
	Lock Hash
	line.Line

	LockEnds int64 // when its key expires; 0: never, or there is no such key

	History  int      // how many ends of holds are kept; 0: none
	Past     []string // these, the newest first: token, since, until, how it ended and the ticket
	PastEnds int64
}

// pastLasts is how long the history outlives its last entry.
const pastLasts = 24 * 60 * minute

// A Hash is what the lock key keeps. What is zero is not there.
type Hash struct {
	line.Notes
	Owner string

	// Of the hold.
	Until int64
	Phase string
	Plain bool     // its ticket and its token tell these two, which are not there
	Wants bool     // the holder is to be told when somebody waits
	Idle  bool     // and nobody uses the hold now
	Began [2]int64 // the last token that was not the time of its grant, and that time

	Rests  int64 // until when the name stays taken whatever becomes of the hold with the token
	Least  int64 // for how long at the most
	Stayed int64 // that token; 0: no hold

	Previous Previous // how the hold before ended, if it was not released
	Keeps    [2]int64 // the token of a hold, and until when the keys are to live if it is not released

	Moved string // the ticket from which the hold moved to another, the last time

	Who string // of an election: what its leader said of itself

	Entries *Entries // of a reentrant hold
}

// Entries is how often the hold with a token was entered, and how often that has changed.
type Entries struct{ Token, Revision, Count int64 }

// Previous is how a hold ended that was not released.
type Previous struct {
	For   int64  // the token of the hold to which that was told; 0: of none yet
	How   string // the word and the token, with a colon; empty: there is none
	Keeps int64  // until when the keys are to live for that; 0: no longer than they do
}

// Pending reports whether the next hold is to be told how the last one ended.
func (h *Hash) Pending() bool { return h.Previous.How != "" && h.Previous.For == 0 }

// told is what was told to the present hold.
func (h *Hash) told() string {
	if h.Owner == "" || wire.Rests(h.Owner) || h.Previous.For != h.Token {
		return ""
	}
	return h.Previous.How
}

// keeps is until when the keys are to live if the present hold is not released.
func (h *Hash) keeps() int64 {
	if h.Owner == "" || h.Keeps[0] != h.Token {
		return 0
	}
	return h.Keeps[1]
}

// New returns a lock that nobody ever used.
func New() *Mutex {
	return &Mutex{Line: line.New()}
}

// Since is when the present hold began.
func (h *Hash) Since() int64 {
	if h.Began[0] == h.Token {
		return h.Began[1]
	}
	return h.Token
}

// rests is until when the name stays taken if the present hold ends now; 0 if nobody has asked for that.
func (h *Hash) rests(now int64) int64 {
	if h.Owner == "" || h.Stayed != h.Token {
		return 0
	}
	return min(h.Rests, now+h.Least)
}

// least is the longest that it stays taken so.
func (h *Hash) least() int64 {
	if h.Stayed != h.Token {
		return 0
	}
	return h.Least
}

// lease is the longest that the present hold can last, from a renewal or from its grant.
func (h *Hash) lease() int64 {
	t, _ := line.Read(h.Owner)
	if h.Phase == granted {
		return min(t.Lease, t.Grant)
	}
	return t.Lease
}

// phase is the phase as Redis has it, which says also whether the holder is to be told when somebody waits.
func (h *Hash) phase() string {
	switch {
	case !h.Wants:
		return h.Phase
	case h.Idle:
		return wire.PhaseIdle
	case h.Phase == wire.PhaseHeld:
		return wants
	}
	return h.Phase + " " + wants
}

// Fields returns the hash as Redis shows it.
func (h *Hash) Fields() map[string]string {
	f := h.Notes.Fields()
	line.Texts(f, map[string]string{"owner": h.Owner})
	if e := h.Entries; e != nil {
		f["entries"] = fmt.Sprintf("%d:%d:%d", e.Token, e.Revision, e.Count)
	}
	if h.Owner != "" && !h.Plain {
		line.Numbers(f, map[string]int64{"until": h.Until})
		f["phase"] = h.phase()
	}
	if h.Owner == "" && h.Pending() {
		f["owner"], f["until"], f["phase"] = wire.Nobody, "1", wire.PhaseFinal
	}
	if p := h.Previous; p.How != "" {
		f["previous"] = fmt.Sprintf("%d:%s", p.For, p.How)
		if p.Keeps != 0 {
			f["previous"] += fmt.Sprintf(":%d", p.Keeps)
		}
	}
	if h.Keeps[0] != 0 {
		f["keeps"] = fmt.Sprintf("%d:%d", h.Keeps[0], h.Keeps[1])
	}
	line.Texts(f, map[string]string{"who": h.Who, "moved": h.Moved})
	if h.Stayed != 0 {
		f["rests"] = fmt.Sprintf("%d:%d:%d", h.Stayed, h.Rests, h.Least)
	}
	if h.Began[0] != 0 {
		f["since"] = fmt.Sprintf("%d:%d", h.Began[0], h.Began[1])
	}
	return f
}

// State is what the keys of a server should hold, except the history.
func (m *Mutex) State(now int64) stage.State {
	return append(stage.State{stage.Fields(m.Lock.Fields(), m.LockEnds, now)}, m.Keys(now)...)
}

// Expire removes the keys whose time has come.
func (m *Mutex) Expire(now int64) {
	over := func(end int64) bool { return end != 0 && end <= now }
	m.Delete(over(m.LockEnds), over(m.QueueEnds), over(m.SuspectsEnds))
	if over(m.PastEnds) {
		m.Past, m.PastEnds = nil, 0
	}
}

// Delete removes keys.
func (m *Mutex) Delete(lock, queue, suspects bool) {
	if lock {
		m.Lock = Hash{}
	}
	if queue {
		m.Queue = nil
	}
	if suspects {
		clear(m.Suspects)
	}
	m.tidy()
}

// tidy forgets the expiry of keys that are empty, which Redis removes.
func (m *Mutex) tidy() {
	if m.Lock == (Hash{}) {
		m.LockEnds = 0
	}
	m.Tidy()
}

// Clone returns a copy that shares nothing.
func (m *Mutex) Clone() *Mutex {
	c := *m
	c.Line, c.Lock.Notes, c.Past = m.Line.Clone(), m.Lock.Notes.Clone(), slices.Clone(m.Past)
	if e := m.Lock.Entries; e != nil {
		entries := *e
		c.Lock.Entries = &entries
	}
	return &c
}

// passesOf is how often the client of a ticket may pass its hold on, each time with a token higher by one.
func passesOf(ticket string) int64 {
	t, _ := line.Read(ticket)
	return max(t.Permits-1, 0)
}
