package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// A Call is one call of a primitive, as its caller saw it. Times count from the beginning of the world.
type Call struct {
	Actor, Client, Object int
	Step                  Step
	Begin, End            time.Duration
	Returned              bool
	Err                   error
	Dead                  bool // its process died before it returned
	Final                 bool // made after everything was healed

	Place  int64    // what it returned: an index, what is left, or whether it was set
	Hold   *Hold    // what it got
	Values []string // what it proclaims
	// Proclaimed is since when the last of them is, if there are two; 0 where that is not known.
	Proclaimed time.Duration
}

// parts are the locks that it is for.
func (c *Call) parts() Parts { return c.Step.Parts }

// A Hold is what a caller believes to hold: from the return of its call until its context ends.
type Hold struct {
	Token    uint64
	Deadline time.Duration // the last that was seen
	Ended    bool
	End      time.Duration
	Cause    error
	Over     error // why it had ended when it was returned, if it had

	ReleaseErr error
	Unlocked   bool // it was given back by an Unlock, which says nothing
}

// A Touch is that a fault was at work: on a client, on an object, or on everyone.
type Touch struct {
	From, To       time.Duration
	Client, Object int
	Parts          Parts // of the object; 0 for all
	Kind           FaultKind
	// Single says that it is of one of several servers, or of the way to one; Spare that the client that had its vote had a
	// majority of the others too.
	Single, Spare bool
	// Frees says that the server may have given away what was held before, by design.
	Frees bool
	Note  string
}

// A Mark is a token that the server has given.
type Mark struct {
	At    time.Duration
	Key   string
	Token uint64
}

// history is what happened in a world.
type history struct {
	began time.Time

	mu         sync.Mutex // guards the fields below, and the calls and holds in them
	calls      []*Call
	touches    []*Touch
	marks      []Mark
	violations []string
	actions    []action
	sights     []sight
	watched    []watched
	healed     time.Duration // 0 until then
}

// An action is one run of a barrier's action.
type action struct {
	object     int
	begin, end time.Duration
}

func (h *history) now() time.Duration { return time.Since(h.began) }

// begin notes a call.
func (h *history) begin(c Call) *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Begin, c.Final = h.now(), h.healed > 0
	h.calls = append(h.calls, &c)
	return &c
}

// end notes the return of a call.
func (h *history) end(c *Call, place int64, err error, dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.End, c.Returned, c.Place, c.Err, c.Dead = h.now(), true, place, err, dead
}

// hold notes the return of a call that holds, and follows the hold until it ends. Not every end is seen at
// once: ignorant says that the caller does not look for it.
func (h *history) hold(c *Call, l *lease.Lease, ignorant bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.End, c.Returned = h.now(), true
	hold := &Hold{Token: l.Token(), Deadline: l.Deadline().Sub(h.began)}
	hold.Over = context.Cause(l.Context())
	c.Hold = hold
	if ignorant {
		return
	}
	context.AfterFunc(l.Context(), func() { h.ended(hold, l) })
}

func (h *history) ended(hold *Hold, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hold.Ended {
		return
	}
	hold.Ended, hold.End, hold.Cause = true, h.now(), context.Cause(l.Context())
	hold.Deadline = l.Deadline().Sub(h.began)
}

// released notes how a release ended. A caller that was ignorant of its loss has held until now.
func (h *history) released(hold *Hold, l *lease.Lease, err error) {
	h.mu.Lock()
	hold.ReleaseErr = err
	h.mu.Unlock()
	h.ended(hold, l)
}

// touch notes that a fault begins. It lasts until it is ended, if lasting, else for the moment.
func (h *history) touch(t Touch, lasting bool) *Touch {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.From, t.To = h.now(), h.now()
	if lasting {
		t.To = forever
	}
	h.touches = append(h.touches, &t)
	return &t
}

const forever = 1000 * time.Hour

func (h *history) untouch(t *Touch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.To == forever {
		t.To = h.now()
	}
}

func (h *history) mark(key string, token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marks = append(h.marks, Mark{h.now(), key, token})
}

// violate notes what must not be.
func (h *history) violate(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
}

// settle waits until nothing moves any more at this moment.
func settle() { synctest.Wait() }

func (c *Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v actor %d client %d object %d %v", c.Begin, c.Actor, c.Client, c.Object, c.Step.Do)
	if c.Step.Parts != 0 {
		fmt.Fprintf(&b, "%v", c.Step.Parts.each())
	}
	switch {
	case !c.Returned:
		b.WriteString(" did not return")
	case c.Err != nil:
		fmt.Fprintf(&b, " until %v: %v", c.End, c.Err)
	case c.Hold != nil:
		fmt.Fprintf(&b, " holds from %v with token %d", c.End, c.Hold.Token)
		if c.Hold.Ended {
			fmt.Fprintf(&b, " until %v (deadline %v): %v", c.Hold.End, c.Hold.Deadline, c.Hold.Cause)
		}
		if c.Hold.ReleaseErr != nil {
			fmt.Fprintf(&b, "; release: %v", c.Hold.ReleaseErr)
		}
	default:
		fmt.Fprintf(&b, " until %v: %d", c.End, c.Place)
	}
	if c.Dead {
		b.WriteString(" (dead)")
	}
	return b.String()
}

func (t *Touch) String() string {
	s := fmt.Sprintf("%v fault: %v", t.From, t.Kind)
	if t.To != t.From {
		s += fmt.Sprintf(" until %v", t.To)
	}
	if t.Client != everyone {
		s += fmt.Sprintf(" client %d", t.Client)
	}
	if t.Object != everyone {
		s += fmt.Sprintf(" object %d", t.Object)
	}
	if t.Single {
		s += fmt.Sprintf(" (at one server, spare %v)", t.Spare)
	}
	if t.Note != "" {
		s += ": " + t.Note
	}
	return s
}

// String tells everything in the order of its beginning.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, c := range h.calls {
		lines = append(lines, line{c.Begin, c.String()})
	}
	for _, t := range h.touches {
		lines = append(lines, line{t.From, t.String()})
	}
	if h.healed > 0 {
		lines = append(lines, line{h.healed, fmt.Sprintf("%v all is healed", h.healed)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// lost reports whether a hold ended otherwise than by its release.
func (h *Hold) lost() bool { return h.Ended && errors.Is(h.Cause, lease.ErrLost) }
