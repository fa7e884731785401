package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Calls for several names of one slot: what waitqueue's AcquireAll does with a core, without goroutines.

const (
	names     = "123456789"
	boundTime = time.Second            // waitqueue.DefaultBound
	hearTime  = 250 * time.Millisecond // conn.SlowAnswer: for how long a call waits to be subscribed everywhere
)

// A multi is one call for several names, all or none. It has a call for each of them, and another one where it asks again.
type multi struct {
	name  string // of its client
	wants string // which names
	phase phase  // sleeping: each of its parts goes on by itself
	core  core.Multi
	parts []*part
	try   bool      // its request takes all or nothing
	heard int       // for how many names it is known to be subscribed
	until time.Time // of a pause
	over  time.Time // when its patience is; zero: it has no end
}

// A part is one of the names. The call is nil until the first has begun.
type part struct {
	*call
	client *client
	place  int64 // of a call that is forgotten
	asked  time.Time
}

func init() {
	worldRules["multi.wants"], worldRules["multi.until"], worldRules["multi.over"] = skip, skip, set
	worldRules["part.place"], worldRules["part.asked"], worldRules["part.client"] = place, place, skip
}

func (r *shared) addMulti(name, wants string) {
	m := &multi{name: name[:1], wants: wants}
	for _, n := range wants {
		m.parts = append(m.parts, &part{client: r.names[strings.IndexRune(names, n)].client(m.name)})
	}
	r.multis = append(r.multis, m)
}

// at is what a process knows of the nth name.
func (c *client) at(n int) *client {
	return c.process[slices.IndexFunc(c.process, func(e *client) bool { return e.world.number == n })]
}

// first reports whether a client stands for its process.
func (c *client) first() bool { return c == c.process[0] }

// each does something to all of a process.
func (c *client) each(do func(c *client)) {
	for _, e := range c.process {
		do(e)
	}
}

// saw is client.minToken.
func (c *client) saw(token uint64) {
	for _, e := range c.process {
		e.floor = max(e.floor, token)
	}
}

// isUsed reports whether a client has a call.
func (c *client) isUsed() bool {
	return slices.ContainsFunc(c.world.calls, func(k *call) bool { return k.client == c && k.phase != unborn && k.phase != over })
}

// multi is the call for several names of a process; nil if it has none.
func (c *client) multi() *multi {
	for _, m := range c.world.multis {
		if m.name == c.name {
			return m
		}
	}
	return nil
}

// each is what a request is, or the requests of which it is made.
func (f *flight) each() []*flight {
	if len(f.All) == 0 {
		return []*flight{f}
	}
	return f.All
}

// waitsFor reports whether a client waits for the answer to a request.
func (c *client) waitsFor(is func(*flight) bool) bool {
	among := func(all []*flight) bool {
		return slices.ContainsFunc(all, func(f *flight) bool {
			if len(f.All) == 0 {
				return f.At == c.world.number && is(f)
			}
			return slices.ContainsFunc(f.All, func(f *flight) bool { return f.At == c.world.number && is(f) })
		})
	}
	return slices.ContainsFunc(c.process, func(e *client) bool { return among(e.requests) || among(e.replies) || among(e.failed) })
}

func (w *world) input() *core.Input { return &core.Input{Now: w.now} }

func (w *world) bad() string {
	for _, x := range w.names {
		if x.judge.bad != "" {
			return x.judge.bad
		}
	}
	return ""
}

// adds is what adds steps of a name to those that can be next.
func (w *world) adds(all *[]step) adder {
	if len(w.names) == 1 {
		return func(do func(w *world), format string, args ...any) { *all = append(*all, step{format, args, do}) }
	}
	n := w.number
	return func(do func(w *world), format string, args ...any) {
		*all = append(*all, step{fmt.Sprintf("name %d: %s", n+1, format), args, func(w *world) { do(w.names[n]) }})
	}
}

// multiSteps are those of calls for several names.
func (w *world) multiSteps(add adder) {
	for i, m := range w.multis {
		if m.life() != alive {
			continue
		}
		switch m.phase {
		case unborn:
			if w.mayAskAll(i) {
				add(func(w *world) { w.multis[i].start() }, "%s asks for the names %s", m.name, m.wants)
			}
		case hearing:
			if w.mayPass(m.until) {
				add(func(w *world) {
					w.to(w.multis[i].until)
					w.multis[i].askToWait()
				}, "%s waits no more until it is subscribed", m.name)
			}
		case pausing:
			if w.mayPass(m.until) {
				add(func(w *world) {
					w.to(w.multis[i].until)
					w.multis[i].ask()
				}, "%s asks again", m.name)
			}
		case holding:
			add(func(w *world) { w.multis[i].release() }, "%s releases all", m.name)
		case sleeping:
			if !m.over.IsZero() && w.mayPass(m.over) {
				add(func(w *world) {
					w.to(w.multis[i].over)
					w.multis[i].next(w.now)
				}, "the patience of %s is over", m.name)
			}
		}
		if w.budget.Cancels > 0 && m.phase != unborn && m.phase != holding && m.phase != over {
			add(func(w *world) {
				w.budget.Cancels--
				w.multis[i].giveUp()
			}, "%s gives up", m.name)
		}
	}
}

// mayAskAll reports whether a call may begin: clients that are alike call first in one order only.
func (w *world) mayAskAll(i int) bool {
	m := w.multis[i]
	return !slices.ContainsFunc(w.multis[:i], func(o *multi) bool {
		return o.phase == unborn && o.life() == alive && o.wants == m.wants && w.scope.alike(o.name, m.name)
	})
}

func (m *multi) life() life { return m.parts[0].client.life }

func (m *multi) world() *world { return m.parts[0].client.world }

// start is acquireAll.
func (m *multi) start() {
	m.core = core.NewMulti(len(m.parts))
	m.core.Bound = boundTime
	m.core.OnRequest()
	for i := range m.parts {
		m.begin(i)
	}
	m.try = true
	m.ask()
}

// begin is multi.begin: a call for one of the names begins, at the place of the one before.
func (m *multi) begin(i int) {
	p := m.parts[i]
	c := p.client
	w := c.world
	m.core.OnAsk(w.input(), i)
	arrival := p.place
	if p.call != nil && p.ticket != nil {
		arrival = p.ticket.Arrival
	}
	if arrival == 0 && !p.asked.IsZero() {
		arrival = p.asked.UnixMicro()
	}
	p.place = 0
	p.call = &call{client: c, multi: m, part: i, phase: asking}
	for n := 0; p.name == "" || w.knows(p.name); n++ {
		p.name = fmt.Sprintf("%s%d%d", m.name, w.number+1, n)
	}
	t := p.newTicket()
	t.Joint, t.Arrival = true, arrival
	p.register(t)
	p.phase = asking
	w.calls = append(w.calls, p.call)
	slices.SortFunc(w.calls, func(a, b *call) int { return strings.Compare(a.name, b.name) })
}

// knows reports whether anybody knows a ticket with a number, or can hear of it.
func (w *world) knows(name string) bool {
	is := func(ticket string) bool {
		text, _, _ := strings.Cut(shortly(ticket), "/")
		return text == name
	}
	in := func(all []*flight) bool {
		return slices.ContainsFunc(all, func(f *flight) bool {
			return slices.ContainsFunc(strings.Split(f.names(), ", "), func(text string) bool {
				text, _, _ = strings.Cut(text, "/")
				return text == name
			})
		})
	}
	if slices.ContainsFunc(w.calls, func(k *call) bool { return k.name == name && k.ticket != nil }) {
		return true
	}
	for _, a := range w.line().Queue {
		if is(a.Ticket) {
			return true
		}
	}
	if slices.ContainsFunc(w.grips(), func(g grip) bool { return is(g.text) }) {
		return true
	}
	for _, x := range w.names {
		for _, c := range x.clients {
			if in(c.requests) || in(c.replies) || in(c.failed) || in(c.pushed) || slices.ContainsFunc(c.later, func(d *timed) bool { return is(d.release.Text) }) {
				return true
			}
		}
		if in(x.old) {
			return true
		}
	}
	return false
}

// keepPlace keeps of a call that is forgotten what the next one for its name needs.
func (m *multi) keepPlace(k *call) {
	if p := m.parts[k.part]; p.call == k {
		p.place = k.ticket.Arrival
	}
}

// ask is askOnce: one script for all names.
func (m *multi) ask() {
	mode, f := wire.Wait, &flight{Kind: askAllKind}
	if m.try {
		mode = wire.Try
	}
	var first *client
	for _, p := range m.parts {
		c := p.client
		q, ok := &core.Acquire{}, false
		c.input(func(x *core.Input) { *q, ok = c.lock.BeginAcquire(x, p.ticket, mode, x.Now) })
		if !ok {
			continue
		}
		if mode = q.Mode; p.asked.IsZero() {
			p.asked = c.world.now
		}
		if first == nil {
			first = c
		}
		f.All = append(f.All, &flight{Kind: askKind, From: c.name, At: c.world.number, Call: p.call, Ask: q})
	}
	m.phase = asking
	if first == nil {
		m.asked()
		return
	}
	for _, one := range f.All {
		one.Ask.Mode = mode
	}
	first.request(f, attemptTime)
}

// onAsked is askOnce and askTogether, from the reply on.
func (m *multi) onAsked(q *flight, f *core.Failure) {
	late, busy := false, false
	for _, one := range q.All {
		r := &wire.Reply{}
		if one.Reply != nil {
			r = one.Reply
		}
		c := m.client().at(one.At)
		c.input(func(x *core.Input) { c.lock.OnAcquireReply(x, one.Ask, q.Attempt, r, f, errRefuse) })
		late, busy = late || r.Status == wire.Late, busy || r.Status == wire.Busy
		if r.Status == wire.Late || r.Status == wire.Busy {
			m.parts[one.Call.part].asked = time.Time{} // The server has nothing of it.
		}
	}
	switch {
	case m.phase != asking: // It has given up.
	case f.Err != nil:
		m.core.OnAttempt(m.world().input(), false)
		for _, p := range m.parts {
			p.client.input(func(x *core.Input) { m.until = x.Now.Add(p.client.lock.Retry(x, p.ticket, f).Rest) })
		}
		m.phase = pausing
	case late:
		m.ask()
	case busy:
		m.phase, m.heard, m.until = hearing, 0, m.world().now.Add(hearTime)
		m.hear()
	default:
		m.asked()
	}
}

func (m *multi) client() *client { return m.parts[0].client }

// hear waits until the client is subscribed for all names.
func (m *multi) hear() {
	for ; m.heard < len(m.parts); m.heard++ {
		p, hears := m.parts[m.heard], false
		p.client.input(func(x *core.Input) { hears = p.client.lock.Hear(x, p.ticket) })
		if p.woken = false; !hears {
			return
		}
	}
	m.askToWait()
}

func (m *multi) askToWait() {
	m.try = false
	m.ask()
}

// asked is askSlot once all is asked for: each part goes on by itself.
func (m *multi) asked() {
	m.phase = sleeping
	m.core.OnAttempt(m.world().input(), true)
	for _, p := range m.parts {
		if p.ended || !p.take() {
			p.phase = running
			p.run(core.Step{})
		}
	}
}

// goesOn is multi.await, and what follows a loss: it does the next thing that a call for several names does, and reports whether
// there is one.
func (m *multi) goesOn() bool {
	if m.phase == unborn || m.phase == over || m.life() != alive {
		return false
	}
	switch m.phase {
	case hearing:
		if p := m.parts[m.heard]; p.woken {
			m.hear()
			return true
		}
		return false
	case holding:
		if slices.ContainsFunc(m.parts, func(p *part) bool { return !p.believes() }) {
			for _, p := range m.parts { // lostOne
				p.release()
			}
			m.end()
			return true
		}
		return false
	case sleeping:
		return m.next(time.Time{})
	}
	return false
}

// next does what the core says. Without a time its patience is not over.
func (m *multi) next(now time.Time) (more bool) {
	for i, p := range m.parts {
		if m.core.Holds(i) && !p.believes() {
			if p.phase == holding {
				p.release()
			}
			m.core.OnLost(i)
		}
	}
	step := m.core.Next(&core.Input{Now: now})
	switch m.over = step.At; step.Do {
	case core.MultiWait:
		return false
	case core.MultiDone:
		m.hold()
	case core.MultiFail:
		m.giveBack(m.core.In(core.PartHeld))
		m.end()
	case core.MultiAsk:
		for _, i := range step.Parts {
			m.begin(i)
			m.parts[i].phase = running
			m.parts[i].run(core.Step{})
		}
	case core.MultiLook:
		m.core.OnLook(!slices.ContainsFunc(step.Parts, func(i int) bool { return !m.parts[i].ticket.Granted() }))
	case core.MultiGiveBack:
		m.giveBack(step.Parts)
	}
	return true
}

// hold is multi.lease: the call has all names, with the highest of their tokens.
func (m *multi) hold() {
	m.phase = holding
	w := m.world()
	w.asked = without(w.asked, m.name)
	var token uint64
	for _, p := range m.parts {
		token = max(token, p.call.hold.Token)
	}
	for _, p := range m.parts {
		if h := p.call.hold; h.Token < token {
			h.Below(h.Token)
		}
		x := p.client.world
		x.judge.seen = max(x.judge.seen, token)
	}
	w.tell("    %s holds all its names", m.name)
}

// release is the release of the lease on all names.
func (m *multi) release() {
	m.giveBack(m.core.In(core.PartHeld))
	m.end()
}

func (m *multi) end() {
	m.phase, m.over = over, time.Time{}
	m.world().asked = without(m.world().asked, m.name)
}

// giveBack is releaseAll: one script releases what can be released with others.
func (m *multi) giveBack(parts []int) {
	f := &flight{Kind: endAllKind}
	var first *client
	for _, i := range parts {
		p := m.parts[i]
		c := p.client
		if !c.lock.MayLet(p.call.hold, p.leases()) {
			p.release()
			continue
		}
		p.phase, p.using = over, nil
		c.input(func(x *core.Input) { c.lock.BeginRelease(x, p.call.hold, "") })
		d := core.ReleaseOf(p.ticket)
		f.All = append(f.All, &flight{Kind: endKind, From: c.name, At: c.world.number, Release: &d})
		if first == nil {
			first = c
		}
	}
	if first != nil {
		first.request(f, attemptTime)
	}
}

// giveUp is the end of the context of a call.
func (m *multi) giveUp() {
	m.phase = sleeping
	for _, p := range m.parts {
		p.ended = true
		if p.phase != holding && p.phase != over {
			p.phase = running
			p.run(core.Step{})
		}
	}
}

// runAll has the server run a script for several names.
func (w *world) runAll(f *flight, live bool) {
	all := make([]*model.Mutex, len(f.All))
	hears := make([]map[string]bool, len(f.All))
	var tickets []string
	var arrivals []int64
	for i, one := range f.All {
		x := w.names[one.At]
		all[i], hears[i] = x.mutex, x.before(x.clientNamed(f.From), one, live)
		if one.Kind == endKind {
			tickets = append(tickets, one.Release.Text)
		} else {
			tickets, arrivals = append(tickets, one.Ask.Text), append(arrivals, one.Ask.Arrival)
		}
	}
	var replies []wire.Tuple
	if f.Kind == endAllKind {
		replies = model.EndAll{Tickets: tickets, Floor: f.Floor}.Run(all, w.us())
	} else {
		replies = model.AskAll{
			Tickets: tickets, Arrivals: arrivals, Mode: f.All[0].Ask.Mode, NotAfter: f.NotAfter, Floor: f.Floor, Phase: wire.PhaseHeld,
		}.Run(all, w.us())
	}
	for i, one := range f.All {
		x := w.names[one.At]
		x.after(x.clientNamed(f.From), one, live, &replies[i], hears[i])
		f.Reply = one.Reply
	}
}

// noteOrder notes that a call for several names has its places, in the order in which such calls come.
func (w *world) noteOrder(f *flight, t *wire.Tuple) {
	if f.Kind != askKind || t.Status != wire.Granted && t.Status != wire.Waiting {
		return
	}
	if k := w.ofTicket(f.Ask.Text); k != nil && k.multi != nil && k.multi.phase != over && !slices.Contains(w.asked, k.multi.name) {
		w.asked = append(w.asked, k.multi.name)
	}
}

// inOrder reports whether calls for several names stand in the same order in all queues: that in which they have asked.
func (w *world) inOrder() bool {
	for _, x := range w.names {
		last := -1
		for _, a := range x.line().Queue {
			k := x.ofTicket(a.Ticket)
			if k == nil || k.multi == nil || k.phase == over {
				continue
			}
			nth := slices.Index(w.asked, k.multi.name)
			if nth < last {
				return false
			}
			last = nth
		}
	}
	return true
}
