package main

import (
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Worlds with several names: the processes that use them, and the scripts that see more than one.

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

// adds is what adds steps of the name to those of all.
func (w *world) adds(add adder) adder {
	if len(w.names) == 1 {
		return add
	}
	n := w.number
	return func(do func(w *world), format string, args ...any) {
		add(func(w *world) { do(w.names[n]) }, w.ofName(format), args...)
	}
}

// knows reports whether anybody knows a ticket with a number, or can hear of it.
func (w *world) knows(name string) bool {
	var all []string
	for _, k := range w.calls {
		if k.ticket != nil {
			all = append(all, k.ticket.Text)
		}
	}
	for _, a := range w.line().Queue {
		all = append(all, a.Ticket)
	}
	for _, g := range w.grips() {
		all = append(all, g.text)
	}
	for _, x := range w.names {
		under := slices.Clone(x.old)
		for _, c := range x.clients {
			under = slices.Concat(under, c.requests, c.replies, c.failed, c.pushed)
			for _, d := range c.later {
				all = append(all, d.release.Text)
			}
		}
		for _, f := range under {
			all = append(all, strings.Split(f.names(), ", ")...)
		}
	}
	return slices.ContainsFunc(all, func(text string) bool {
		text, _, _ = strings.Cut(shortly(text), "/")
		return text == name
	})
}

// runAll has the server run a script for several names.
func (w *world) runAll(f *flight, live bool) {
	all := make([]*model.Mutex, len(f.All))
	hears := make([]map[string]bool, len(f.All))
	var tickets, hows []string
	var arrivals []int64
	for i, one := range f.All {
		x := w.names[one.At]
		all[i], hears[i] = x.mutex, x.before(x.clientNamed(f.From), one, live)
		if one.Kind == endKind {
			tickets, hows = append(tickets, one.Release.Text), append(hows, one.Release.How)
		} else {
			tickets, arrivals = append(tickets, one.Ask.Text), append(arrivals, one.Ask.Arrival)
		}
	}
	var replies []wire.Tuple
	if f.Kind == endAllKind {
		replies = model.EndAll{Tickets: tickets, Hows: hows, Floor: f.Floor}.Run(all, w.us())
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
	if f.Kind != askKind || t.Status != wire.Waiting {
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
