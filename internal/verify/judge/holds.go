package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Never is the time of what did not happen, or of a call that was not answered: it may have its effect at any time.
const Never time.Duration = math.MaxInt64

// Readers are the permits of a read-write lock: a writer takes all of them, and a reader one.
const Readers = int64(1) << 30

// A Hold is what a caller saw of one hold, from its call on. Times are spans since a moment before all of them.
type Hold struct {
	ID        int          // a number of its own in the history
	Who       fmt.Stringer // tells of it in place of its number, unless nil
	Name      string
	Lane      int
	Called    time.Duration
	Placed    time.Duration // by when it had a place in the queue for certain; 0 if nobody knows
	Got       time.Duration // when it had the hold; of a call that got nothing, when it gave up, or Never
	Nothing   bool          // it got nothing
	Token     uint64        // 0 if there are no tokens
	Permits   int64
	Shared    bool
	Tried     bool          // by a try, which waits for nobody
	Dead      bool          // its process was killed while it waited
	Beyond    bool          // its holder goes on beyond the deadline, until it releases or is told
	Deadline  time.Duration // the last one that it had
	Releasing time.Duration // when its release was called; Never if it was not
	Released  time.Duration // when that returned; Never if it did not, or nobody knows with what effect
	Lost      time.Duration // when it was told lost; Never if it was not

	DowngradeCall time.Duration // of a downgrade
	Downgraded    time.Duration // 0 if there was none
}

// String tells of a hold in the words of its owner.
func (h *Hold) String() string {
	if h.Who != nil {
		return h.Who.String()
	}
	return fmt.Sprintf("hold %d (token %d, called at %v, got at %v)", h.ID, h.Token, h.Called, h.Got)
}

// End is the end of the time in which the hold was certain.
func (h *Hold) End() time.Duration {
	if h.Beyond {
		return min(h.Releasing, h.Lost)
	}
	return min(h.Releasing, h.Lost, h.Deadline)
}

// certain reports whether the hold was certain at any moment. Who goes on beyond the deadline was so when its call returned.
func (h *Hold) certain() bool {
	return !h.Nothing && (h.End() > h.Got || h.Beyond && h.End() == h.Got)
}

// reads reports whether others may share its token.
func (h *Hold) reads() bool { return h.Shared || h.Downgraded > 0 }

// uses are its permits at a moment. From the call of a downgrade on it may be one for reading.
func (h *Hold) uses(at time.Duration) int64 {
	if h.Downgraded > 0 && at >= h.DowngradeCall {
		return 1
	}
	return h.Permits
}

// placed is when it had its place in the queue, where a call needs so long for that at the most.
func (h *Hold) placed(slack time.Duration) time.Duration {
	if h.Placed > 0 {
		return h.Placed
	}
	return h.Called + slack
}

// Holds are holds of one object.
type Holds []Hold

// in returns the holds in an order, and those of the same place as they came.
func (hs Holds) in(order func(a, b *Hold) int) []*Hold {
	sorted := make([]*Hold, len(hs))
	for i := range hs {
		sorted[i] = &hs[i]
	}
	slices.SortStableFunc(sorted, order)
	return sorted
}

// ByToken is the order of tokens.
func ByToken(a, b *Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), byGot(a, b)) }

func byGot(a, b *Hold) int { return cmp.Compare(a.Got, b.Got) }

// An Excuse reports whether a hold may stand at a moment though the server does not know of it.
type Excuse func(h *Hold, at time.Duration) bool

func (e Excuse) covers(h *Hold, at time.Duration) bool { return e != nil && e(h, at) }

// A Span is a time in which a server lost what it knew.
type Span struct{ From, To time.Duration }

// Forgot excuses the holds that a server may have forgotten: called before the end of such a span, and not over when that
// began.
func Forgot(spans []Span) Excuse {
	return func(h *Hold, _ time.Duration) bool {
		end := h.Deadline
		if h.Released != Never {
			end = h.Released
		}
		return slices.ContainsFunc(spans, func(s Span) bool { return h.Called <= s.To && end >= s.From })
	}
}
