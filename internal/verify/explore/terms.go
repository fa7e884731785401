package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// What a call may agree on for its hold, and what an operator may do to one: see [scope].

const (
	leastTime = 12 * time.Second // longer than a lease, so that both a release and a death come before it is over
	mostTime  = 11 * time.Second // longer than a lease, and over before the second renewal
)

// What can be found.
const (
	freedEarly  = "free before its time"
	heldTooLong = "held too long"
	forcedOn    = "holds on though it was freed by force"
)

// terms are those of a holder.
func (s *scope) terms(client string) (o core.Options) {
	o = core.Options{Kind: s.kindOf(client), Permits: s.weightOf(client), Renewal: leaseTime}
	if client == s.Least {
		o.MinHold = leastTime
	}
	if client == s.Most {
		o.MaxHold = mostTime
	}
	return o
}

// termSteps are what holders may do besides, and what the operator may.
func (w *world) termSteps(add adder) {
	for i, k := range w.calls {
		if k.client.name == w.scope.Enters && k.client.life == alive && k.phase == holding && !k.entered {
			add(func(w *world) { w.calls[i].reenter() }, "%s enters its hold again", k.name)
		}
	}
	if w.scope.Forces && !w.forced && w.mutex.Lock.Owner != "" {
		add(func(w *world) { w.outside(forceKind, w.forces()) }, "an operator frees the name by force")
	}
	if name := w.scope.Buries; name != "" && !w.buried && w.clientNamed(name).life == dead {
		add(func(w *world) { w.outside(buryKind, name) }, "the next client with the identity of %s buries it", name)
	}
}

// outside runs a request of a client that takes no part.
func (w *world) outside(k kind, text string) {
	w.buried = w.buried || k == buryKind
	w.run(&client{name: "operator", world: w, life: dead}, &flight{Kind: k, Release: &core.Release{Text: text}}, false)
}

// mortal reports whether a script looks first whether its client was buried.
func (f *flight) mortal() bool {
	return f.Kind == askKind || f.Kind == checkKind || f.Kind == askAllKind || f.Kind == endKind && f.Release.Moves
}

// reenter is entry.reenter.
func (k *call) reenter() {
	k.entered = true
	k.client.input(func(x *core.Input) { k.twice, _ = k.client.lock.Enter(x, k.hold, k.ticket.Kind, k.leases()) })
}

// forces notes whose hold is released by force, as Queue.ForceRelease of another client does it.
func (w *world) forces() string {
	w.forced = true
	owner := w.mutex.Lock.Owner
	if k := w.ofTicket(owner); k != nil {
		k.forced = true
	}
	return owner
}

// heardForce judges that a client looks at once into the message that a hold was released by force.
func (c *client) heardForce(text string) {
	k := c.world.ofTicket(text)
	c.input(func(x *core.Input) { c.lock.OnForced(x, text) })
	if k != nil && k.hold != nil && k.ticket.Held() && !k.renews && (k.holdTimer.IsZero() || k.holdTimer.After(c.world.now)) {
		c.world.judge.find(forcedOn)
	}
}

// agreed judges that a hold keeps to its terms.
func (k *call) agreed() string {
	if w := k.client.world; k.client.name == w.scope.Most && k.believes() && k.using.hold.Lasts.Deadline.After(k.took.Add(mostTime)) {
		return heldTooLong
	}
	return ""
}

// notes notes when holds begin, also of a ticket that had one before.
func (j *judge) notes(w *world, held []grip) {
	for _, g := range held {
		same := func(b grip) bool { return b.text == g.text && b.token == g.token }
		if k := w.ofTicket(g.text); k != nil && !slices.ContainsFunc(j.held, same) {
			k.granted = w.now
		}
	}
}

// begins notes when a call has its hold, and until when the name is to stay taken, whatever becomes of that.
func (j *judge) begins(w *world, k *call) {
	k.took = w.now
	if k.client.name == w.scope.Least {
		j.Rest = k.granted.Add(leastTime).UnixMicro()
	}
}

// freed judges that nobody is granted before that.
func (j *judge) freed(w *world, text string) {
	if w.us() < j.Rest && !wire.Rests(text) {
		j.find(freedEarly)
	}
}

// entries reads what a renewal tells of how often a hold was entered.
func entries(text string) (count, revision int64) {
	first, last, _ := strings.Cut(text, ":")
	revision, _ = strconv.ParseInt(first, 10, 64)
	count, _ = strconv.ParseInt(last, 10, 64)
	return count, revision
}
