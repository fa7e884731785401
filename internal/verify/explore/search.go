package main

import (
	"hash/maphash"
	"sync"
)

// A way is how a state is come to: of each step which of all that can be next.
type way []int

// A found is what is wrong in a state, and the way to it.
type found struct {
	what string
	way  way
}

// A result is what came of going through a scope.
type result struct {
	states, edges, depth int
	whole                bool // all states were seen
	lives                bool // from each of them everybody gets in
	found                *found
}

// A search goes through a scope, breadth first, so that the first way to a fault is a shortest one.
type search struct {
	scope  *scope
	deep   int // of steps; 0: any
	parent []int32
	via    []int32
	seen   map[uint64]int32
	after  [][]int32 // where steps lead with which nothing goes wrong
	done   []bool    // all calls are over
	seed   maphash.Seed
}

// A next is a state that a step leads to.
type next struct {
	world *world
	hash  uint64
	nth   int
	bad   string
	fair  bool // nothing goes wrong in the step
	ended bool
}

// A worker goes through the steps of one state after the other.
type worker struct {
	copier  *copier
	encoder *encoder
}

// each calls a function with what each step from a world leads to, until it returns false.
func (k *worker) each(w *world, do func(n *next) bool) {
	nth := 0
	try := func(s *step, p plan) (*world, bool) {
		x := copyOf(k.copier, w)
		x.plan, x.sent, x.told = p, nil, nil
		x.shared.tell(s.format, s.args...)
		s.do(x)
		x.flow()
		n := next{world: x, nth: nth, bad: x.look(), fair: x.budget == w.budget, ended: x.through()}
		encode(k.encoder, x, x.now)
		n.hash = k.encoder.hash()
		nth++
		return x, do(&n)
	}
	for _, s := range w.steps() {
		x, on := try(&s, plan{})
		if !on {
			return
		}
		for i, l := range x.sent {
			for do := held; do < mishaps; do++ {
				if x.may(l, do) {
					if _, on := try(&s, plan{i + 1, do}); !on {
						return
					}
				}
			}
		}
	}
}

const workers = 2

// run goes through the scope.
func (s *search) run() (r result) {
	s.seed = maphash.MakeSeed()
	s.seen = map[uint64]int32{}
	all := make([]worker, workers)
	for i := range all {
		all[i] = worker{newCopier(), newEncoder(s.seed)}
	}
	start := s.scope.world()
	encode(all[0].encoder, start, start.now)
	s.add(all[0].encoder.hash(), -1, 0, false)
	level := []*world{start}
	first := 0
	for r.depth = 0; len(level) > 0; r.depth++ {
		if s.deep > 0 && r.depth >= s.deep {
			r.states = len(s.parent)
			return r
		}
		led := s.spread(all, level)
		var more []*world
		for i, to := range led {
			from := int32(first + i)
			for _, n := range to {
				r.edges++
				id, known := s.seen[n.hash]
				if !known {
					id = s.add(n.hash, from, n.nth, n.ended)
					more = append(more, n.world)
					if n.bad != "" {
						r.states, r.found = len(s.parent), &found{n.bad, s.wayTo(id)}
						return r
					}
				}
				if n.fair && id != from {
					s.after[from] = append(s.after[from], id)
				}
			}
		}
		first += len(level)
		level = more
	}
	r.states, r.whole = len(s.parent), true
	if id := s.strands(); id >= 0 {
		r.found = &found{stranded, s.wayTo(id)}
		return r
	}
	r.lives = true
	return r
}

func (s *search) add(hash uint64, parent int32, via int, ended bool) int32 {
	id := int32(len(s.parent))
	s.seen[hash] = id
	s.parent, s.via, s.done, s.after = append(s.parent, parent), append(s.via, int32(via)), append(s.done, ended), append(s.after, nil)
	return id
}

// spread makes all steps from the states of a level, on several processors.
func (s *search) spread(all []worker, level []*world) [][]next {
	led := make([][]next, len(level))
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			for n := i; n < len(level); n += len(all) {
				all[i].each(level[n], func(to *next) bool {
					if _, known := s.seen[to.hash]; known {
						to.world = nil
					}
					led[n] = append(led[n], *to)
					return true
				})
				level[n] = nil
			}
		})
	}
	wait.Wait()
	return led
}

// wayTo is how a state was come to.
func (s *search) wayTo(id int32) (w way) {
	for ; id > 0; id = s.parent[id] {
		w = append(way{int(s.via[id])}, w...)
	}
	return w
}

// strands returns the first state from which no way leads to the end of all calls, if nothing more goes wrong; -1 if there is
// none.
func (s *search) strands() int32 {
	before := make([][]int32, len(s.parent))
	for from, all := range s.after {
		for _, to := range all {
			before[to] = append(before[to], int32(from))
		}
	}
	gets := make([]bool, len(s.parent))
	var open []int32
	for id, done := range s.done {
		if done {
			gets[id] = true
			open = append(open, int32(id))
		}
	}
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		for _, from := range before[id] {
			if !gets[from] {
				gets[from] = true
				open = append(open, from)
			}
		}
	}
	for id, ok := range gets {
		if !ok {
			return int32(id)
		}
	}
	return -1
}

// follow makes the steps of a way, and returns what is told of them, and what is wrong at the end.
func (s *scope) follow(steps way) (told []string, bad string) {
	w := s.world()
	k := worker{newCopier(), newEncoder(maphash.MakeSeed())}
	w.mute = false
	for _, nth := range steps {
		k.each(w, func(n *next) bool {
			if n.nth == nth {
				w, bad = n.world, n.bad
			}
			return n.nth != nth
		})
		told = append(told, w.told...)
	}
	return told, bad
}
