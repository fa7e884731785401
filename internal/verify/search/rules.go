package search

import "fmt"

// A Rule is one of R1 to R10 of package waitqueue.
type Rule uint8

// The rules, by their numbers.
const (
	R1 Rule = 1 + iota
	R2
	R3
	R4
	R5
	R6
	R7
	R8
	R9
	R10
)

// Slips are mistakes that were made within the rules, and that searches of this model found. They are kept so
// that the way to each can be shown.
const (
	// EndWhenAnswered decides whether an end must be repeated by what is under way when its answer comes. It
	// is what was under way when it was sent that may run after it.
	EndWhenAnswered Rule = 11 + iota
	// LapseForgets forgets the number that a ticket had before it lapsed, under which an ask may still run.
	LapseForgets
	// LateArrivalStays lets a ticket that was skipped keep the arrival that its own first ask, running late, has
	// given it in place of its own.
	LateArrivalStays
	// StaleProof lets a check that runs late clear a mark that is newer than the echo it goes by. The code still
	// does: it costs one more grant lease, of a client that is half open.
	StaleProof
)

// Parts of rules, each of which can be left out by itself.
const (
	R1Order      Rule = 16 + iota // requests on a connection take effect in their order
	R1Repeat                      // an end is repeated after what may still run
	R2Confirmed                   // only a confirmed subscription counts
	R2Connection                  // and only what the present connection brings
	R3Ask                         // an ask serves the queue before it decides
	R3Check                       // a check does
	R3Leave                       // a waiter that leaves does
	R8Held                        // a notice for a ticket that holds is dropped
	R8Ending                      // one for a ticket that is ending is
	R10Suspects                   // the server passes suspects over
	R10Doubt                      // a client that missed a message or is a suspect makes a new connection
)

// Slips of cohorts.
const (
	// MateAsksLater sends the ask of the next leader behind the end of the last.
	MateAsksLater Rule = 27 + iota
	// MateIsForgotten leaves the mate of a ticket that ends where it is.
	MateIsForgotten
)

// parts are the names of the parts, and which rule each belongs to.
var parts = map[Rule]struct {
	name string
	of   Rule
}{
	R1Order: {"R1 order", R1}, R1Repeat: {"R1 repeated ends", R1},
	R2Confirmed: {"R2 confirmed", R2}, R2Connection: {"R2 this connection", R2},
	R3Ask: {"R3 asks", R3}, R3Check: {"R3 checks", R3}, R3Leave: {"R3 leaving", R3},
	R8Held: {"R8 holding", R8}, R8Ending: {"R8 ending", R8},
	R10Suspects: {"R10 suspects", R10}, R10Doubt: {"R10 doubt", R10},
}

func (r Rule) String() string {
	if r >= MateAsksLater {
		return [...]string{"MateAsksLater", "MateIsForgotten"}[r-MateAsksLater]
	}
	if r >= R1Order {
		return parts[r].name
	}
	if r > R10 {
		return [...]string{"EndWhenAnswered", "LapseForgets", "LateArrivalStays", "StaleProof"}[r-EndWhenAnswered]
	}
	return fmt.Sprintf("R%d", uint8(r))
}

// Rules are those that hold in a search, and the slips that are made.
type Rules uint32

// All are the rules of the protocol, with all their parts.
const All Rules = 1<<(R10+1) - 1<<R1 + 1<<(R10Doubt+1) - 1<<R1Order

// Change returns the rules without the given one, or with the given slip.
func (r Rules) Change(x Rule) Rules { return r ^ 1<<x }

func (r Rules) has(x Rule) bool {
	p, is := parts[x]
	return r&(1<<x) != 0 && (!is || r&(1<<p.of) != 0)
}

// without says what the model does where a rule does not hold, or a slip is made.
var without = map[Rule]string{
	R1:  "requests on one connection overtake each other, and an end is sent once, whatever is still under way",
	R2:  "a client counts as hearing until the end of its subscription is confirmed, and what an earlier connection brings counts",
	R3:  "only a release serves the queue: asks, checks and the leaving of a waiter do not",
	R4:  "a head is granted unasked; if PUBLISH then counts no subscriber the grant is undone and the next one served",
	R5:  "a head that belongs to the calling client is asked for like any other, and granted by message",
	R6:  "silent heads are dropped, even if there are several and nobody is heard",
	R7:  "a request takes effect however late it runs",
	R8:  "the notice of a grant for a ticket that holds or is ending is given back",
	R9:  "leaving takes a ticket out of the queue only; releasing and giving back free it only if it holds",
	R10: "no client is suspected, and none doubts its subscription",

	EndWhenAnswered:  "whether an end must be repeated is decided when its answer comes",
	LapseForgets:     "what may still run under the number that a ticket had before it lapsed is not ended",
	StaleProof:       "a proof counts for marks that are newer than it",
	MateAsksLater:    "the ask of a cohort's next leader goes behind the end of the last",
	MateIsForgotten:  "the mate of a ticket that ends does not lead",
	LateArrivalStays: "a queued ticket keeps its arrival, even if that is later than the one its client states",
}
