package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Hold is what a caller saw of one hold, from its call on.
type Hold struct {
	ID            int // a number of its own in the history
	Name          string
	Lane          int
	Called, Got   time.Duration
	Token         uint64
	Permits       int64
	Shared        bool
	Tried         bool          // by a try, which waits for nobody
	Deadline      time.Duration // the last one that it had
	Releasing     time.Duration // when its release was called; Never if it was not
	Released      time.Duration // when that returned; Never if it did not, or nobody knows with what effect
	Lost          time.Duration // when it was told lost; Never if it was not
	Entries       []Entry
	DowngradeCall time.Duration // of a downgrade; 0 if there was none
	Downgraded    time.Duration
}

// An Entry is a time that a hold was entered again, and left.
type Entry struct{ Call, Return, Leave, Left time.Duration }

// certain is the end of the time in which the hold was certain.
func (h *Hold) certain() time.Duration { return min(h.Releasing, h.Lost, h.Deadline) }

// reads says that others may share its token.
func (h *Hold) reads() bool { return h.Shared || h.Downgraded > 0 }

// Holds are holds of one object.
type Holds []Hold

func (hs Holds) by(less func(a, b *Hold) int) Holds {
	sorted := slices.Clone(hs)
	slices.SortStableFunc(sorted, func(a, b Hold) int { return less(&a, &b) })
	return sorted
}

func byToken(a, b *Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Got, b.Got)) }

// Tokens returns where two holds have one token, unless both are for reading, and where the token of a hold is
// not above that of one that had been granted before its call.
func (hs Holds) Tokens() (wrong []string) {
	sorted := hs.by(byToken)
	var late *Hold // of those with lower tokens, the one that was called last
	for i := range sorted {
		h := &sorted[i]
		if i > 0 && sorted[i-1].Token == h.Token && !(sorted[i-1].reads() && h.reads()) {
			wrong = append(wrong, fmt.Sprintf("holds %d and %d have token %d both", sorted[i-1].ID, h.ID, h.Token))
		}
		if late != nil && late.Token < h.Token && late.Called > h.Got {
			wrong = append(wrong, fmt.Sprintf("hold %d, called at %v, has token %d; hold %d had %d from %v on",
				late.ID, late.Called, late.Token, h.ID, h.Token, h.Got))
		}
		if late == nil || h.Called > late.Called {
			late = h
		}
	}
	return wrong
}

// Overlaps returns where the permits of holds that were certain at one moment exceed the limit. Of a lock the
// limit is 1; of a read-write lock a reader has one permit, and a writer all.
func (hs Holds) Overlaps(limit int64) (wrong []string) {
	type edge struct {
		at      time.Duration
		permits int64
		hold    *Hold
	}
	var edges []edge
	for i := range hs {
		h := &hs[i]
		if end := h.certain(); end > h.Got {
			lowered := end
			if h.Downgraded > 0 {
				// From its call on nobody can know whether it is one for reading.
				lowered = min(end, max(h.DowngradeCall, h.Got))
				edges = append(edges, edge{lowered, 1, h}, edge{end, -1, h})
			}
			edges = append(edges, edge{h.Got, h.Permits, h}, edge{lowered, -h.Permits, h})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.permits, b.permits)) // What ends goes first.
	})
	used := int64(0)
	for _, e := range edges {
		if used += e.permits; e.permits > 0 && used > limit {
			wrong = append(wrong, fmt.Sprintf("hold %d (token %d) at %v: %d permits of %d are held", e.hold.ID, e.hold.Token, e.at, used, limit))
		}
	}
	return wrong
}

// Losses returns the holds that were told lost, or refused their release, while their lease was certain.
func (hs Holds) Losses() (wrong []string) {
	for i := range hs {
		if h := &hs[i]; h.Lost < h.Deadline {
			wrong = append(wrong, fmt.Sprintf("hold %d (token %d) was told lost at %v, certain until %v", h.ID, h.Token, h.Lost, h.Deadline))
		}
	}
	return wrong
}

// Told returns by how much the news of a loss came after the deadline, at the most. Who has begun to release
// asks for no news.
func (hs Holds) Told() (latest time.Duration) {
	for i := range hs {
		if h := &hs[i]; h.Lost != Never && h.Lost < h.Releasing {
			latest = max(latest, h.Lost-h.Deadline)
		}
	}
	return latest
}

// Inversions returns the pairs that were served in the wrong order: of two calls of which the second was made
// more than slack after the first, the second one holds first. Slack is the longest that a call may take to
// get its place. Calls that got nothing count as nothing; a try waits for nobody, but must not overtake.
// Readers who share a token are served together. It names one pair for each call that was overtaken.
func (hs Holds) Inversions(slack time.Duration) (wrong []string) {
	sorted := hs.by(func(a, b *Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Called, b.Called)) })
	var first *Hold  // of those with lower tokens, the one that was called last
	var second *Hold // of those with the present token too
	for i := range sorted {
		h := &sorted[i]
		if i > 0 && sorted[i-1].Token < h.Token {
			first = second
		}
		if !h.Tried && first != nil && first.Called > h.Called+slack {
			wrong = append(wrong, fmt.Sprintf("hold %d (token %d), called at %v, was overtaken by hold %d (token %d), called at %v",
				h.ID, h.Token, h.Called, first.ID, first.Token, first.Called))
		}
		if second == nil || h.Called > second.Called {
			second = h
		}
	}
	return wrong
}
