package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Calls for several names of one slot: what AcquireAll of waitqueue does with a core, without goroutines.

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
	place  int64     // of a call that is forgotten
	asked  time.Time // of the first request that may have run
	came   int64     // the place that a request has got for the names that it did not grant
}

func (r *shared) addMulti(name, wants string) {
	m := &multi{name: name[:1], wants: wants}
	for _, n := range wants {
		m.parts = append(m.parts, &part{client: r.names[strings.IndexRune(names, n)].client(m.name)})
	}
	r.multis = append(r.multis, m)
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

// multiSteps are those of calls for several names.
func (w *world) multiSteps(add adder) {
	for i, m := range w.multis {
		if m.life() != alive {
			continue
		}
		waits := func(do func(m *multi), text string) {
			if w.mayPass(m.until) {
				add(func(w *world) {
					w.to(w.multis[i].until)
					do(w.multis[i])
				}, text, m.name)
			}
		}
		switch m.phase {
		case unborn:
			if w.mayAskAll(i) {
				add(func(w *world) { w.multis[i].start() }, "%s asks for the names %s", m.name, m.wants)
			}
		case hearing:
			waits((*multi).askToWait, "%s waits no more until it is subscribed")
		case pausing:
			waits((*multi).ask, "%s asks again")
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
	if m.world().scope.OneByOne {
		m.asked()
		return
	}
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
	arrival = cmp.Or(arrival, p.came)
	if arrival == 0 && !p.asked.IsZero() {
		arrival = p.asked.UnixMicro()
	}
	if w.scope.NewPlace {
		arrival = 0
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
		f.All = append(f.All, &flight{Kind: askKind, From: c.name, At: c.world.number, Owner: p.call, Ask: q})
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
			m.parts[one.Owner.(*call).part].asked = time.Time{} // The server has nothing of it.
		}
		for i := 0; i < len(m.parts) && r.Status == wire.Waiting; i++ {
			m.parts[i].came = r.Arrival
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
	w.shared.tell("    %s holds all its names", m.name)
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
