package main

import (
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/permits"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A server is the model of the scripts, which the scripts are fuzzed against.
type server struct {
	mutex   *model.Mutex  // of a name that one holds at a time
	permits *permits.Lock // or of one that several hold
}

// line is the queue of the name, whoever holds it.
func (s *server) line() *line.Line {
	if s.mutex != nil {
		return &s.mutex.Line
	}
	return &s.permits.Line
}

// listens has the server know that a client subscribes, or not any more.
func (s *server) listens(client string, on bool) {
	l := s.line()
	if !on {
		delete(l.Hears, client)
	} else {
		l.Hears[client] = true
	}
}

// hears reports whether messages go to a client.
func (s *server) hears(client string) bool { return s.line().Hears[client] }

// run has the server run a request. live: its client waits for the answer.
func (w *world) run(c *client, f *flight, live bool) {
	w.tell("    the server runs %s%s", f.what(), map[bool]string{false: ", late"}[live])
	switch f.Kind {
	case subscribeKind:
		w.listens(c.name, true)
		w.zombies = slices.DeleteFunc(w.zombies, func(z string) bool { return z == c.name })
		c.push(&flight{Kind: subscribeKind})
		return
	case echoKind:
		w.publish(stage.Message{Client: c.name, Text: wire.EchoMessage(f.Nonce)})
		return
	}
	if w.buried && f.From == w.scope.Buries && f.mortal() && !w.scope.RunsOn {
		return // It is refused, and nobody hears of that.
	}
	if len(f.All) > 0 {
		w.runAll(f, live)
	} else {
		hears := w.before(c, f, live)
		if o := w.awaited(); o != nil {
			o.serve(w, c, f, live)
			w.line().Hears = hears
			return
		}
		t := w.script(c, f)
		w.after(c, f, live, &t, hears)
	}
	if live && c.life != dead {
		f.Late = false
		c.send(toClient, f)
	}
}

// before prepares that a script runs, and returns who subscribes. The server counts those that subscribe at itself, and connections
// that nobody reads any more.
func (w *world) before(c *client, f *flight, live bool) (hears map[string]bool) {
	l := w.line()
	hears = l.Hears
	l.Hears = map[string]bool{}
	for name := range hears {
		l.Hears[name] = name != w.scope.Replica
	}
	for _, z := range w.zombies {
		l.Hears[z] = true
	}
	if w.occasion == nil {
		w.judge.before(w, c, f, live)
	}
	return hears
}

// after is what comes of a script that has run: it is judged, and messages are sent, and the reply is written.
func (w *world) after(c *client, f *flight, live bool, t *wire.Tuple, hears map[string]bool) {
	l := w.line()
	l.Hears = hears
	if w.scope.Quick {
		w.to(micro(w.notes().Token)) // More time passes than from one token to the next.
	}
	if len(w.multis) > 0 {
		w.to(micro(w.notes().High + 1)) // And here than from one place to the next, as those of two names are compared.
	}
	sent := slices.Clone(l.Sent)
	l.Sent = nil
	w.judge.after(w, c, f, live, t)
	for _, m := range sent {
		w.publish(m)
	}
	if !live || c.life == dead {
		return
	}
	if f.Kind == askKind {
		t.Complete(leaseTime, 0)
	} else if f.Kind == endKind && f.Release.Ticket != nil {
		t.Complete(0, f.Release.Ticket.Takes())
	}
	reply := wire.Reply(*t)
	f.Reply = &reply
}

// publish sends a message to a client, if it subscribes.
func (w *world) publish(m stage.Message) {
	c := w.clientNamed(m.Client)
	if own := c != nil && c.attends && m.Text[0] == byte(wire.MessageForced); c == nil || c.life == dead || !w.hears(m.Client) && !own || c.half {
		return
	}
	parsed, err := wire.ParseMessage(m.Text)
	if err != nil {
		w.judge.find("a message that cannot be read: " + m.Text)
		return
	}
	c.push(&flight{Kind: messageKind, Message: &parsed})
}

// push sends something on the connection that subscribes.
func (c *client) push(f *flight) { c.send(pushes, f) }

// script runs the script of a request.
func (w *world) script(c *client, f *flight) wire.Tuple {
	if w.mutex == nil {
		return w.permitScript(c, f)
	}
	now := w.us()
	switch f.Kind {
	case askKind:
		if x := f.Transit; x != nil {
			return model.Move{From: x.Ticket(), To: f.Ask.Text, Secret: x.Hex(), Phase: wire.PhaseHeld, NotAfter: f.NotAfter, Floor: f.Floor}.Run(w.mutex, now)
		}
		return model.Ask{
			Ticket: f.Ask.Text, Mode: f.Ask.Mode, NotAfter: f.NotAfter, Arrival: f.Ask.Arrival, Floor: f.Floor, Phase: wire.PhaseHeld, Bound: boundOf(f.Ask.Limit),
		}.Run(w.mutex, now)
	case checkKind:
		tickets, bounds := named(f)
		return model.Check{Client: c.name, Mode: f.Check.Round.Mode, NotAfter: f.NotAfter, Floor: f.Floor, Tickets: tickets, Bounds: bounds}.Run(w.mutex, now)
	case endKind:
		if d := f.Release; d.Moves {
			x := d.Owner.(*lua.Transit)
			token := int64(d.Ticket.Grant().Token)
			return model.Move{From: d.Text, To: x.Ticket(), Token: token, Phase: wire.PhaseFinal, NotAfter: 1 << 53, Floor: f.Floor}.Run(w.mutex, now)
		}
		return model.End{Ticket: f.Release.Text, Token: int64(f.Release.Token), Floor: f.Floor, Rests: f.Release.Rests, How: f.Release.How}.Run(w.mutex, now)
	case forceKind:
		return model.Force{}.Run(w.mutex, now)
	case buryKind:
		return model.Bury{Client: f.Release.Text}.Run(w.mutex, now)
	}
	r, least := f.Renewal, int64(0)
	if r.Stays {
		least = r.Least.Milliseconds()
	}
	count, revision := entries(r.Entries)
	return model.Renew{
		Ticket: r.Text, Token: int64(r.Token), Lease: r.Lasts.Milliseconds(), Phase: phaseOf(f), NotAfter: f.NotAfter, Wants: r.Wishes, Marked: r.Said, Least: least,
		Count: count, Revision: revision,
	}.Run(w.mutex, now)
}

// permitScript is the same for a name that several hold.
func (w *world) permitScript(c *client, f *flight) wire.Tuple {
	now, l, limit := w.us(), w.permits, w.scope.permits()
	switch f.Kind {
	case askKind:
		return permits.Ask{
			Ticket: f.Ask.Text, Mode: f.Ask.Mode, NotAfter: f.NotAfter, Arrival: f.Ask.Arrival, Floor: f.Floor, Phase: wire.PhaseHeld, Who: c.name,
			Limit: limit, Bound: boundOf(f.Ask.Limit),
		}.Run(l, now)
	case checkKind:
		tickets, bounds := named(f)
		return permits.Check{
			Client: c.name, Mode: f.Check.Round.Mode, NotAfter: f.NotAfter, Floor: f.Floor, Tickets: tickets, Bounds: bounds, Limit: limit,
		}.Run(l, now)
	case endKind:
		return permits.End{Ticket: f.Release.Text, Token: int64(f.Release.Token), Floor: f.Floor, Rests: f.Release.Rests, How: f.Release.How}.Run(l, now)
	case buryKind:
		return permits.Bury{Client: f.Release.Text}.Run(l, now)
	}
	r := f.Renewal
	return permits.Renew{
		Ticket: r.Text, Token: int64(r.Token), Lease: r.Lasts.Milliseconds(), Phase: phaseOf(f), Who: c.name, NotAfter: f.NotAfter, Wants: r.Wishes,
	}.Run(l, now)
}

// phaseOf is renewal.phase.
func phaseOf(f *flight) string {
	if f.Renewal.Idle && f.Renewal.Wishes {
		return wire.PhaseIdle
	}
	if f.Renewal.Final {
		return wire.PhaseFinal
	}
	return wire.PhaseHeld
}

func boundOf(limit int) *line.Bound {
	if limit == 0 {
		return nil
	}
	return &line.Bound{Limit: int64(limit)}
}

// named is what a check brings.
func named(f *flight) (tickets []lua.Arrival, bounds map[string]line.Bound) {
	for _, n := range f.Check.Named {
		tickets = append(tickets, lua.Arrival{Ticket: n.Text, Arrival: n.Arrival})
		if n.Limit > 0 {
			if bounds == nil {
				bounds = map[string]line.Bound{}
			}
			bounds[n.Text] = line.Bound{Limit: int64(n.Limit)}
		}
	}
	return tickets, bounds
}

// A grip is a hold as the server has it.
type grip struct {
	text  string
	until int64 // server µs
	full  bool  // it is not one by message that was not renewed yet
	token int64
}

// grips are the holds that the server has, those whose lease is over among them.
func (s *server) grips() (all []grip) {
	if m := s.mutex; m != nil {
		if m.Lock.Owner != "" {
			all = append(all, grip{m.Lock.Owner, m.Lock.Until, m.Lock.Phase != "granted", m.Lock.Token})
		}
		return all
	}
	for text, h := range s.permits.Hash.Holds {
		all = append(all, grip{text, s.permits.Holders[text], h.Phase != 'g', h.Token})
	}
	slices.SortFunc(all, func(a, b grip) int { return strings.Compare(a.text, b.text) })
	return all
}

// notes are what the server has noted of the queue.
func (s *server) notes() *line.Notes {
	if s.mutex != nil {
		return &s.mutex.Lock.Notes
	}
	return &s.permits.Hash.Notes
}

// suspected reports whether the server passes a client over because it let a lease run out.
func (s *server) suspected(client string, now int64) bool {
	at, ok := s.line().Suspects[client]
	return ok && s.notes().Marked && at <= now
}

// ofTicket returns the call whose ticket has a text; nil if there is none.
func (w *world) ofTicket(text string) *call {
	for _, k := range w.calls {
		if k.ticket != nil && k.ticket.Text == text {
			return k
		}
	}
	return nil
}

func micro(us int64) time.Time { return time.UnixMicro(us) }
