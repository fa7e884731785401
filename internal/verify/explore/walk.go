package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Worlds that are too large to be gone through are walked through, at random: one seed is one history.

// walks are the scopes of the walks.
var walks = []*scope{
	{Title: "five clients", Calls: "A1 B1 C1 A2 B2 C2 D1 E1 D2 E2 A3 B3 C3 D3 E3", budget: budget{6, 4, 3, 2}},
	{Title: "two calls at a time, of four clients", Calls: "A1 A2 B1 B2 C1 D1 A3 A4 B3 B4 C2 D2", Double: "B", Limit: 3, budget: budget{5, 4, 2, 2}},
	{Title: "a semaphore of three, five clients", Calls: "A1 B1 C1 D1 E1 A2 B2 C2 D2 E2", Permits: 3, Heavy: "B", budget: budget{5, 4, 2, 2}},
	{Title: "readers and a writer, five clients", Calls: "A1 B1 C1 D1 E1 A2 B2 C2 D2 E2", Permits: 1 << 30, Heavy: "B", Readers: true, budget: budget{5, 4, 2, 2}},
	{Title: "a cohort and three strangers", Calls: "A1 A2 A3 A4 A5 B1 C1 D1 B2 C2", Mates: "A", Passes: 2, budget: budget{5, 4, 2, 2}},
	{Title: "a client that keeps its hold, and three strangers", Calls: "A1 A2 A3 A4 A5 B1 C1 D1 B2 C2", Mates: "A", Keeps: true, budget: budget{5, 4, 2, 2}},
	{Title: "calls for two and three of three names, and for one", Calls: "A1:12 B1:23 C1:13 D1:123 E1:1 F1:2 E2:1", Names: 3, budget: budget{5, 4, 2, 2}},
	{Title: "a client that hands over, and three others", Calls: "A1 A2 A3 B1 C1 D1 B2 C2 D2", Gives: "A", budget: budget{5, 4, 2, 2}},
}

const (
	mostSteps = 400
	mishapIn  = 12 // one in this many steps has a fault in what it sends, if there is a budget
)

// walk makes steps at random until all calls are over, and returns what was told, how many steps there were and what is wrong.
func (s *scope) walk(seed uint64, mute bool) (told []string, steps int, bad string) {
	w := s.world()
	w.mute = mute
	chance := rand.New(rand.NewPCG(seed, 0))
	for steps < mostSteps && !w.quiet() {
		all := w.steps()
		if len(all) == 0 {
			return told, steps, stranded
		}
		if w.usual > 0 && chance.IntN(mishapIn) > 0 {
			all = all[:w.usual]
		}
		next := all[chance.IntN(len(all))]
		w.plan, w.sent, w.told = plan{}, w.sent[:0], nil
		if chance.IntN(mishapIn) == 0 {
			w.plan = w.mishap(chance)
		}
		w.shared.tell(next.format, next.args...)
		next.do(w)
		w.flow()
		steps++
		told = append(told, w.told...)
		if bad = w.look(); bad != "" {
			return told, steps, bad
		}
	}
	return told, steps, ""
}

// mishap is something that may happen to one of the first things that a step sends.
func (w *world) mishap(chance *rand.Rand) plan {
	p := plan{1 + chance.IntN(4), held + mishap(chance.IntN(int(mishaps-held)))}
	return p // Where there is no budget nothing comes of it.
}

// A history is what the walk of a seed tells, in one number.
func (s *scope) history(seed uint64) (sum uint64, bad string) {
	told, _, bad := s.walk(seed, false)
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, strings.Join(told, "\n"))
	return h.Sum64(), bad
}
