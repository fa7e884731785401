package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A world is one name at a server, the clients that use it, and the network between them. Where a call wants several names there
// is one for each.
type world struct {
	*shared
	server
	number   int // of the name
	occasion any // an event at the server, which is an [occasion]; nil where there is none
	clients  []*client
	calls    []*call // in the order of the scope
	old      []*flight
	texts    []*lua.Transit // of holds that were handed over
	zombies  []string       // clients with a connection that the server counts and nobody reads
	forced   bool           // by the operator
	buried   bool           // the client with an identity is
	judge    judge
}

// What is shared by the names: the time, the calls for several of them, and what may go wrong.
type shared struct {
	scope  *scope
	now    time.Time
	names  []*world
	multis []*multi // in the order of the scope
	asked  []string // for the judge: those that have asked, in this order
	budget budget

	// Of the step that is being made.
	plan plan
	sent []lane // what was sent, by where
	told []string
	mute bool // nobody reads what is told

	usual int // how many of the steps that can be next are no faults
}

// worldRules are those of the fields of this package.
var worldRules = map[string]rule{
	"shared.scope": skip, "shared.now": skip, "shared.plan": skip, "shared.sent": skip, "shared.told": skip, "shared.mute": skip, "shared.usual": skip,
	"client.timer": skip, "client.floor": skip, "client.world": skip, "client.process": skip, "world.number": skip, "timed.at": local,
	"call.holdTimer": skip, "call.until": skip, "flight.NotAfter": skip, "flight.Floor": skip, "flight.Attempt": skip, "judge.alone": token, "judge.bad": skip,
	"call.granted": skip, "call.took": skip, "judge.Rest": sign,
	"call.begun": place, "call.doubt": skip,
	"multi.wants": skip, "multi.until": skip, "multi.over": set, "part.place": place, "part.asked": place, "part.came": place, "part.client": skip,
}

// parts are the types of what a world reaches through any.
var parts []reflect.Type

func init() {
	specials = map[reflect.Type]func(e *encoder, p unsafe.Pointer) bool{
		reflect.TypeFor[client]():      func(e *encoder, p unsafe.Pointer) bool { e.bool(e.polls); e.polls = false; return false },
		reflect.TypeFor[core.Ticket](): func(e *encoder, p unsafe.Pointer) bool { e.taken = (*core.Ticket)(p).Hold != nil; return false },
		reflect.TypeFor[flight]():      flightForm,
		reflect.TypeFor[core.Grant]():  grantForm,
		reflect.TypeFor[wire.Grant]():  wireGrantForm,

		reflect.TypeFor[event.Waiter](): waiterForm,
		reflect.TypeFor[meeting]():      meetingForm,
	}
	for _, t := range append(parts, reflect.TypeFor[world](), reflect.TypeFor[call]()) { // Not before: a form has its special from the start.
		shapeOf(t)
		formOf(t)
	}
}

// grantForm writes of a grant how old it is: whether it may be taken as it is, or the server is to be asked.
func grantForm(e *encoder, p unsafe.Pointer) bool {
	g := (*core.Grant)(p)
	e.number(token, int64(g.Token), 1)
	if taken := e.taken; taken {
		e.taken = false
	} else if g.Token != 0 {
		e.age(g.From.UnixNano(), int64(g.Lasts))
		e.int(int64(g.Lasts))
		e.bool(g.Slept < 0)
	}
	return false
}

// flightForm writes of a request until when it may run, and of a reply how old it makes a grant.
func flightForm(e *encoder, p unsafe.Pointer) bool {
	f := (*flight)(p)
	switch {
	case f.NotAfter == 0:
	case f.Left:
		e.number(limit, f.NotAfter, 1000)
	case f.Kind == endKind || f.Kind == endAllKind:
		e.number(sending, f.Attempt.Sent.UnixNano(), 1)
		e.number(limit, f.Attempt.Expires.UnixNano(), 1)
	default:
		e.number(limit, f.Attempt.Expires.UnixNano(), 1)
		e.age(f.Attempt.Sent.UnixNano(), int64(leaseTime))
	}
	return false
}

func wireGrantForm(e *encoder, p unsafe.Pointer) bool {
	g := (*wire.Grant)(p)
	e.text(g.Ticket)
	e.number(token, int64(g.Token), 1)
	e.age(g.At*1000, (g.Until-g.At)*1000)
	return true
}

// age is how much of a span is over.
func (e *encoder) age(from, lasts int64) {
	switch age := e.now - from; {
	case age > lasts:
		e.byte(3)
	case age > lasts/3:
		e.byte(2)
	default:
		e.byte(1)
	}
}

// A budget is how much may go wrong yet.
type budget struct{ Late, Faults, Cancels, Twice int }

// life is whether a client runs.
type life uint8

const (
	alive life = iota
	stopped
	dead
)

// A client is one process: a core, and the shell around it. Of a process that uses several names there is one for each, with
// connections of its own.
type client struct {
	name    string
	life    life
	lock    *core.Lock
	event   *event.Event // in place of that
	timer   time.Time    // of the name
	floor   uint64       // the highest token that it has seen
	heard   bool         // a reply has come: it knows the server's clock
	world   *world
	process []*client // all that are one process

	// Its subscription.
	sub   subscription
	again bool // a connection is to replace the one that subscribes
	half  bool // nothing comes through on that one any more

	cohort   *core.Cohort
	lent     *call // whose hold the cohort uses
	recalled bool  // the hold that is kept is to be given back

	attends bool // it hears of releases by force
	retires bool // the name is to be dropped, unless a call comes first
	poll    bool // a check is to begin
	round   *core.Round
	links
}

type subscription uint8

const (
	unsubscribed subscription = iota
	subscribing
	subscribed
)

// phase is what a call waits for.
type phase uint8

const (
	unborn     phase = iota
	running          // its loop is to go on
	asking           // a reply to its acquire request
	confirming       // a reply to its renewal
	sleeping         // to be woken
	pausing          // a time
	holding          // its holder
	following        // the other calls of its cohort
	acting           // the end of its action
	opening          // a reply to how that ended
	hearing          // to be subscribed for all names
	over
)

// A call is one call of Lock, and then its lease.
type call struct {
	name      string
	client    *client
	phase     phase
	ticket    *core.Ticket
	hold      *core.Hold
	holdTimer time.Time
	until     time.Time // of a pause
	woken     bool
	ended     bool // its context is
	renews    bool // a renewal is due
	placed    bool // for the judge: it has a place that nobody may take
	had       bool // for the judge: its client knows that it had a place

	multi *multi // the call for several names that it is a part of
	part  int    // which

	using    *call // the call whose hold it uses: itself, except in a cohort
	begun    time.Time
	follower *core.Follower
	leads    bool // it is to ask for a hold for its cohort
	unsure   bool // its hold was waited for, and no renewal has told since who waits now
	knows    bool // its client knows that somebody waits for its hold
	from     *lua.Transit
	doubt    time.Time // until when a request that it has lost may run

	granted time.Time // for the judge: when the server gave it its hold
	took    time.Time // and when its call had it
	entered bool      // it has entered its hold again
	twice   bool      // and has not left it since
	forced  bool      // for the judge: its hold was released by force

	waiter *event.Waiter // in place of a ticket
	acted  bool          // its action has done well
	goesOn bool          // its wait had not ended by then
}

// lane is where something is under way.
type lane byte

const (
	toServer   lane = 'q' // requests
	toClient   lane = 'r' // replies
	subscribes lane = 'l' // what concerns the subscription
	pushes     lane = 'p' // messages
)

// kind is what a request asks for.
type kind uint8

const (
	askKind kind = iota
	checkKind
	endKind
	renewKind
	confirmKind
	echoKind
	subscribeKind
	unsubscribeKind
	messageKind
	goneKind // the connection that subscribes is
	openKind // of a party whose action has ended
	forceKind
	buryKind
	askAllKind // of several names
	endAllKind
)

// tell tells what happens at the name.
func (w *world) tell(format string, args ...any) { w.shared.tell(w.ofName(format), args...) }

// ofName says before a text of which name it is, if there are several.
func (w *world) ofName(text string) string {
	words := strings.TrimLeft(text, " ")
	if len(w.names) == 1 || w.mute {
		return text
	}
	return fmt.Sprintf("%sname %d: %s", text[:len(text)-len(words)], w.number+1, words)
}

// us is the time of the server.
func (w *world) us() int64 { return w.now.UnixMicro() }

func (w *world) clientNamed(name string) *client {
	for _, c := range w.clients {
		if c.name == name {
			return c
		}
	}
	return nil
}

// send puts something on its way, unless the plan of the step is something else.
func (c *client) send(l lane, f *flight) {
	w := c.world
	to := c.lane(l)
	if l == pushes && f.Kind != messageKind {
		l = subscribes // What confirms a subscription comes, or the connection is cut.
	}
	w.sent = append(w.sent, l)
	if w.plan.nth != len(w.sent) || !w.may(l, w.plan.do) {
		*to = append(*to, f)
		return
	}
	switch w.plan.do {
	case held:
		w.budget.Late--
		f.Late = true
		*to = append(*to, f)
		w.tell("    held up: %s %s", f.what(), direction(l, c))
	case twice:
		w.budget.Twice--
		again := *f
		again.Late = true
		*to = append(*to, f, &again)
		w.tell("    comes twice: %s %s", f.what(), direction(l, c))
	case lost:
		w.budget.Faults--
		w.judge.hurt(c)
		w.tell("    lost: %s %s", f.what(), direction(l, c))
	default:
		w.budget.Faults--
		*to = append(*to, f)
		c.cutConnection(w.plan.do == givenUp)
	}
}

func direction(l lane, c *client) string {
	if l == toClient {
		return "(its reply)"
	}
	return "(" + c.name + ")"
}

// faulty reports whether what is sent can come to harm.
func (w *world) faulty() bool { return w.budget.Faults > 0 && !w.scope.Skips }

// may reports whether something can happen to what was sent.
func (w *world) may(l lane, do mishap) bool {
	switch do {
	case held:
		return w.budget.Late > 0
	case twice:
		return w.budget.Twice > 0 && l == pushes
	case lost:
		return w.faulty() && l == pushes
	case cut:
		return w.faulty() && (l == toServer || l == toClient)
	case givenUp:
		return w.faulty() && l == toServer
	}
	return false
}
