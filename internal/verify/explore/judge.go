package main

import (
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A judge keeps what it takes to see that something is wrong, and what was.
type judge struct {
	Hurt  []string // clients whose subscription came to harm: they may be skipped
	Eaten []string // clients that let a grant run out, and were not heard of since
	seen  uint64   // the highest token with which a holder began to believe
	Rest  int64    // server µs until which the name is to stay taken
	alone uint64   // the same, of holders who share with nobody
	bad   string

	Forgot bool // the server has lost its data: earlier holders may hold for some time yet

	// Of the script that runs.
	queue  []lua.Arrival
	held   []grip
	mark   int64
	looked bool // an earlier look at a full queue counts yet
}

func init() {
	worldRules["judge.seen"], worldRules["judge.alone"] = token, token
	worldRules["judge.queue"], worldRules["judge.held"], worldRules["judge.mark"], worldRules["judge.looked"] = skip, skip, skip, skip
	for name, r := range worldRules {
		rules["main."+name] = r
	}
}

// What can be found.
const (
	twoBelievers  = "two believers"
	phantomHolder = "phantom holder"
	overtaken     = "overtaken"
	secondLapse   = "second lapse"
	tokenNotAbove = "token not above"
	refusedWrong  = "wrongly refused"
	untold        = "untold"
	ghost         = "ghost in the queue"
	stranded      = "stranded"
	keptFrom      = "kept from others"
	anotherOrder  = "another order"
	buriedHolds   = "the buried hold"
)

func (j *judge) find(bad string) {
	if j.bad == "" {
		j.bad = bad
	}
}

func (j *judge) hurt(c *client) { j.Hurt = with(j.Hurt, c.name) }

func (j *judge) tokenText(t uint64) string { return fmt.Sprint(t - startMicros) }

func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	all = append(all, one)
	slices.Sort(all)
	return all
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == one })
}

// takes judges that a holder begins to believe (I2).
func (j *judge) takes(w *world, k *call) {
	j.begins(w, k)
	if k.forced {
		return // Until its next renewal it may believe that it holds, after the next has begun to.
	}
	k.placed = false
	k.had = w.scope.Limit > 0
	token := k.using.hold.UseToken
	shares := w.scope.Readers && w.scope.weightOf(k.client.name) < w.scope.permits()
	if (w.scope.permits() == 1 || w.scope.Readers) && !(j.Forgot && k.using != k) {
		if shares && token <= j.alone || !shares && token <= j.seen {
			j.find(tokenNotAbove)
		}
	}
	j.seen = max(j.seen, token)
	if !shares {
		j.alone = max(j.alone, token)
	}
}

// before looks at the server before a script runs.
func (j *judge) before(w *world, c *client, f *flight, live bool) {
	j.queue, j.held, j.mark = slices.Clone(w.line().Queue), w.grips(), w.notes().Mark
	l := w.notes().Looked
	j.looked = l != nil && l.Till > w.us()
	if live {
		j.Eaten = without(j.Eaten, c.name)
	}
}

// arrivalOf is the place of a ticket before a script, or what its request says; later than all if it has none.
func (j *judge) arrivalOf(text string, f *flight) int64 {
	for _, a := range j.queue {
		if a.Ticket == text {
			return a.Arrival
		}
	}
	if f.Kind == checkKind {
		for _, n := range f.Check.Named {
			if n.Text == text {
				return n.Arrival
			}
		}
	}
	if f.Kind == askKind && f.Ask.Text == text && f.Ask.Arrival != 0 && len(j.queue) > 0 {
		return f.Ask.Arrival
	}
	return 1 << 62
}

func has(all []grip, text string) bool {
	return slices.ContainsFunc(all, func(g grip) bool { return g.text == text })
}

// after judges what a script has done.
func (j *judge) after(w *world, c *client, f *flight, live bool, t *wire.Tuple) {
	defer func() { j.queue, j.held = nil, nil }()
	now, held := w.us(), w.grips()
	for _, g := range j.held {
		if owner := w.clientNamed(wire.TicketClient(g.text)); g.until <= now && !has(held, g.text) && owner.cohort != nil {
			for _, k := range w.calls {
				k.placed = k.placed && !(k.client == owner && (k.phase == following || k.phase == asking))
			}
		}
		if g.until <= now && !g.full && !has(held, g.text) && f.Kind != renewKind {
			if owner := wire.TicketClient(g.text); owner != c.name {
				j.Eaten = with(j.Eaten, owner)
			}
		}
	}
	j.notes(w, held)
	fresh := slices.DeleteFunc(slices.Clone(held), func(g grip) bool { return has(j.held, g.text) || wire.Rests(g.text) })
	j.dropped(w, c, f, held, len(fresh))
	w.noteOrder(f, t)
	for _, g := range fresh {
		j.granted(w, c, f, g)
	}
	j.enters(w, c, f, live)
	switch {
	case f.Kind == askKind && t.Status == wire.Full:
		j.refused(w, f.Ask.Text, live, 0)
	case f.Kind == checkKind:
		for i, s := range t.States {
			if len(s) >= len(wire.StateFull) && s[:len(wire.StateFull)] == wire.StateFull {
				j.refused(w, f.Check.Named[i].Text, live, len(f.Check.Named)-1)
			}
		}
	case f.Kind == renewKind && f.Renewal.Wishes && t.Status == wire.Granted && len(w.line().Queue) > 0 && !t.Has(wire.Wanted):
		j.find(untold)
	}
}

// granted judges the order in which tickets are granted (I3), and that nobody is granted twice in vain (R10).
func (j *judge) granted(w *world, c *client, f *flight, g grip) {
	at := j.arrivalOf(g.text, f)
	j.freed(w, g.text)
	if k := w.ofTicket(g.text); k != nil {
		k.placed = false
	}
	owner := wire.TicketClient(g.text)
	if owner == c.name && c.life != dead {
		w.tell("    %s is granted in the reply, token %s", shortly(g.text), j.tokenText(uint64(g.token)))
	} else {
		w.tell("    %s is granted by message, token %s", shortly(g.text), j.tokenText(uint64(g.token)))
	}
	moves := f.Kind == endKind && f.Release.Moves || f.Transit != nil && g.text == f.Ask.Text
	for _, k := range w.calls {
		if k.placed && !moves && !j.Forgot && k.client.life == alive && k.waitsBefore(w, g.text, at) {
			j.find(overtaken)
		}
	}
	if to := w.clientNamed(owner); !g.full && owner != c.name && slices.Contains(j.Eaten, owner) && (to.life != alive || to.half) {
		j.find(secondLapse)
	}
}

// waitsBefore reports whether a call waits with a place before one that is granted.
func (k *call) waitsBefore(w *world, text string, at int64) bool {
	mate := k.client.cohort != nil && wire.TicketClient(text) != k.client.name
	switch {
	case k.phase == following:
		return mate && k.begun.UnixMicro() < at
	case k.ticket == nil || k.ticket.Text == text || has(w.grips(), k.ticket.Text):
		return false
	case k.ticket.Waits() || mate && k.phase == asking && k.ticket.Arrival != 0:
		return k.ticket.Arrival < at
	}
	return false
}

// dropped excuses tickets that left the queue for a reason: their clients came to harm.
func (j *judge) dropped(w *world, c *client, f *flight, held []grip, fresh int) {
	queue := w.line().Queue
	var out []*call
	var silent []string
	for _, a := range j.queue {
		if has(held, a.Ticket) || slices.ContainsFunc(queue, func(b lua.Arrival) bool { return a.Ticket == b.Ticket }) || f.Kind == endKind && f.Release.Text == a.Ticket {
			continue
		}
		k := w.ofTicket(a.Ticket)
		owner := wire.TicketClient(a.Ticket)
		if owner != c.name {
			w.tell("    dropped from the queue: %s", shortly(a.Ticket))
			if !w.suspected(owner, w.us()) {
				silent = with(silent, owner)
			}
		}
		if k != nil {
			out = append(out, k)
		}
	}
	unfair := fresh == 0 && len(held) == 0 && len(silent) > 1 && !(j.mark != 0 && j.mark <= w.us())
	for _, k := range out {
		if k.client == c || !unfair && (slices.Contains(j.Hurt, k.client.name) || w.suspected(k.client.name, w.us())) {
			k.placed = false
		}
	}
}

// enters notes who has a place now that nobody may take.
func (j *judge) enters(w *world, c *client, f *flight, live bool) {
	place := func(text string) {
		if k := w.ofTicket(text); k != nil && k.phase != over && slices.ContainsFunc(w.line().Queue, func(a lua.Arrival) bool { return a.Ticket == text }) {
			k.placed = true
		}
	}
	switch f.Kind {
	case askKind:
		if live {
			place(f.Ask.Text)
		}
		if k := w.ofTicket(f.Ask.Text); k != nil && c.cohort != nil && !slices.ContainsFunc(w.line().Queue, func(a lua.Arrival) bool { return a.Ticket == f.Ask.Text }) {
			k.placed = false
		}
	case checkKind:
		for _, n := range f.Check.Named {
			if f.Check.Round.Mode != wire.Deaf && !w.suspected(c.name, w.us()) {
				place(n.Text)
			}
		}
	}
}

// refused judges that a ticket finds no room (I11). waiting is how many others of its client were looked at with it.
func (j *judge) refused(w *world, text string, live bool, waiting int) {
	w.tell("    there is no room for %s", shortly(text))
	if k := w.ofTicket(text); k != nil && k.had && live {
		j.find(refusedWrong)
	}
	for _, a := range w.line().Queue {
		owner := wire.TicketClient(a.Ticket)
		if w.clientNamed(owner).life != dead || slices.Contains(w.zombies, owner) {
			waiting++
		}
	}
	if l := w.notes().Looked; waiting < w.scope.Limit && (l == nil || l.Till <= w.us() || !j.looked) {
		j.find(refusedWrong)
	}
}

// look judges a state.
func (w *world) look() string {
	for _, x := range w.names {
		if bad := x.lookAtName(); bad != "" {
			return bad
		}
	}
	if !w.inOrder() {
		return anotherOrder
	}
	return ""
}

// lookAtName judges what concerns one name.
func (w *world) lookAtName() string {
	if w.judge.bad != "" {
		return w.judge.bad
	}
	if o := w.awaited(); o != nil {
		return o.look(w)
	}
	var sum int64
	for _, k := range w.calls {
		if bad := k.agreed(); bad != "" {
			return bad
		}
		if k.client.life != dead && k.believes() && !k.forced {
			sum += w.scope.weightOf(k.client.name)
		}
	}
	if sum > w.scope.permits() && !w.judge.Forgot {
		return twoBelievers
	}
	for _, g := range w.grips() {
		if w.buried && wire.TicketClient(g.text) == w.scope.Buries && !wire.Rests(g.text) {
			return buriedHolds
		}
		c := w.clientNamed(wire.TicketClient(g.text))
		if g.full && !lua.InTransit(g.text) && !wire.Rests(g.text) && g.until > w.us() && c.life == alive && c.lock.Ticket(g.text) == nil && !c.underWay(g.text) {
			return phantomHolder
		}
	}
	for _, c := range w.clients {
		if u := c.lent; c.life == alive && u != nil && u.knows && u.hold != nil && !u.hold.Idle.IsZero() && c.cohort.Hold == u.hold {
			return keptFrom
		}
	}
	if w.quiet() {
		for _, a := range w.line().Queue {
			if w.clientNamed(wire.TicketClient(a.Ticket)).life != dead {
				return ghost
			}
		}
	}
	return ""
}

// underWay reports whether a release of a ticket is, or the news of a grant to it.
func (c *client) underWay(text string) bool {
	for _, d := range c.later {
		if d.release.Text == text {
			return true
		}
	}
	grants := func(all []wire.Grant) bool {
		return slices.ContainsFunc(all, func(g wire.Grant) bool { return g.Ticket == text })
	}
	is := func(f *flight) bool {
		return f.Kind == endKind && f.Release.Text == text || f.Reply != nil && (grants(f.Reply.Grants) || f.Kind == askKind && f.Ask.Text == text) ||
			f.Message != nil && grants(f.Message.Grants)
	}
	return c.waitsFor(is) || slices.ContainsFunc(c.pushed, is)
}

// through reports whether all calls are over, and all that they had to do.
func (w *world) through() bool {
	for _, w := range w.names {
		for _, k := range w.calls {
			if c := k.client; c.life != dead && (k.phase != over || k.ticket != nil) {
				return false
			}
		}
		for _, c := range w.clients {
			if c.life == stopped || c.life == alive && !c.links.quiet() {
				return false
			}
		}
	}
	return !slices.ContainsFunc(w.multis, func(m *multi) bool { return m.phase != over })
}

// quiet reports whether nothing can run any more, besides.
func (w *world) quiet() bool {
	return w.through() && !slices.ContainsFunc(w.names, func(w *world) bool { return len(w.old) > 0 })
}
