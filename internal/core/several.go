package core

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// PartState is how far a call for several names has come with one of them.
type PartState uint8

const (
	PartUnasked PartState = iota // the call has not come to it
	PartAsked                    // asked for, and waited for
	PartHeld
	PartGivenUp // given back or lost: nobody asks for it, but it can come back to its place
	PartFailed

	partStates = iota
)

// A Multi decides for one call for several names: all of them or none, or each for itself.
//
// A call for all of them holds some names while it waits for others, but not for longer than a bound. Then it gives them back,
// and asks for them again, at their old places, when another name is held. What is lost meanwhile counts as given back.
type Multi struct {
	Each  bool          // each name for itself: the failure of one does not end the call, and nothing is given back
	Try   bool          // the call waits for nobody
	Bound time.Duration // how long some names are held while others are waited for, at the most

	parts     []PartState
	count     [partStates]int // how many parts are in each state
	asking    bool            // one request for several parts is under way
	failing   bool            // and an attempt of it has failed
	until     time.Time       // when the patience is over
	impatient bool            // it was over, and a part that is waited for was not granted
	err       error
}

// MultiNext is what a call for several names does next.
type MultiNext uint8

const (
	MultiWait     MultiNext = iota // waits for an outcome, or until At, if that is not zero
	MultiAsk                       // asks for Parts again, each by itself
	MultiLook                      // looks whether all Parts were granted meanwhile: see [Multi.OnLook]
	MultiGiveBack                  // gives back Parts
	MultiDone                      // has all that it has asked for
	MultiFail                      // ends, with Err
)

// A MultiStep is what a call for several names does next.
type MultiStep struct {
	Do    MultiNext
	Parts []int
	At    time.Time
	Err   error
}

// NewMulti returns a call for a number of names.
func NewMulti(parts int) (m Multi) {
	m.parts, m.count[PartUnasked] = make([]PartState, parts), parts
	return m
}

func (m *Multi) to(part int, s PartState) {
	m.count[m.parts[part]]--
	m.parts[part] = s
	m.count[s]++
}

// In returns the parts in a state.
func (m *Multi) In(s PartState) []int {
	all := make([]int, 0, m.count[s])
	for i, is := range m.parts {
		if is == s {
			all = append(all, i)
		}
	}
	return all
}

// Holds reports whether a part is held.
func (m *Multi) Holds(part int) bool { return m.parts[part] == PartHeld }

// Waits reports whether any part is waited for.
func (m *Multi) Waits() bool { return m.count[PartAsked] > 0 }

// OnAsk notes that the call asks for a part.
func (m *Multi) OnAsk(x *Input, part int) {
	m.to(part, PartAsked)
	m.renew(x)
}

// OnRequest takes in that one request for several parts begins. The patience begins when it is answered: until then the call
// does not know what it waits for.
func (m *Multi) OnRequest() { m.asking, m.failing = true, false }

// OnAttempt takes in that the request is answered, or that an attempt of it has failed.
func (m *Multi) OnAttempt(x *Input, answered bool) {
	if m.asking, m.failing = !answered, !answered; answered {
		m.renew(x)
	}
}

// OnOutcome takes in how the wait for a part has ended: it is held, or err says why it never will be.
func (m *Multi) OnOutcome(x *Input, part int, err error) {
	switch {
	case err == nil:
		if m.count[PartHeld] == 0 {
			m.renew(x)
		}
		m.to(part, PartHeld)
		return
	case m.err == nil && !m.Each:
		m.err = err
	}
	m.to(part, PartFailed)
}

// OnLost takes in that the hold of a part has ended, perhaps because the call has given it back.
func (m *Multi) OnLost(part int) { m.to(part, PartGivenUp) }

// OnLook takes in whether all that is waited for was granted meanwhile. A client that polls sees a grant late: without the
// look two calls would give back in turn what the other has just been granted.
func (m *Multi) OnLook(granted bool) { m.impatient = !granted }

// renew renews the patience. It is half of the bound at least, and the rest is left to chance: two calls that hold what the
// other waits for, since the same moment, would otherwise give it back at the same moment, again and again.
func (m *Multi) renew(x *Input) {
	m.until, m.impatient = x.Now.Add(x.Jitter(m.Bound/2, m.Bound)), false
}

// Next returns the next step of the call. The call asks again after the step; [MultiWait] lasts until there is news, or until
// its time.
func (m *Multi) Next(x *Input) MultiStep {
	holds, missing := m.count[PartHeld] > 0, m.count[PartGivenUp] > 0
	switch {
	case m.err != nil:
		return MultiStep{Do: MultiFail, Err: m.err}
	case missing && m.Try:
		return MultiStep{Do: MultiFail, Err: reason.ErrBusy} // A part was lost already.
	case missing && (holds || !m.Waits()):
		return MultiStep{Do: MultiAsk, Parts: m.In(PartGivenUp)}
	case !m.Waits():
		return MultiStep{Do: MultiDone}
	case m.Each || !holds || m.asking && !m.failing:
		return MultiStep{Do: MultiWait}
	case m.impatient:
		return MultiStep{Do: MultiGiveBack, Parts: m.In(PartHeld)}
	case !x.Now.Before(m.until):
		m.renew(x)
		return MultiStep{Do: MultiLook, Parts: m.In(PartAsked)}
	}
	return MultiStep{Do: MultiWait, At: m.until}
}
