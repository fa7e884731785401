package bench

import "time"

// beyondTime is how long W5 to W8 take of all contenders.
const beyondTime = 5 * time.Minute

// overdue tells whether the time of the run is over.
func (r *runner) overdue() bool { return r.Within > 0 && time.Since(r.begun) > r.Within }

// left is what is left of the run for works in rounds.
func (r *runner) left() time.Duration {
	left := r.Within - time.Since(r.begun)
	if len(r.Scenes)+len(r.Crowds)+len(r.Config.Holds) > 0 {
		left -= beyondTime
	}
	return max(left, 0)
}

// plan counts the works of all contenders, and gives each the same share of the run.
func (r *runner) plan() {
	for _, w := range r.Works {
		for _, c := range r.Contenders {
			if c.takesPart(w) {
				r.cells++
			}
		}
	}
	r.base = r.left() / time.Duration(max(r.cells, 1))
}

// share is how long the rounds of the next work of a contender may take: what all have, and what those before it have
// left, up to twice the first. Where those before took longer, what is left is shared alike.
func (r *runner) share() time.Duration {
	if r.Within == 0 {
		return 1<<63 - 1
	}
	left, cells := r.left(), time.Duration(max(r.cells, 1))
	if spare := left - cells*r.base; spare > 0 {
		return r.base + min(spare, r.base)
	}
	return left / cells
}
