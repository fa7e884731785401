package search

import "slices"

// longest is how many ticks everybody alive has to get in when nothing goes wrong any more.
const longest = 10

// chatter is how many messages can be needed in one tick.
const chatter = 400

// memo knows of states from which everybody gets in how many ticks that takes.
type memo map[uint64]uint8

// fair lets the world go on without further faults and calls: what is under way arrives, holders release,
// who waits checks once a tick. It fails the world unless everybody alive gets in; those who are stopped
// are continued only when the others are through. It returns how many ticks that took.
func (w *world) fair(known memo) uint8 {
	s := &w.s
	s.left = budget{}
	for c := range s.clients {
		for k := range s.clients[c].tickets {
			s.clients[c].tickets[k].calls = 0
		}
	}
	var passed []uint64
	took := uint8(0)
	for {
		h := hash(s)
		if rest, ok := known[h]; ok {
			took = uint8(len(passed)) + rest
			break
		}
		if slices.Contains(passed, h) {
			w.note("and so on: this is where it was a tick ago, or more")
			w.fail(Stranded, "without faults %s waits for ever", w.stuck())
			return 0
		}
		passed = append(passed, h)
		through := w.settleDown()
		if w.settled() {
			return 0
		}
		if through {
			if w.left(); w.kind != Nothing {
				return 0
			}
			took = uint8(len(passed))
			break
		}
		if len(passed) > longest {
			// Not seen so far: who waits longer than that waits for ever.
			w.fail(Stranded, "after %d ticks without faults %s waits", longest, w.stuck())
			return 0
		}
		w.do(move{what: mTick})
	}
	for i, h := range passed {
		known[h] = took - uint8(i)
	}
	return took
}

// settled reports whether it is known how it ends.
func (w *world) settled() bool { return w.kind != Nothing || w.s.over }

// settleDown does all that needs no time to pass, and reports whether everybody is through.
func (w *world) settleDown() bool {
	s := &w.s
	checked := false
	for range chatter {
		switch {
		case w.settled():
			return false
		case w.nextMessage() || w.nextRelease():
		case w.through(true):
			return true
		case w.through(false):
			for c := range w.scope.Clients {
				if s.clients[c].life == stopped {
					w.do(move{what: mContinue, a: uint8(c)})
				}
			}
		case !checked:
			checked = true
			for c := range w.scope.Clients {
				if x := &s.clients[c]; x.life == alive && w.anyWaits(c) && !x.checking {
					w.do(move{what: mCheck, a: uint8(c)})
				}
			}
		default:
			return false
		}
	}
	w.fail(Stranded, "%d messages do not bring the world to rest", chatter)
	return false
}

func (w *world) nextMessage() bool {
	for i := range w.s.net[:w.s.sent] {
		if w.arrives(i) {
			w.do(move{what: mArrive, a: uint8(i)})
			return true
		}
	}
	return false
}

func (w *world) nextRelease() bool {
	for c := range w.scope.Clients {
		for k := range w.s.clients[c].tickets {
			if w.s.clients[c].life == alive && w.s.clients[c].tickets[k].state == held {
				w.do(move{mRelease, uint8(c), uint8(k)})
				return true
			}
		}
	}
	return false
}

// through reports whether nobody wants anything any more; if all is set, not even who is stopped.
func (w *world) through(all bool) bool {
	for c := range w.scope.Clients {
		x := &w.s.clients[c]
		for k := range x.tickets {
			if x.tickets[k].state != none && (x.life == alive || all && x.life == stopped) {
				return false
			}
		}
		if all && x.life == stopped {
			return false
		}
	}
	return true
}

func (w *world) stuck() string {
	text := ""
	for c := range w.scope.Clients {
		for k := range w.s.clients[c].tickets {
			if t := &w.s.clients[c].tickets[k]; t.state != none {
				text += idOf(c, k, t.number).String() + " "
			}
		}
	}
	return text[:max(len(text)-1, 0)]
}

// left looks at what is left behind when all are through.
func (w *world) left() {
	for _, e := range w.s.server.queue[:w.s.server.queued] {
		if c := e.ticket.client(); w.s.clients[c].life == alive {
			w.fail(Ghost, "%v is in the queue, and %s has forgotten it", e.ticket, letter(c))
		}
	}
}
