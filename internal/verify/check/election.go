package check

import (
	"fmt"
	"slices"
)

// leading is a lock whose holder proclaims values.
type leading struct {
	mutex
	shown shown // by the holder, or by one whose end the server has not seen; the zero value shows nothing
}

// shown is what is told of who leads.
type shown struct {
	hold  int
	token uint64
	value int64
}

func (s leading) String() string {
	return fmt.Sprintf("%v, shows %d of hold %d", s.mutex, s.shown.value, s.shown.hold)
}

func (s leading) Same(other State) bool { return other == s }

// Election is the model of an election: [Mutex] for the candidates, and
//
//	set   the leader proclaims a value
//	look  who leads and with which value, as it was proclaimed last; refused if nobody leads that has proclaimed
//
// A campaign is an acquire and the first set. A loss that is told ends what the leader may do; the server shows it for
// a moment longer, until it sees the end itself or another leads. Values are told apart: each is proclaimed once.
var Election = Model{
	Init:  func() State { return leading{} },
	Step:  func(s State, o Op) []State { return s.(leading).step(o) },
	Bound: boundElection,
}

// boundElection leaves out the values of unknown outcome that nobody saw, with the campaigns for them. Others of unknown
// outcome have the token with which they were seen.
func boundElection(ops []Op) []Op {
	seen := map[int64]uint64{} // values, and with which token
	for _, o := range ops {
		if o.Verb == Look {
			seen[o.Number] = o.Token
		}
	}
	led := map[int]uint64{}
	for _, o := range ops {
		if o.Verb == Set && seen[o.Number] != 0 {
			led[o.Hold] = seen[o.Number]
		}
	}
	ops = slices.DeleteFunc(slices.Clone(ops), func(o Op) bool {
		unseen := o.Verb == Set && seen[o.Number] == 0 || o.Verb == Acquire && led[o.Hold] == 0
		return o.Outcome == Unknown && unseen
	})
	for i := range ops {
		if o := &ops[i]; o.Verb == Acquire && o.Outcome == Unknown {
			o.Token = led[o.Hold]
		}
	}
	boundReleases(ops, true)
	return ops
}

func (s leading) step(o Op) (next []State) {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	still := s
	still.now = t
	switch o.Verb {
	case Set:
		if o.Outcome != OK {
			next = append(next, still)
		}
		if s.owner == o.Hold && o.Outcome != Refused {
			set := still
			set.shown = shown{o.Hold, s.token, o.Number}
			next = append(next, set)
		}
		return next
	case Look:
		return s.look(o, still)
	case Acquire:
		return s.campaign(o)
	}
	for _, m := range s.mutex.step(o) {
		n := leading{m.(mutex), s.shown}
		if o.Verb == Release && n.owner != o.Hold && s.owner == o.Hold {
			n.shown = shown{}
		}
		next = append(next, n)
	}
	return next
}

func (s leading) look(o Op, still leading) []State {
	if o.Outcome == OK {
		if s.shown.token == o.Token && s.shown.value == o.Number && s.shown.hold != 0 {
			return []State{still}
		}
		return nil
	}
	if s.shown.hold == 0 {
		return []State{still}
	}
	if s.owner == s.shown.hold { // Its lease has run out, by the server's clock.
		var ok bool
		if still.now, ok = o.step(s.now, s.until); !ok {
			return nil
		}
	}
	return []State{still}
}

// campaign is an acquire. One of unknown outcome that was seen has led, until the next or for as long as its lease.
func (s leading) campaign(o Op) (next []State) {
	for _, m := range s.mutex.step(o) {
		n := leading{mutex: m.(mutex)}
		switch {
		case n.owner != o.Hold:
			n.shown = s.shown
		case o.Outcome == Unknown:
			if o.Token <= s.token {
				continue
			}
			n.token = o.Token
		}
		next = append(next, n)
	}
	return next
}
