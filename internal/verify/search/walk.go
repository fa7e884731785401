package search

import "math/rand/v2"

// Walk makes moves at random from the start of a scope, at most so many, stops somewhere, and then lets the world come to
// rest. It returns how many it made, and the first violation. The same seed makes the same moves.
func Walk(scope *Scope, rules Rules, seed uint64, most int) Result {
	chance := rand.New(rand.NewPCG(seed, 0))
	w := world{scope: scope, rules: rules, s: scope.start()}
	most = 1 + chance.IntN(most)
	var r Result
	var way, moves []move
	for len(way) < most && !w.settled() {
		moves = w.moves(moves[:0])
		m := pick(chance, moves)
		way = append(way, m)
		w.do(m)
	}
	r.Moves, r.Depth = len(way), len(way)
	if !w.settled() {
		r.Slowest = w.fair(memo{})
	}
	if w.s.over {
		r.Cut = 1
	}
	if r.Kind = w.kind; r.Kind != Nothing {
		r.Why, r.Trace = replay(scope, rules, way)
	}
	return r
}

// pick chooses a move. Time, faults and whatever else is bounded are rare, so that there is something for
// them to hit.
func pick(chance *rand.Rand, moves []move) move {
	for {
		m := moves[chance.IntN(len(moves))]
		odds := 1
		switch {
		case m.what > mContinue:
			odds = 40
		case m.what == mCancel || m.what == mDrop:
			odds = 20
		case m.what == mHold:
			odds = 8
		case m.what == mTick || m.what == mRenew || m.what == mCheck:
			odds = 4
		}
		if chance.IntN(odds) == 0 {
			return m
		}
	}
}
