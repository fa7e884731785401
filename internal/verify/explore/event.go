package main

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// The shell of a client that waits for events: what waitqueue does in await.go and watch.go. Where nothing else is said, the
// connections and timers are those of the other worlds.

var (
	errBroken    = errors.New("broken")
	errForgotten = errors.New("forgotten")
	errTimeOut   = errors.New("the call has given up")
	errAction    = errors.New("the action has failed")
)

// An errand is what a flight has to do with an event.
type errand struct {
	Acquire *event.Acquire
	Check   *event.Check
	Named   []awaiting // of the check
	Since   int64      // a time of the server before which no earlier request of the call can have run
	Reply   *wire.EventReply

	// How the action of a party has ended.
	Text       string
	Generation int64
	OK         bool
}

// An awaiting is a waiter that a check names, and the generation that it waits for.
type awaiting struct {
	Text       string
	Generation int64
}

func init() {
	for name, r := range map[string]rule{
		"event.Waiter.tries": skip, "event.Waiter.Generation": generation, "event.Event.news": generation, "event.Event.generation": generation,
		"event.Acquire.Generation": generation, "event.Acquire.Seen": generation, "event.Acquire.LostSince": sending,
		"wire.EventReply.Generation": generation, "wire.EventReply.Awaited": generation, "wire.EventReply.Until": sign, "wire.EventReply.Waiting": skip,
		"wire.Head.Now": skip, "wire.Head.Skipped": skip, "wire.Head.Expired": skip, "wire.Message.Generation": generation,
		"main.errand.Since": sending, "main.awaiting.Generation": generation, "main.errand.Generation": generation,
	} {
		rules[name] = r
	}
	beginsWaiter = func(p unsafe.Pointer) bool {
		k, _ := (*core.Call)(p).Owner.(*call)
		return k != nil && unsafe.Pointer(k.waiter) == p
	}
}

// waiterForm writes of a waiter since when an answer is missing, which its next request tells.
func waiterForm(e *encoder, p unsafe.Pointer) bool {
	since := int64(0)
	if at := (*event.Waiter)(p).LostSince(); !at.IsZero() {
		since = at.UnixNano()
	}
	e.number(sending, since, 1)
	return false
}

// An occasion is what the calls wait for in place of a hold: an event. It has the shell of its clients, its server and its judge.
type occasion interface {
	joins(c *client)
	start(k *call)
	run(k *call, step core.Step)
	check(c *client)
	answered(c *client, q *flight, f *core.Failure)
	message(c *client, text *wire.Message)
	serve(w *world, c *client, f *flight, live bool)
	steps(w *world, add adder)
	mayPass(w *world, at time.Time) bool
	look(w *world) string
}

// awaited returns what the calls wait for in place of a hold; nil if they wait for one.
func (w *world) awaited() occasion {
	o, _ := w.occasion.(occasion)
	return o
}

// A decider is what both cores take in.
type decider interface {
	OnTimer(x *core.Input)
	OnSubscribed(x *core.Input, channels int, nonce string)
	OnUnsubscribed(x *core.Input)
	Listens() bool
}

func (c *client) decider() decider {
	if c.event != nil {
		return c.event
	}
	return c.lock
}

// start is Queue.Await.
func (m *meeting) start(k *call) {
	c, w := k.client, k.client.world
	w.to(w.now.Add(thought)) // Who comes later has a later time.
	number, _ := strconv.ParseUint(k.name[1:], 10, 64)
	v := &event.Waiter{Takes: grantTime}
	v.Owner, v.Begun, v.Lease, v.Place, v.Budget = k, w.now, leaseTime, -1, attemptTime
	v.Text = wire.Ticket{Client: c.name, Number: number, Kind: wire.Party, Permits: 1, Lease: leaseTime, Grant: grantTime}.String()
	k.waiter, k.phase = v, running
	m.begins(w, k)
	c.input(func(*core.Input) { c.event.Register(v) })
	m.run(k, core.Step{})
}

// run is attendance.run: it does what the core says until the call has to wait.
func (m *meeting) run(k *call, step core.Step) {
	c := k.client
	for {
		switch step.Do {
		case core.Fail:
			m.past(k, step.Err)
			return
		case core.Pause:
			if !k.ended {
				k.phase, k.until = pausing, c.world.now.Add(step.Rest)
				return
			}
		}
		c.input(func(*core.Input) { step = c.event.Next(k.waiter, k.ended) })
		switch step.Do {
		case core.Return:
			m.past(k, nil)
			return
		case core.TimeOut:
			m.past(k, errTimeOut)
			return
		case core.Ask:
			if m.ask(k) {
				return
			}
			step = core.Step{}
		case core.Act:
			k.phase = acting
			return
		case core.Sleep:
			if !k.woken {
				k.phase = sleeping
				return
			}
			k.woken = false
		}
	}
}

// ask is attendance.ask.
func (m *meeting) ask(k *call) bool {
	c := k.client
	var q event.Acquire
	var ok bool
	c.input(func(x *core.Input) { q, ok = c.event.BeginAcquire(x, k.waiter, x.Now) })
	if !ok {
		return false
	}
	k.phase = asking
	e := &errand{Acquire: &q}
	f := &flight{Kind: askKind, Owner: k, Errand: e}
	if !q.LostSince.IsZero() {
		e.Since = q.LostSince.UnixMicro() - 1
	}
	c.request(f, k.waiter.Budget)
	return true
}

// past is the end of attendance.run, and Queue.Await behind it.
func (m *meeting) past(k *call, err error) {
	c := k.client
	k.phase, k.woken = over, false
	m.passes(c.world, k, err)
	c.input(func(x *core.Input) { c.event.Finish(x, k.waiter) })
}

// acts is attendance.act from the end of the action on.
func (m *meeting) acts(k *call, ok bool) {
	k.phase, k.acted, k.goesOn = opening, ok, k.waiter.MayAct()
	m.reports(k)
}

// reports is attendance.open, which sends its request again until it is answered.
func (m *meeting) reports(k *call) {
	k.client.request(&flight{Kind: openKind, Owner: k, Errand: &errand{Text: k.waiter.Text, Generation: k.waiter.Generation, OK: k.acted}}, attemptTime)
}

// check is watch.runChecks and watch.checkOnce up to the sending.
func (m *meeting) check(c *client) { m.send(c, c.event.BeginChecks(c.world.now)) }

func (m *meeting) send(c *client, check *event.Check) {
	e := &errand{Check: check}
	for _, v := range check.Named {
		e.Named = append(e.Named, awaiting{v.Text, v.Generation})
	}
	c.request(&flight{Kind: checkKind, Errand: e}, attemptTime)
}

// answered takes in the answer to a request, or its lack.
func (m *meeting) answered(c *client, q *flight, f *core.Failure) {
	r := &wire.EventReply{}
	if f.Err == nil {
		r, c.heard = q.Errand.Reply, true
		m.Silent = without(m.Silent, c.name)
	} else {
		m.Silent = with(m.Silent, c.name)
	}
	switch e := q.Errand; q.Kind {
	case askKind: // attendance.replied
		k := q.Owner.(*call)
		var step core.Step
		c.input(func(x *core.Input) {
			step = c.event.OnReply(x, e.Acquire, q.Attempt, r, f, verdict(r))
			if f.Err != nil && k.phase == asking && !k.ended {
				step = c.event.Retry(x, k.waiter, f)
			}
		})
		if k.phase == asking {
			k.phase = running
			m.run(k, step)
		}
	case checkKind: // watch.checkOnce
		more := false
		errs := make([]event.Errors, len(e.Named))
		for i := range errs {
			errs[i] = event.Errors{Broken: errBroken, Forgotten: errForgotten}
		}
		c.input(func(x *core.Input) { more = c.event.OnCheckReply(x, e.Check, q.Attempt, r, errs, f) })
		if more {
			m.send(c, e.Check)
		}
	case endKind: // watch.answered
		c.input(func(x *core.Input) {
			c.event.OnReleaseReply(x, q.Release.Call.Owner.(*call).waiter, q.Release, q.Attempt.Sent, f)
		})
	case openKind: // attendance.act
		k := q.Owner.(*call)
		switch {
		case f.Err != nil || r.Status == wire.Late:
			m.reports(k)
		case !k.goesOn:
			k.phase = running
			m.run(k, core.Step{})
		case !k.acted:
			k.waiter.Clean = true
			m.past(k, errAction)
		case r.Status != wire.Granted:
			k.waiter.Clean = true
			m.past(k, verdict(r))
		default:
			c.input(func(x *core.Input) { c.event.Acted(x, k.waiter, r.Index) })
			m.past(k, nil)
		}
	}
}

// verdict is what an answer means that is no success.
func verdict(r *wire.EventReply) error {
	if r.Status == wire.Broken {
		return errBroken
	}
	return errForgotten
}

// message is watch.Message.
func (m *meeting) message(c *client, text *wire.Message) {
	c.input(func(x *core.Input) {
		switch text.Kind {
		case wire.MessageOpen, wire.MessageBroken:
			c.event.OnMessage(x, text.Generation, text.Kind == wire.MessageOpen, func(*event.Waiter) error { return errBroken })
		case wire.MessageEcho:
			c.event.OnPing(x, text.Nonce)
		}
	})
}

// names says which calls a flight is about.
func (e *errand) names() string {
	var all []string
	if e.Acquire != nil {
		all = append(all, shortly(e.Acquire.Text))
	}
	for _, a := range e.Named {
		all = append(all, shortly(a.Text))
	}
	return strings.Join(all, ", ")
}

// detach has a request that nobody waits for lead to no waiter.
func (f *flight) detach() {
	if f.Kind == endKind {
		f.Release = &core.Release{Text: f.Release.Text}
		return
	}
	e := *f.Errand
	e.Check = nil
	if f.Errand = &e; e.Acquire != nil {
		q := *e.Acquire
		q.Waiter = nil
		e.Acquire = &q
	}
}
