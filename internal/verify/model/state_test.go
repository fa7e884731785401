package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A backend is a server on which a history is played beside the model.
type backend interface {
	stage.Host
	// run runs the script of a request to a lock that keeps a history of so many ends.
	run(k lua.Keys, history int, r Request) (lua.Tuple, error)
	// state reads the keys.
	state(k lua.Keys) (state, error)
	put(k lua.Keys, tickets []lua.Arrival, high, lives int64) error
}

// state is what the keys of a lock hold, as text.
type state struct {
	lock            map[string]string
	queue, suspects []scored
	past            []string // the history, the newest first
	left            [4]int64 // µs until each key expires, the history's last; 0: no key, stage.Forever: none
}

// scored is a member of a sorted set.
type scored struct{ name, score string }

// number is a field, or what the ticket and the token of a hold tell of it.
func (s *state) number(field string) int64 {
	k := stage.Key{Members: s.lock}
	if field == "until" {
		return k.Until()
	}
	return k.Number(field)
}

func (s *state) owner() string { return s.lock["owner"] }

func (s *state) text() string {
	var b strings.Builder
	for _, field := range slices.Sorted(maps.Keys(s.lock)) {
		fmt.Fprintf(&b, "    %s %q\n", field, s.lock[field])
	}
	fmt.Fprintf(&b, "    queue %v\n    suspects %v\n    history %q", s.queue, s.suspects, s.past)
	return b.String()
}

// untimed forgets until when the holds of the history lasted.
func (s *state) untimed() {
	for i, entry := range s.past {
		f := strings.Fields(entry)
		f[2] = "?"
		s.past[i] = strings.Join(f, " ")
	}
}

// expected is the state of the model as a server would show it.
func expected(m *Mutex, now int64) state {
	s := state{lock: m.Lock.Fields(), past: slices.Clone(m.Past)}
	for _, a := range m.Queue {
		s.queue = append(s.queue, scored{a.Ticket, stage.Decimal(a.Arrival)})
	}
	for client, at := range m.Suspects {
		s.suspects = append(s.suspects, scored{client, stage.Decimal(at)})
	}
	slices.SortFunc(s.suspects, func(a, b scored) int {
		return strings.Compare(a.score+a.name, b.score+b.name)
	})
	left := func(there bool, ends int64) int64 {
		switch {
		case !there:
			return 0
		case ends == 0:
			return stage.Forever
		}
		return ends - now
	}
	s.left = [4]int64{
		left(len(s.lock) > 0, m.LockEnds), left(len(s.queue) > 0, m.QueueEnds),
		left(len(s.suspects) > 0, m.SuspectsEnds), left(len(s.past) > 0, m.PastEnds),
	}
	return s
}

// calmed reports whether all suspects are forgotten in a later state.
func (s state) calmed(later state) bool { return s.lock["marked"] != "" && later.lock["marked"] == "" }

// calm is the state without suspects.
func (s state) calm() state {
	s.lock, s.suspects = maps.Clone(s.lock), nil
	delete(s.lock, "marked")
	return s
}

// wants reports whether the holder is to be told when somebody waits.
func (s *state) wants() bool {
	phase := s.lock["phase"]
	return strings.HasSuffix(phase, wants) || phase == lua.PhaseIdle
}

// lease is the longest that the present hold can last.
func (s state) lease() int64 {
	h := Hash{Owner: s.owner(), Phase: s.lock["phase"]}
	return h.lease()
}
