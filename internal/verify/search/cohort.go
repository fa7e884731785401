package search

// Calls of one client that pass the hold on among themselves. One of them leads: its ticket is the one that the server
// knows. A mate has no ticket there until it leads. A scope has room for one mate at a time.

func (w *world) cohort(c int) bool { return w.scope.Clients[c].Passes > 0 }

// excuseMates notes that calls of a client need not be served in turn that its lease was to keep the place of.
func (w *world) excuseMates(c int) {
	for k := range w.s.clients[c].tickets {
		if t := &w.s.clients[c].tickets[k]; w.cohort(c) && (t.state == mating || t.state == asking) {
			t.placed = false
		}
	}
}

// leader is the slot of the call that leads the other one, or -1.
func (w *world) leader(c, k int) int {
	o := 1 - k
	if !w.cohort(c) {
		return -1
	}
	switch w.s.clients[c].tickets[o].state {
	case none, ending, mating:
		return -1
	}
	return o
}

// join makes a call a mate: its place is that of now, and is to be kept once its leader holds. Behind the last pass it will
// have to queue, so its client subscribes.
func (w *world) join(c, k int) {
	x := &w.s.clients[c]
	t := &x.tickets[k]
	w.s.server.high++
	t.state, t.arrival, t.placed = mating, w.s.server.high, w.hears(c) && x.tickets[1-k].state == held
	if int(x.passed) >= w.scope.Clients[c].Passes {
		w.subscribe(c)
	}
}

// mate is the slot of the mate of a leader, or -1.
func (w *world) mate(c, k int) int {
	if o := 1 - k; w.cohort(c) && w.s.clients[c].tickets[o].state == mating {
		return o
	}
	return -1
}

// pass gives the hold of a leader to its mate, which goes on under the leader's ticket, and reports whether it could.
func (w *world) pass(c, k int) bool {
	x := &w.s.clients[c]
	t, o := &x.tickets[k], w.mate(c, k)
	if o < 0 || int(x.passed) >= w.scope.Clients[c].Passes || t.left == 0 {
		return false
	}
	x.passed++
	w.s.server.token++ // Tokens are times, which go on.
	w.s.server.writer = max(w.s.server.writer, w.s.server.token)
	w.note("  %s passes its hold on, token %d", letter(c), w.s.server.token)
	w.leaves(c, o)
	return true
}

// leaves is the end of a mate of which the server knows nothing.
func (w *world) leaves(c, k int) {
	t := &w.s.clients[c].tickets[k]
	*t = ticket{number: t.number, calls: t.calls, past: t.past, pastFor: t.pastFor}
}

// lead makes the mate of a ticket that ends the next leader. It asks, and keeps its place if it can be queued before the
// lock is free.
func (w *world) lead(c, k int, inTime bool) {
	x := &w.s.clients[c]
	o := w.mate(c, k)
	if o < 0 || w.rules.has(MateIsForgotten) {
		return
	}
	x.passed = 0
	t := &x.tickets[o]
	t.state, t.placed = asking, t.placed && inTime && w.hears(c)
	w.note("  %v leads from now on", idOf(c, o, t.number))
	w.ask(c, o)
}
