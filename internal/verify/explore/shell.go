package main

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// The shell of a client in a world: what package waitqueue does with a core, without goroutines. Each part names the function
// that it stands for.

const (
	leaseTime   = 10 * time.Second
	grantTime   = 2 * time.Second
	attemptTime = 3 * time.Second // conn.AttemptTime
)

var (
	failure   = core.Failure{Err: errors.New("lost"), Advice: errors.New("lost"), Passes: true, Mendable: true}
	answered  = core.Failure{}
	errRefuse = errors.New("refused")
)

// input gives the core one input and performs its effects: entry.begin and entry.end.
// It reports whether that led to more than a timer.
func (c *client) input(do func(x *core.Input)) (more bool) {
	x := &core.Input{Now: c.world.now}
	do(x)
	for i := range x.Effects {
		e := &x.Effects[i]
		c.perform(e)
		more = more || e.Do != core.Timer && e.Do != core.HoldTimer && e.Do != core.Attend
	}
	if c.lock != nil {
		if broken := core.Broken(c.lock, &core.Outlook{Now: c.world.now, Timer: c.timer, HoldTimer: holdTimer, Sends: c.sends}); broken != "" {
			c.world.judge.find(broken)
		}
	}
	return more
}

func holdTimer(h *core.Hold) (at time.Time, set bool) {
	k := h.Ticket.Owner.(*call)
	return k.holdTimer, !k.holdTimer.IsZero()
}

// sends reports whether a release of a ticket is on its way, or to be sent later.
func (c *client) sends(t *core.Ticket) bool {
	is := func(f *flight) bool { return f.Kind == endKind && f.Release.Ticket == t }
	return slices.ContainsFunc(c.later, func(d *timed) bool { return d.release.Ticket == t }) || c.waitsFor(is)
}

// perform is entry.perform, lockEntry.do and hold.do.
func (c *client) perform(e *core.Effect) {
	w := c.world
	var k *call
	if e.Call != nil {
		k = e.Call.Owner.(*call)
	}
	switch e.Do {
	case core.Wake:
		k.woken = true
	case core.Timer:
		c.timer = times.First(c.timer, e.At)
	case core.Poll, core.PollSoon:
		c.poll = true
	case core.Subscribe:
		c.subscribe()
	case core.Reconnect:
		w.tell("    %s does not trust its subscription any more, and makes a new connection", c.name)
		c.again = true
		w.judge.hurt(c)
		c.subscribe()
	case core.Ping:
		c.request(&flight{Kind: echoKind, Nonce: e.Text}, attemptTime)
	case core.Attend:
		c.attends = c.world.scope.Forces
	case core.Retire:
		c.retires = true
	case core.Send:
		c.sendRelease(e.Release)
	case core.SendLater:
		c.later = append(c.later, &timed{e.At, e.Release})
	case core.RaiseToken:
		c.saw(e.Token)
	case core.HoldTimer:
		if e.Flag {
			k.holdTimer = time.Time{}
		}
		k.holdTimer = times.First(k.holdTimer, e.At)
	case core.StopHold:
		k.holdTimer = time.Time{}
	case core.Renew:
		k.renews = true
	case core.Lose:
		w.tell("    %s is told that its hold is lost", k.name)
	case core.Lead:
		next := e.Follower.Owner.(*call)
		next.placed = false
		next.follower, next.leads = nil, true
	case core.Recall:
		c.recalled = true
	case core.Awaited:
		k.knows = k.knows || e.Flag
	case core.StopAction: // The action may go on for as long as it likes.
	case core.Forged, core.Impossible:
		w.judge.find("an impossible step")
	case core.GivenBack:
		w.tell("    a grant to %s is given back, which nobody waits for", shortly(e.Text))
	}
}

// attempt is Node.Attempt, of a client whose clock is right.
func (c *client) attempt(budget time.Duration) (a core.Attempt, notAfter int64) {
	a = core.Attempt{Sent: c.world.now, Expires: c.world.now.Add(budget)}
	return a, a.Expires.UnixMicro() - 1 // What it knows of the server is a little old.
}

// request sends one to the server.
func (c *client) request(f *flight, budget time.Duration) {
	f.Attempt, f.NotAfter = c.attempt(budget)
	f.Floor, f.From, f.At = int64(c.floor), c.name, c.world.number
	c.send(toServer, f)
}

// sendRelease is sender.push and entry.sendEnd.
func (c *client) sendRelease(d *core.Release) {
	c.request(&flight{Kind: endKind, Release: d}, attemptTime)
}

// start begins a call: Queue.begin, or Cohort.join.
func (k *call) start() {
	if w := k.client.world; w.scope.Mates != "" && !w.scope.Quick {
		w.to(w.now.Add(thought)) // The tokens of a hold may not run ahead of the clock, and who comes later has a later time.
	}
	switch {
	case k.client.cohort != nil:
		k.join()
		return
	case k.client.event != nil:
		k.client.world.awaited().start(k)
		return
	}
	k.register(k.newTicket())
	k.run(core.Step{})
}

// newTicket is binding.newTicket.
func (k *call) newTicket() *core.Ticket {
	c, s := k.client, k.client.world.scope
	o := s.terms(c.name)
	t := &core.Ticket{Options: &o}
	t.Owner, t.Begun, t.Lease, t.Place, t.Budget, t.Limit = k, c.world.now, leaseTime, -1, attemptTime, s.Limit
	return t
}

// register makes a ticket known: ticket.register.
func (k *call) register(t *core.Ticket) {
	c := k.client
	number, _ := strconv.ParseUint(k.name[1:], 10, 64)
	t.Named(c.name, number, grantTime)
	k.ticket, k.phase = t, running
	c.lock.Register(t)
}

// run is wait.run: it does what the core says until the call has to wait.
func (k *call) run(step core.Step) {
	c := k.client
	if c.event != nil {
		c.world.awaited().run(k, step)
		return
	}
	for {
		if step.Do == core.Take && !k.ended && k.take() {
			return
		}
		switch step.Do {
		case core.Fail:
			k.finish()
			return
		case core.Pause:
			if !k.ended {
				k.phase, k.until = pausing, c.world.now.Add(step.Rest)
				return
			}
		}
		c.input(func(x *core.Input) { step = c.lock.Next(x, k.ticket, k.ended, false) })
		switch step.Do {
		case core.Fail, core.TimeOut:
			k.finish()
			return
		case core.Ask:
			if k.ask() {
				return
			}
			step = core.Step{}
		case core.Confirm:
			if k.confirm() {
				return
			}
			step = core.Step{}
		case core.Sleep:
			if !k.woken {
				k.phase = sleeping
				return
			}
			k.woken = false
		}
	}
}

// ask is wait.prepare and wait.send.
func (k *call) ask() bool {
	c := k.client
	var q core.Acquire
	var ok bool
	c.input(func(x *core.Input) { q, ok = c.lock.BeginAcquire(x, k.ticket, wire.Wait, x.Now) })
	if ok {
		k.phase = asking
		q.Moves = k.from != nil
		c.request(&flight{Kind: askKind, Owner: k, Ask: &q, Transit: k.from}, k.ticket.Budget)
	}
	return ok
}

// confirm is entry.confirm.
func (k *call) confirm() bool {
	c := k.client
	var r core.Renewal
	var ok bool
	c.input(func(x *core.Input) { r, ok = c.lock.BeginConfirm(x, k.ticket, x.Now, false) })
	if ok {
		k.phase = confirming
		c.request(&flight{Kind: confirmKind, Owner: k, Renewal: &r}, attemptTime)
	}
	return ok
}

// take is entry.newHold: the call has the lease.
func (k *call) take() bool {
	c, w := k.client, k.client.world
	may := false
	c.input(func(x *core.Input) { may = c.lock.MayTake(x, k.ticket, 0, false) })
	if !may {
		return false
	}
	h := &core.Hold{}
	c.input(func(x *core.Input) { c.lock.Take(x, k.ticket, h, core.Leases{}) })
	k.hold, k.phase, k.using = h, holding, k
	w.tell("    %s holds with token %s", shortly(k.ticket.Text), w.judge.tokenText(h.Token))
	w.judge.takes(w, k)
	if c.name == w.scope.Asks { // share.Want
		c.input(func(x *core.Input) { c.lock.Wish(x, h) })
	}
	if c.cohort != nil {
		c.lends(k)
	}
	if k.multi != nil {
		k.multi.core.OnOutcome(w.input(), k.part, nil)
	}
	return true
}

// finish is wait.finish.
func (k *call) finish() {
	k.phase = over
	k.placed = false
	k.client.input(func(x *core.Input) {
		k.client.lock.Finish(x, k.ticket)
		if k.client.cohort != nil {
			k.client.cohort.OnFailed(x)
		}
	})
	if k.multi != nil {
		k.multi.core.OnOutcome(k.client.world.input(), k.part, errRefuse)
	}
}

// leases is hold.leases: the lease of a hold ends by the clock of its client.
func (k *call) leases() core.Leases {
	return core.Leases{Over: k.hold != nil && !k.client.world.now.Before(k.hold.Lasts.Deadline)}
}

// believes reports whether the holder believes that it holds.
func (k *call) believes() bool {
	u := k.using
	return u != nil && u.hold != nil && (u.ticket.Held() || k.phase == over) && !u.leases().Over
}

// release is share.release.
func (k *call) release() {
	c := k.client
	if c.cohort != nil {
		k.stopUsing()
		return
	}
	if k.twice {
		k.twice = false
		c.leave(k)
		return
	}
	k.phase, k.using = over, nil
	if c.leave(k) {
		d := core.ReleaseOf(k.ticket)
		c.sendRelease(&d)
	}
}

// renew is renewals.renew.
func (k *call) renew() {
	c := k.client
	k.renews = false
	a, _ := c.attempt(attemptTime)
	var r core.Renewal
	c.input(func(x *core.Input) { r = c.lock.NextRenewal(x, k.hold, a) })
	c.request(&flight{Kind: renewKind, Owner: k, Renewal: &r}, attemptTime)
}

// check is entry.runChecks and entry.checkOnce up to the sending.
func (c *client) check() {
	if c.event != nil {
		c.world.awaited().check(c)
		return
	}
	if c.round == nil {
		c.round = c.lock.BeginRound()
	}
	check := c.lock.BeginCheck(c.round, c.world.now)
	c.request(&flight{Kind: checkKind, Check: &check}, attemptTime)
}

// answered takes in the answer to a request, or its lack.
func (c *client) answered(q *flight, f *core.Failure) {
	if c.event != nil && q.Kind != echoKind {
		c.world.awaited().answered(c, q, f)
		return
	}
	r := &wire.Reply{}
	if q.Reply != nil {
		r = q.Reply
		c.heard = true
		c.saw(r.Token)
	}
	switch q.Kind {
	case askAllKind:
		c.multi().onAsked(q, f)
	case endAllKind:
		for _, one := range q.All {
			one.Attempt = q.Attempt
			c.at(one.At).answered(one, f)
		}
	case askKind: // wait.took
		c.onAsked(q, r, f)
	case checkKind: // entry.checkOnce
		more := false
		c.input(func(x *core.Input) {
			more = c.lock.OnCheckReply(x, q.Check, q.Attempt, r, checkStates(q.Check, r), f)
		})
		if !more {
			c.round = nil
		} else {
			c.check()
		}
	case endKind: // entry.took
		c.input(func(x *core.Input) {
			if f.Err == nil {
				c.lock.OnReply(x, q.Attempt, r, "", false)
			}
			head := r.Head()
			if c.world.scope.EndsLate && q.Release.Moves {
				q.Release.Ticket.Owner.(*call).using = nil
			}
			c.lock.OnReleaseReply(x, q.Release, q.Attempt.Sent, &head, f)
		})
	case renewKind:
		c.onRenewed(q, r, f)
	case confirmKind:
		c.onConfirmed(q, r, f)
	}
}

// onRenewed is hold.renewed.
func (c *client) onRenewed(q *flight, r *wire.Reply, f *core.Failure) {
	k := q.Owner.(*call)
	if k.hold == nil {
		return // Its ticket is forgotten.
	}
	if f.Err == nil {
		k.unsure = false
	}
	c.input(func(x *core.Input) {
		c.lock.OnRenewed(x, k.hold, q.Renewal, q.Attempt, r, f, k.leases())
	})
	if k.forced && f.Err == nil && r.Status == wire.Refused && k.believes() {
		c.world.judge.find(forcedOn)
	}
}

// onConfirmed is entry.confirm and wait.confirm.
func (c *client) onConfirmed(q *flight, r *wire.Reply, f *core.Failure) {
	k := q.Owner.(*call)
	if k.ticket == nil {
		return
	}
	var step core.Step
	c.input(func(x *core.Input) {
		c.lock.OnConfirmReply(x, k.ticket, q.Renewal, q.Attempt, r, f, nil, 0)
		if k.phase == confirming {
			step = c.lock.AfterConfirm(x, k.ticket, f, k.ended)
		}
	})
	if k.phase == confirming {
		k.phase = running
		k.run(step)
	}
}

func (c *client) onAsked(q *flight, r *wire.Reply, f *core.Failure) {
	k := q.Owner.(*call)
	var step core.Step
	c.input(func(x *core.Input) {
		step = c.lock.OnAcquireReply(x, q.Ask, q.Attempt, r, f, errRefuse)
		if f.Err != nil && k.phase == asking && !k.ended {
			step = c.lock.Retry(x, k.ticket, f)
		}
	})
	if k.phase == asking {
		k.phase = running
		k.run(step)
	}
}

// checkStates is checkStates of waitqueue.
func checkStates(check *core.Check, r *wire.Reply) []core.CheckState {
	var states []core.CheckState
	for i := range check.Named[:min(len(check.Named), len(r.States))] {
		s := core.CheckState{State: r.States[i], Place: -1}
		for j := range s.State {
			if s.State[j] == ' ' {
				if place, err := strconv.Atoi(s.State[j+1:]); err == nil {
					s.Place = place
				}
				s.State = s.State[:j]
				break
			}
		}
		if s.State == wire.StateFull || s.State == wire.StateExcess {
			s.Err = errRefuse
		}
		states = append(states, s)
	}
	return states
}

// message is entry.Message.
func (c *client) message(m *wire.Message) {
	w := c.world
	if c.event != nil {
		w.awaited().message(c, m)
		return
	}
	c.input(func(x *core.Input) {
		switch m.Kind {
		case wire.MessageGrant:
			for _, g := range m.Grants {
				from, slept := time.UnixMicro(g.At), time.Duration(0)
				if !c.heard { // Clock.Since: nobody can tell how old the news is.
					from, slept = w.now, -time.Hour
				}
				c.lock.OnGrant(x, g.Ticket, core.Grant{Token: g.Token, From: from, Slept: slept, Lasts: time.Duration(g.Until-g.At) * time.Microsecond, Before: g.Before})
			}
		case wire.MessageSuspect:
			c.lock.OnSuspected(x, m.Ticket)
		case wire.MessageLook:
			c.lock.Poll(x)
		case wire.MessageWanted:
			c.lock.OnWanted(x, m.Token)
		case wire.MessageEcho:
			c.lock.OnPing(x, m.Nonce)
		}
	})
	if m.Kind == wire.MessageForced {
		c.heardForce(m.Ticket)
	}
}
