package core

import (
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
)

// A Lock is all that a client knows of one name that can be held: the tickets that wait or hold, whether it is subscribed, and when
// to poll. Its methods are called one at a time.
type Lock struct {
	Config
	Name

	tickets Calls[*Ticket]        // a ticket is here from before its first request until its release is acknowledged (R8)
	owners  map[string]*Hold      // by the owner that a context named
	leaving map[*Release]struct{} // releases of what has no ticket
	cohorts []*Cohort             // of calls that pass holds on or keep them
	unlocks []*Release            // of holds that nobody waits for: later acquire requests of this client follow them (R1)

	Waited bool // the last acquire request was told to wait

	claimBy time.Time // when to poll for whether the grant handed on was claimed
	handed  uint64    // its token
	seen    uint64    // the last token of the name that the client knows of
	missing string    // a ticket whose grant a check found and no message has brought yet
	missBy  time.Time // when that is a miss
	all     bool      // the next check names all tickets, not just the oldest
}

// Config is what does not change about a [Lock].
type Config struct {
	Client     string        // the identity that its tickets begin with
	GrantLease time.Duration // how long a grant by message lasts before its client confirms it
	Entries    bool          // renewals tell how often the hold was entered
	Several    bool          // several tickets may hold at once
	Together   bool          // usual checks may go together with those of other names
}

// New returns what a client knows of a name that it has not used yet.
func New(x *Input, c Config, n Name) *Lock {
	l := &Lock{Config: c, Name: n}
	l.Rest(x, true, time.Time{})
	return l
}

// An Attempt is one sending of a request.
type Attempt struct {
	Sent    time.Time
	Slept   time.Duration // for how long the machine had been suspended by then
	Expires time.Time     // local time after which the server refuses it (R7)
}

// A Failure is why a request has no answer that counts. The zero Failure is none.
type Failure struct {
	Err      error
	Advice   error // Err as a user is told
	Answered bool  // the server has answered with an error
	Unsent   bool  // it was not sent
	Passes   bool  // it passes by itself
	Mendable bool  // it passes, or somebody can mend the server
}

// InDoubt reports whether the request may have run, or may run yet.
func (f *Failure) InDoubt() bool { return f.Err != nil && !f.Answered && !f.Unsent }

// Register makes a ticket known before anything is sent for it (R8).
func (l *Lock) Register(t *Ticket) { l.tickets.Add(t) }

// Ticket returns the ticket with a text, nil if the client knows none.
func (l *Lock) Ticket(text string) *Ticket { return l.tickets.Find(text) }

// Listen notes that the name is in use, and subscribes.
func (l *Lock) Listen(x *Input) {
	l.Use(x)
	if l.Want() {
		x.Add(Effect{Do: Subscribe})
	}
}

// busy reports whether something is under way.
func (l *Lock) busy() bool {
	return l.tickets.Len() > 0 || l.Checking || !l.claimBy.IsZero() || len(l.leaving) > 0 || slices.ContainsFunc(l.cohorts, func(c *Cohort) bool { return c.led })
}

// OnTimer does what is due.
func (l *Lock) OnTimer(x *Input) {
	if due(x, &l.missBy) {
		x.Add(Effect{Do: Missed, Text: l.missing})
		l.missing = ""
		l.suspect(x)
	}
	lost, check, usual := l.Due(x)
	if due(x, &l.claimBy) {
		l.Poll(x)
	}
	if lost && !check && l.AnyWaits() {
		check, usual = true, false
	}
	switch {
	case check && usual && l.Together:
		x.Add(Effect{Do: PollSoon})
	case check:
		l.Poll(x)
	}
	l.Rest(x, l.busy(), times.First(l.missBy, l.claimBy))
}

// Retire drops the name unless a call has come since. It reports whether it does, and whether there is a subscription to be ended.
func (l *Lock) Retire(x *Input) (over, subscribed bool) { return l.RetireUnless(x, l.busy()) }
