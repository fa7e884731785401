package search

import (
	"fmt"
	"hash/maphash"
	"slices"
)

var seed = maphash.MakeSeed()

func hash(s *State) uint64 { return maphash.Comparable(seed, *s) }

// A Result is what a search has found.
type Result struct {
	States   int    // different ones that were reached
	Moves    int    // that were made to reach them
	Depth    int    // of the longest shortest way to one
	Complete bool   // there was none beyond the bound
	Cut      int    // that needed more room than a state has
	Slowest  uint8  // ticks within which everybody got in from any of them
	Kind     Kind   // of the first violation
	Why      string // what it is
	Trace    []string
}

func (r *Result) String() string {
	all := "all of it"
	if !r.Complete {
		all = "cut there"
	}
	return fmt.Sprintf("%d states, %d moves, depth %d, %s, everybody in within %d ticks: %v, %d lines",
		r.States, r.Moves, r.Depth, all, r.Slowest, r.Kind, len(r.Trace))
}

// Search goes through all states of a scope breadth first, at most so many, until one violates what must
// hold. It tells the shortest way there.
func Search(scope *Scope, rules Rules, most int) Result {
	w := world{scope: scope, rules: rules, s: scope.start()}
	f := finder{world: w, seen: newSet(), known: memo{}, most: most}
	return f.run()
}

// origin is how a state was reached first.
type origin struct {
	from int32
	move move
}

type finder struct {
	world
	seen    *set
	known   memo
	origins []origin
	most    int
	result  Result
}

func (f *finder) run() Result {
	r := &f.result
	layer := []State{f.s}
	f.seen.add(hash(&f.s))
	f.origins = append(f.origins, origin{from: -1})
	var moves []move
	for first := 0; len(layer) > 0; r.Depth++ {
		var next []State
		for i := range layer {
			f.s = layer[i]
			moves = f.moves(moves[:0])
			for _, m := range moves {
				f.s, f.kind = layer[i], Nothing
				f.do(m)
				r.Moves++
				if f.kind == Nothing && f.s.over {
					r.Cut++
					continue
				}
				from := f.s
				if f.kind == Nothing {
					if !f.seen.add(hash(&f.s)) {
						continue
					}
					// Where a violation is expected, the shortest way to it is wanted: a deeper search finds
					// what else goes wrong on this one.
					f.resting = f.rules != All
					r.Slowest = max(r.Slowest, f.fair(f.known))
					f.resting = false
				}
				f.origins = append(f.origins, origin{int32(first + i), m})
				if f.kind != Nothing {
					r.States, r.Kind = len(f.origins), f.kind
					f.tell()
					return *r
				}
				if len(f.origins) >= f.most {
					r.States = len(f.origins)
					return *r
				}
				next = append(next, from)
			}
		}
		first += len(layer)
		layer = next
	}
	r.States, r.Complete = len(f.origins), true
	return *r
}

// tell makes the moves to the last state again, and writes them down.
func (f *finder) tell() {
	var way []move
	for i := int32(len(f.origins) - 1); f.origins[i].from >= 0; i = f.origins[i].from {
		way = append(way, f.origins[i].move)
	}
	slices.Reverse(way)
	f.result.Why, f.result.Trace = replay(f.scope, f.rules, way)
}

// replay makes moves from the start, and then what follows without faults, until the violation.
func replay(scope *Scope, rules Rules, way []move) (string, []string) {
	var trace []string
	w := world{scope: scope, rules: rules, s: scope.start(), trace: &trace}
	for _, m := range way {
		if w.do(m); w.kind != Nothing {
			return w.why, trace
		}
	}
	w.note("no faults from here on")
	w.resting = rules != All
	w.fair(memo{})
	return w.why, trace
}

// A set of hashes: open addressing, since there are millions of them.
type set struct {
	slots []uint64
	n     int
}

func newSet() *set { return &set{slots: make([]uint64, 1<<12)} }

// add reports whether x is new.
func (s *set) add(x uint64) bool {
	x |= 1 // 0 is an empty slot.
	if 2*s.n >= len(s.slots) {
		old := s.slots
		s.slots, s.n = make([]uint64, 2*len(old)), 0
		for _, y := range old {
			if y != 0 {
				s.add(y)
			}
		}
	}
	mask := uint64(len(s.slots) - 1)
	for i := x >> 8 & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case x:
			return false
		case 0:
			s.slots[i] = x
			s.n++
			return true
		}
	}
}
