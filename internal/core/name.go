package core

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
)

// A Name is what a client knows of a name whatever it does with it: whether it is subscribed, whether the server answers, and when
// to poll. A [Lock] and an event have one each.
type Name struct {
	Subscription
	Answers
	Linger time.Duration // how long the name is kept after its last use

	NextCheck time.Time // when to check for the calls that wait; zero: no check is scheduled
	Copied    bool      // the client has another identity: nothing is sent for these calls any more
	Checking  bool      // a check is under way
	Again     bool      // and another is wanted after it
	Failures  int       // checks that failed, in a row

	used    time.Time
	retired bool
	lostBy  time.Time // when to check, if a call waits by then, because a reply was lost that may have told it something
}

// Use notes that the name is in use.
func (n *Name) Use(x *Input) { n.used = x.Now }

// Arm sets the timer of the name.
func (n *Name) Arm(x *Input, at time.Time) {
	if !n.retired {
		x.Add(Effect{Do: Timer, At: at})
	}
}

// CheckAt sets a time for a check, unless there is an earlier one.
func (n *Name) CheckAt(x *Input, at time.Time) {
	n.NextCheck = times.First(n.NextCheck, at)
	n.Arm(x, n.NextCheck)
}

// ReplyLost schedules a check, because a reply was lost. The same check serves all replies that are lost before it. After failed
// checks it is later.
func (n *Name) ReplyLost(x *Input) {
	n.lostBy = times.First(n.lostBy, x.Now.Add(x.Backoff(1+n.Failures)))
	n.Arm(x, n.lostBy)
}

// Poll runs a check in the background, or after the one that is under way.
func (n *Name) Poll(x *Input) {
	if n.Again = n.Checking; !n.Checking {
		n.Checking = true
		x.Add(Effect{Do: Poll})
	}
}

// Due says which checks are due: one because a reply was lost, and the next, which is a usual one or not.
func (n *Name) Due(x *Input) (lost, check, usual bool) {
	if due(x, &n.PingBy) {
		n.PingLate()
		x.Add(Effect{Do: Reconnect})
	}
	usual = n.AtTick(n.NextCheck)
	return due(x, &n.lostBy), due(x, &n.NextCheck), usual
}

// due reports whether a time has come that is set. Then it is set no more.
func due(x *Input, at *time.Time) bool {
	if at.IsZero() || x.Now.Before(*at) {
		return false
	}
	*at = time.Time{}
	return true
}

// Rest sets the timer to what is next, or retires the name if nothing has used it for a while. busy: something is under way.
func (n *Name) Rest(x *Input, busy bool, more time.Time) {
	if busy {
		n.used = x.Now
	} else if !x.Now.Before(n.used.Add(n.Linger)) {
		n.NextCheck = time.Time{} // Nobody waits for it, and a call that comes first sets another.
		x.Add(Effect{Do: Retire})
		return
	}
	n.Arm(x, times.First(n.used.Add(n.Linger), n.PingBy, n.NextCheck, n.lostBy, more))
}

// RetireUnless drops the name unless it is busy, or a call has come since which may have no ticket yet. It reports whether it
// does, and whether there is a subscription to be ended.
func (n *Name) RetireUnless(x *Input, busy bool) (over, subscribed bool) {
	if busy {
		n.used = x.Now
	}
	if until := n.used.Add(n.Linger); x.Now.Before(until) {
		n.Arm(x, until)
		return false, false
	}
	subscribed = n.Wanted
	n.retired = true
	n.Forget()
	return true, subscribed
}

// Abandon has nothing sent for the name any more.
func (n *Name) Abandon() { n.Copied, n.retired = true, true }

const (
	// spread is how long the checks after a reconnect are spread over, at most and for each name.
	spread     = 100 * time.Millisecond
	spreadName = 200 * time.Microsecond
)

// Heard takes in that the subscription stands. A message may have been missed before, so a check follows: at once, or soon, or
// after a ping, if the subscription is suspicious. channels is how many the connection has, and nonce what a ping is to carry. It
// reports whether tickets may queue.
func (n *Name) Heard(x *Input, channels int, nonce string) bool {
	first := n.Subscription.Confirm()
	switch {
	case n.suspicious:
		x.Add(Effect{Do: Ping, Text: nonce})
		n.Arm(x, n.Expect(nonce, x.Now))
		return false
	case first:
		n.Poll(x)
	default:
		n.CheckAt(x, x.Now.Add(x.Jitter(0, min(spread, time.Duration(channels)*spreadName))))
	}
	return true
}

// Distrust treats the subscription as broken: a new connection, and a ping on it, before tickets queue again. It reports whether
// it was not suspicious before.
func (n *Name) Distrust(x *Input) bool {
	if !n.Subscription.Suspect() {
		return false
	}
	if n.Wanted {
		x.Add(Effect{Do: Reconnect, Flag: true})
	}
	return true
}

// UnheardSoon is when to poll first after the subscription was lost.
func UnheardSoon(x *Input) time.Time { return x.Now.Add(x.Jitter(unheardEvery, 2*unheardEvery)) }

// Calls are the calls that a client has for a name, by their texts. They are gone through in an order that only the inputs decide.
type Calls[T interface{ base() *Call }] struct {
	byText map[string]T
	all    []T
}

func (c *Call) base() *Call { return c }

// Add adds a call.
func (cs *Calls[T]) Add(t T) {
	if cs.byText == nil {
		cs.byText = make(map[string]T)
	}
	c := t.base()
	c.index = len(cs.all)
	cs.all = append(cs.all, t)
	cs.byText[c.Text] = t
}

// Remove takes a call out.
func (cs *Calls[T]) Remove(t T) {
	c := t.base()
	if _, there := cs.byText[c.Text]; !there {
		return
	}
	delete(cs.byText, c.Text)
	last := len(cs.all) - 1
	moved := cs.all[last]
	moved.base().index, cs.all[c.index] = c.index, moved
	var none T
	cs.all[last] = none
	cs.all = cs.all[:last]
}

// Renamed notes that a call has another text.
func (cs *Calls[T]) Renamed(t T, before string) {
	delete(cs.byText, before)
	cs.byText[t.base().Text] = t
}

// Find returns the call with a text; nil if there is none.
func (cs *Calls[T]) Find(text string) T { return cs.byText[text] }

// Len is how many there are.
func (cs *Calls[T]) Len() int { return len(cs.all) }

// All returns them.
func (cs *Calls[T]) All() []T { return cs.all }
