package main

import "time"

// A kind of event in the life of a process of the demo.
type kind string

const (
	kindReady    kind = "ready"    // connected, waits for nothing
	kindCalled   kind = "called"   // about to call Lock
	kindQueued   kind = "queued"   // the server knows of the call
	kindHeld     kind = "held"     // Lock returned a lease
	kindRenewed  kind = "renewed"  // the lease's deadline moved
	kindReleased kind = "released" // about to call Release
	kindFreed    kind = "freed"    // Release returned, and it is confirmed
	kindLost     kind = "lost"     // told that the hold is lost
	kindFailed   kind = "failed"   // could not go on; Text says why

	kindKilled kind = "killed" // the demo killed it
	kindGone   kind = "gone"   // its end was seen
)

// event is what a process of the demo tells, a line of JSON on its output, or what its parent saw of it.
//
// Times are the wall clock's: the processes run on one machine, so they agree, and the parent notices
// if the clock was set meanwhile.
type event struct {
	Process  string    `json:"process"`
	Kind     kind      `json:"kind"`
	At       time.Time `json:"at"`
	Token    uint64    `json:"token,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"` // held, renewed, released: when the lease ends by itself
	Granted  time.Time `json:"granted,omitzero"`  // held: since when the server has it so, at the least; zero if it does not say
	Wrote    bool      `json:"wrote,omitempty"`   // released: the counter was raised
	Text     string    `json:"text,omitempty"`
}

// call is one call of Lock, and the hold that came of it, put together from what its process told.
type call struct {
	process  string
	called   time.Time
	placed   time.Time // by when the server knew of it; zero if it did not say
	acquired time.Time // zero if Lock did not return a lease
	granted  time.Time // by the server, at the least; zero if it did not say
	ended    time.Time // released, or told lost; zero if neither
	freed    time.Time // by when the server had confirmed the release; zero if it did not
	deadline time.Time // of the lease, as last told
	killed   time.Time // when its process was killed in the middle of it
	token    uint64
	lost     bool
	wrote    bool
	failed   string
}

func (c call) isHold() bool { return !c.acquired.IsZero() }
func (c call) isDead() bool { return !c.killed.IsZero() }

// end is when the hold was over, by what its process knew: released, told lost, or at the end of its
// lease, whichever came first. A killed process does nothing any more, but its lease protects it to the end.
func (c call) end() time.Time {
	if c.ended.IsZero() || c.deadline.Before(c.ended) {
		return c.deadline
	}
	return c.ended
}

// over notes the end of a hold, unless it had one: after a loss a release changes nothing.
func (c *call) over(at time.Time) {
	if c.ended.IsZero() {
		c.ended = at
	}
}

// recorder makes calls out of events.
type recorder struct {
	calls []call
	open  map[string]int       // process: its unfinished call
	shot  map[string]time.Time // process: when it was killed
	lone  []string             // complaints that belong to no call
	frees bool                 // the death of a holder ends its hold at once, not with its lease
}

func newRecorder() *recorder {
	return &recorder{open: map[string]int{}, shot: map[string]time.Time{}}
}

// add takes the next event of a process. Events of one process come in their order.
func (r *recorder) add(e event) {
	if e.Kind == kindCalled {
		r.open[e.Process] = len(r.calls)
		r.calls = append(r.calls, call{process: e.Process, called: e.At})
		return
	}
	i, ok := r.open[e.Process]
	switch {
	case e.Kind == kindKilled:
		r.shot[e.Process] = e.At
	case e.Kind == kindFailed && !ok:
		r.lone = append(r.lone, e.Process+" failed: "+e.Text)
	case e.Kind == kindGone && !ok:
		r.departed(e)
	case ok:
		r.continued(&r.calls[i], e)
	}
}

// continued adds an event to the call to which it belongs.
func (r *recorder) continued(c *call, e event) {
	switch e.Kind {
	case kindHeld:
		c.acquired, c.token, c.deadline, c.granted = e.At, e.Token, e.Deadline, e.Granted
	case kindQueued:
		c.placed = e.At
	case kindFreed:
		c.freed = e.At
	case kindRenewed:
		c.deadline = e.Deadline
	case kindReleased:
		c.deadline, c.wrote = e.Deadline, e.Wrote
		c.over(e.At)
	case kindLost:
		c.lost = true
		c.over(e.At)
	case kindFailed:
		c.failed = e.Text
	case kindReady:
		delete(r.open, e.Process)
	case kindGone:
		delete(r.open, e.Process)
		if c.ended.IsZero() {
			c.killed = r.shot[e.Process]
			if r.frees && c.killed.Before(c.deadline) {
				c.deadline = c.killed
			}
		}
		r.departed(e)
	}
}

// departed complains of a process that ended though nobody had killed it. Text is how it ended, empty if
// it had been asked to.
func (r *recorder) departed(e event) {
	if _, shot := r.shot[e.Process]; !shot && e.Text != "" {
		r.lone = append(r.lone, e.Process+" ended by itself: "+e.Text)
	}
}

// died tells whether a process was killed in the middle of a call, and whether it held by then.
func (r *recorder) died(process string) (held, inTheAct bool) {
	for _, c := range r.calls {
		if c.process == process && c.isDead() {
			return c.isHold(), true
		}
	}
	return false, false
}
