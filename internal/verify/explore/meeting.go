package main

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/barrier"
	"github.com/headwaiter/headwaiter/internal/verify/model/election"
	"github.com/headwaiter/headwaiter/internal/verify/model/latch"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	parties  = 2
	lifetime = 24 * 60 * 60 * 1000 // ms
)

// A meeting is an event at the server, and what a judge keeps of it. The world has one of the three. Who subscribes is in the
// mutex of the world, which is the election's.
type meeting struct {
	Latch    *latch.Latch
	Barrier  *barrier.Barrier
	Election *election.Election
	Acts     bool // the last party has an action to run

	Fates  map[string]fate // of tickets
	Silent []string        // clients whose last request had no answer
	Sets   int             // how often the latch is set again, or somebody leads, while others wait
}

// A fate is what has become of a ticket at the server, whatever its client knows.
type fate struct {
	Outcome    outcome
	Generation int64
	Place      int64
}

type outcome byte

const (
	waits   outcome = 'W'
	tripped outcome = 'T'
	broken  outcome = 'B'
	gone    outcome = 'G' // it has left, and had not come
)

// What can be found.
const (
	tooEarly     = "passed too early"
	notAlike     = "not the same for all"
	arrivesTwice = "arrives twice"
	falseSilence = "silence where there is none"
)

func init() {
	for name, r := range map[string]rule{
		"latch.Latch.Generation": generation, "latch.Latch.First": skip, "latch.Latch.Lifetime": skip, "latch.Latch.Ends": skip, "latch.Latch.Ears": skip,
		"barrier.Barrier.Generation": generation, "barrier.Barrier.First": local, "barrier.Barrier.Lifetime": skip, "barrier.Barrier.Ended": local,
		"barrier.Barrier.Horizon": local, "barrier.Barrier.Leases": skip, "barrier.Barrier.ends": skip, "barrier.Arrival.Since": skip,
		"stage.Calls.Until": sign, "stage.Calls.Ends": skip,
		"election.Election.Token": token, "election.Election.Revision": generation, "election.Election.Ears": skip,
		"main.fate.Generation": generation,
	} {
		rules[name] = r
	}
	parts = append(parts, reflect.TypeFor[meeting]())
}

// meetingForm notes from which generation on they are counted, and writes down the places of parties.
func meetingForm(e *encoder, p unsafe.Pointer) bool {
	switch m := (*meeting)(p); {
	case m.Latch != nil:
		e.first = m.Latch.First
	case m.Barrier != nil:
		e.first = m.Barrier.First
		for _, ticket := range slices.Sorted(maps.Keys(m.Barrier.Leases)) { // Which ends first counts too.
			until := m.Barrier.Leases[ticket]
			e.text(ticket)
			e.bool(until*1000 > e.now)
			e.number(place, until, 1)
		}
	default:
		e.first = 0
	}
	return false
}

// The events that the calls of a scope may wait for: a latch of two, a barrier of two parties, one with an action, and another
// leader or another proclamation.

func latchOfTwo(w *world) {
	m := &meeting{Latch: &latch.Latch{}}
	latch.Set{Count: parties, Lifetime: lifetime}.Run(m.Latch, startMicros)
	m.beginsIn(w)
}

func barrierOfTwo(w *world) { (&meeting{Barrier: barrier.New()}).beginsIn(w) }

func barrierWithAction(w *world) { (&meeting{Barrier: barrier.New(), Acts: true}).beginsIn(w) }

func leadership(w *world) {
	m := &meeting{Election: election.New()}
	m.beginsIn(w)
	m.Election.Mutex = w.mutex
}

func (m *meeting) beginsIn(w *world) {
	m.Fates, m.Sets = map[string]fate{}, w.scope.Sets
	w.mutex, w.occasion = model.New(), m
}

// joins makes the core of a client.
func (m *meeting) joins(c *client) {
	w := c.world
	c.input(func(x *core.Input) {
		c.event = event.New(x, event.Config{Places: m.Barrier != nil, Latest: m.Election != nil}, core.Name{
			Linger: 1000 * time.Hour, Subscription: core.Subscription{Born: w.now},
		})
	})
}

// serve has the server run a request about the event.
func (m *meeting) serve(w *world, c *client, f *flight, live bool) {
	if f.Errand == nil {
		f.Errand = &errand{}
	}
	t, reply := m.script(w, c, f)
	m.judge(w)
	m.broadcast(w)
	if live && c.life != dead {
		r := reply(&t)
		f.Errand.Reply, f.Late = &r, false
		c.send(toClient, f)
	}
}

// broadcast sends what the event has published to all who subscribe.
func (m *meeting) broadcast(w *world) {
	var sent []string
	switch {
	case m.Latch != nil:
		sent = m.Latch.Take()
	case m.Barrier != nil:
		sent = m.Barrier.Take()
	default:
		for _, s := range m.Election.Sent {
			sent = append(sent, s.Text)
		}
		m.Election.Sent = nil
	}
	for _, text := range sent {
		for _, c := range w.clients {
			w.publish(stage.Message{Client: c.name, Text: text})
		}
	}
}

// script runs the script of a request.
func (m *meeting) script(w *world, c *client, f *flight) (t wire.Tuple, reply func(*wire.Tuple) wire.EventReply) {
	e, now := f.Errand, w.us()
	var named []lua.Arrival
	for _, a := range e.Named {
		named = append(named, lua.Arrival{Ticket: a.Text, Arrival: a.Generation})
	}
	switch {
	case m.Latch != nil && f.Kind == askKind:
		t = latch.Ask{Ticket: e.Acquire.Text, Mode: e.Acquire.Mode, NotAfter: f.NotAfter, Seen: e.Acquire.Generation}.Run(m.Latch, now)
		if t.Status == wire.Granted {
			m.Fates[e.Acquire.Text] = fate{Outcome: tripped}
		} else if m.Fates[e.Acquire.Text] == (fate{}) && t.Status == wire.Waiting {
			m.Fates[e.Acquire.Text] = fate{Outcome: waits, Generation: lua.Countdown.Event(&t).Awaited}
		}
		return t, lua.Countdown.Event
	case m.Latch != nil:
		return latch.Check{Client: c.name, NotAfter: f.NotAfter, Tickets: named}.Run(m.Latch, now), lua.Countdown.Event
	case m.Election != nil && f.Kind == askKind:
		return election.Watch{Seen: m.Fates[e.Acquire.Text].Generation}.Run(m.Election, now), lua.Leadership.Event
	case m.Election != nil:
		look := election.Look{}
		for _, a := range named {
			look.Seen = append(look.Seen, a.Arrival)
		}
		return look.Run(m.Election, now), lua.Leadership.Event
	}
	b := m.Barrier
	g, over := b.Generation, false
	for _, until := range b.Leases {
		over = over || until <= now
	}
	t = m.atBarrier(w, c, f, named)
	if over && b.Generation > g && outcome(b.Past[0]) == tripped {
		w.judge.find(tooEarly) // With a party that is dead.
	}
	return t, lua.Barrier.Event
}

func (m *meeting) atBarrier(w *world, c *client, f *flight, named []lua.Arrival) wire.Tuple {
	b, e, now := m.Barrier, f.Errand, w.us()
	switch f.Kind {
	case askKind:
		q := e.Acquire
		return barrier.Ask{
			Ticket: q.Text, NotAfter: f.NotAfter, Arrival: q.Generation, Who: c.name, Parties: parties, Action: m.Acts,
			Repeated: e.Since != 0, Since: e.Since, Lifetime: lifetime, Seen: q.Seen,
		}.Run(b, now)
	case checkKind:
		return barrier.Check{Client: c.name, NotAfter: f.NotAfter, Tickets: named}.Run(b, now)
	case endKind:
		if ticket := f.Release.Text; m.Fates[ticket].Outcome == 0 {
			m.Fates[ticket] = fate{Outcome: gone}
		}
		return barrier.End{Ticket: f.Release.Text}.Run(b, now)
	}
	return barrier.Open{Ticket: e.Text, Generation: e.Generation, OK: e.OK, NotAfter: f.NotAfter}.Run(b, now)
}

// judge notes what has become of tickets, and judges that they arrive once and that all of one generation have one fate.
func (m *meeting) judge(w *world) {
	b := m.Barrier
	if b == nil {
		return
	}
	note := func(arrivals map[string]barrier.Arrival, g int64, o outcome) {
		for ticket, a := range arrivals {
			switch f := m.Fates[ticket]; {
			case f.Outcome != 0 && f.Generation != g:
				w.judge.find(arrivesTwice)
			case f.Outcome == tripped && o != tripped, f.Outcome == broken && o == tripped:
				w.judge.find(notAlike)
			}
			m.Fates[ticket] = fate{o, g, a.Index}
		}
	}
	if b.Past != "" {
		note(b.Last, b.Generation-1, outcome(b.Past[0]))
	}
	if b.Broken {
		note(b.Arrivals, b.Generation, broken)
	} else {
		note(b.Arrivals, b.Generation, waits)
	}
}

// begins notes that a call begins to wait. Who observes an election has seen something before.
func (m *meeting) begins(w *world, k *call) {
	if m.Election != nil {
		t := election.Leader{}.Run(m.Election, w.us())
		m.Fates[k.waiter.Text] = fate{waits, lua.Leadership.Event(&t).Generation, 0}
	}
}

// passes judges how a call ends.
func (m *meeting) passes(w *world, k *call, err error) {
	w.tell("    %s comes back: %v", k.name, err)
	c, f := k.client, m.Fates[k.waiter.Text]
	switch {
	case err == errTimeOut:
		m.silence(w, c)
	case m.Barrier != nil:
		forgotten := errors.Is(err, errForgotten) && m.Barrier.Generation > f.Generation+1
		switch {
		case err == nil && (f.Outcome != tripped || int64(k.waiter.Place) != f.Place):
			w.judge.find(tooEarly)
		case err != nil && f.Outcome == tripped && !forgotten:
			w.judge.find(notAlike)
		case err != nil && f.Outcome == waits:
			w.judge.find(notAlike)
		}
	case err != nil:
		w.judge.find(refusedWrong)
	case m.Latch != nil:
		if open := m.Latch.Count == 0; f.Outcome != tripped && m.Latch.Generation == f.Generation && !open {
			w.judge.find(tooEarly)
		}
	case election.Watch{Seen: f.Generation}.Run(m.Election, w.us()).Status != wire.Granted:
		w.judge.find(tooEarly)
	}
}

// silence judges that a client does not say that the server is silent while it answers.
func (m *meeting) silence(w *world, c *client) {
	long := func(f *flight) bool { return w.now.Sub(f.Attempt.Sent) > core.SlowAnswer }
	if c.event.Silent(w.now) && !slices.Contains(m.Silent, c.name) && !slices.ContainsFunc(c.requests, long) && !slices.ContainsFunc(c.replies, long) {
		w.judge.find(falseSilence)
	}
}

// look judges a state.
func (m *meeting) look(w *world) string {
	if m.Barrier == nil || m.Barrier.Broken || len(w.old) > 0 {
		return ""
	}
	for ticket := range m.Barrier.Arrivals {
		if k := ofWaiter(w, ticket); k != nil && k.phase == over && k.client.life == alive && k.client.quiet() {
			return ghost
		}
	}
	return ""
}

// steps are what others do, and what comes with time.
func (m *meeting) steps(w *world, add adder) {
	do := func(r func(m *meeting, now int64)) func(w *world) {
		return func(w *world) {
			m := w.occasion.(*meeting)
			r(m, w.us())
			m.judge(w)
			m.broadcast(w)
		}
	}
	switch {
	case m.Latch != nil && m.Latch.Count > 0:
		add(do(func(m *meeting, now int64) { latch.Down{}.Run(m.Latch, now) }), "somebody counts down")
	case m.Latch != nil && m.Sets > 0:
		add(do(func(m *meeting, now int64) {
			m.Sets--
			latch.Set{Count: parties, Lifetime: lifetime}.Run(m.Latch, now)
		}), "somebody sets the latch again")
	case m.Election != nil && (m.Sets > 0 || m.idle(w)):
		m.leaderSteps(do, add)
	}
	if m.Barrier == nil {
		return
	}
	for _, ticket := range slices.Sorted(maps.Keys(m.Barrier.Leases)) {
		if at := micro(m.Barrier.Leases[ticket]); at.After(w.now) && w.mayPass(at) {
			add(func(w *world) { w.to(at) }, "the place of %s runs out", shortly(ticket))
		}
	}
	if m.alone(w) {
		add(do(func(m *meeting, now int64) { barrier.Reset{}.Run(m.Barrier, now) }), "somebody resets the barrier")
	}
	for i, k := range w.calls {
		if k.phase == acting && k.client.life == alive {
			add(func(w *world) { w.occasion.(*meeting).acts(w.calls[i], true) }, "the action of %s ends well", k.name)
			add(func(w *world) { w.occasion.(*meeting).acts(w.calls[i], false) }, "the action of %s fails", k.name)
		}
	}
}

// leaderSteps are what the leader does. It comes back under the same ticket, and its tokens rise.
func (m *meeting) leaderSteps(do func(func(*meeting, int64)) func(*world), add adder) {
	leader := wire.Ticket{Client: "L", Number: 1, Kind: wire.Exclusive, Permits: 1, Lease: leaseTime, Grant: grantTime}.String()
	proclaim := func(m *meeting, now, number int64) {
		election.Proclaim{Ticket: leader, Token: m.Election.Lock.Token, Number: number, Who: "L", NotAfter: now, Value: "value"}.Run(m.Election, now)
	}
	switch e := m.Election; {
	case e.Lock.Owner == "" || e.Lock.Until <= 0:
		add(do(func(m *meeting, now int64) {
			m.Sets = max(m.Sets-1, 0)
			model.Ask{Ticket: leader, Mode: wire.Try, NotAfter: now, Phase: wire.PhaseHeld}.Run(m.Election.Mutex, now)
			proclaim(m, now, 1)
		}), "somebody leads")
	default:
		add(do(func(m *meeting, now int64) {
			election.End{End: model.End{Ticket: leader}}.Run(m.Election, now)
		}), "the leader resigns")
		if e.Number == 1 {
			add(do(func(m *meeting, now int64) { proclaim(m, now, 2) }), "the leader proclaims something else")
		}
	}
}

// alone reports whether parties wait for others who will never come, because those have given up or died.
func (m *meeting) alone(w *world) bool {
	b := m.Barrier
	for ticket := range b.Arrivals {
		if k := ofWaiter(w, ticket); k == nil || k.phase == over {
			return false
		}
	}
	return m.idle(w) && !b.Broken && b.Arrived > 0
}

// idle reports whether nothing is under way, and nobody can call.
func (m *meeting) idle(w *world) bool {
	for i, k := range w.calls {
		if k.client.life != dead && k.phase != over && k.phase != sleeping && (k.phase != unborn || w.mayCall(i)) {
			return false
		}
	}
	for _, c := range w.clients {
		if c.life == stopped || !c.quiet() || len(c.pushed) > 0 {
			return false
		}
	}
	return len(w.old) == 0
}

// ofWaiter returns the call whose waiter has a text; nil if there is none.
func ofWaiter(w *world, text string) *call {
	for _, k := range w.calls {
		if k.waiter != nil && k.waiter.Text == text {
			return k
		}
	}
	return nil
}

// mayPass reports whether time can come to a point: a client that runs has its checks keep its places until then.
func (m *meeting) mayPass(w *world, at time.Time) bool {
	if m.Barrier != nil {
		for ticket, until := range m.Barrier.Leases {
			if k := ofWaiter(w, ticket); k != nil && k.client.life == alive && k.waiter.Waits() && !at.Before(micro(until)) {
				return false
			}
		}
	}
	return true
}

var outcomes = map[wire.Status]string{
	wire.Granted: "the event has come", wire.Waiting: "to wait", wire.Acting: "to act", wire.Done: "done", wire.Broken: "broken",
	wire.Refused: "refused", wire.Late: "late",
}

// text is an answer as the ways have it.
func (e *errand) text() string {
	states := ""
	if len(e.Reply.States) > 0 {
		states = ": " + strings.Join(e.Reply.States, ", ")
	}
	return cmp.Or(outcomes[e.Reply.Status], "something else") + states
}
