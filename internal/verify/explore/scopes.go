package main

import (
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/permits"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A scope is who takes part, and how much may go wrong.
type scope struct {
	Title   string
	Calls   string // in their order: A1 A2 B1; A2 is the second call of client A. A1:12 wants the first and the second name
	Names   int    // how many there are; 0: one
	Permits int64  // 0: a lock that one holds at a time
	Heavy   string // the client that wants all permits; a writer, where there are readers
	Double  string // the client that makes two calls at a time
	Replica string // the client that subscribes at a replica: it hears, and is not counted
	Asks    string // the client whose holders want to know whether somebody waits
	Leaves  string // the client that unsubscribes when it has not used the name for a while
	Least   string // the client whose holds have a minimum
	Most    string // the client whose holds have a maximum
	Enters  string // the client that may enter its hold again
	Forces  bool   // an operator may free the name by force, once
	Buries  string // the client with an identity: after its death the next with that identity buries it, at any time
	Gives   string // the client that hands its holds over
	Mates   string // the client whose calls use one hold
	Passes  int    // how often it is passed on
	Keeps   bool   // whether it is kept
	Readers bool
	Limit   int            // how many may wait; 0: any number
	Event   func(w *world) // makes the event that all calls wait for in place of a hold
	Sets    int            // how often a latch is set again, or somebody leads, at any time
	budget

	Overtake  bool // a slip of the network: requests on a connection overtake those that are held up
	AsksLater bool // a slip: the next leader of a cohort asks after the release of the last hold
	HearsOn   bool // a slip: a client that unsubscribes counts as subscribed until it has heard of the end of that
	RunsOn    bool // a slip: what a dead client has sent is served after its burial
	EndsLate  bool // a slip: who hands a hold over ends when that is answered
	OneByOne  bool // a slip: a call for several names asks for each by itself
	NewPlace  bool // a slip: and again for what it has given back as if for the first time
	Ahead     bool // the last token is ahead of the clock
	Forgets   bool // a fault may be that the server forgets
	Quick     bool // no more time passes than from one token to the next
	Skips     bool // the one fault is that a subscription of one name is cut, so that a ticket is skipped
	Stale     bool // old requests are sent on though they are too late (R7)
	Long      bool // not in the check
	Wide      bool // nor in the usual run of all
	Depth     int  // how many steps deep the tests go; 0: all
}

var scopes = []*scope{
	{Title: "two clients and a fault", Calls: "A1 B1", budget: budget{Faults: 1}},
	{Title: "two clients, a fault, and requests that run too late", Calls: "A1 B1", budget: budget{Faults: 1}, Stale: true},
	{Title: "two clients, a late message and one that gives up", Calls: "A1 B1", budget: budget{Late: 1, Cancels: 1}},
	{Title: "two clients, a late message and a fault", Calls: "A1 B1", budget: budget{Late: 1, Faults: 1}},
	{Title: "two clients and two late messages", Calls: "A1 B1", budget: budget{Late: 2}, Long: true},
	{Title: "two clients, a late message, a fault and one that gives up", Calls: "A1 B1", budget: budget{Late: 1, Faults: 1, Cancels: 1}, Long: true},
	{Title: "two clients, one of which comes back, and a late message", Calls: "A1 A2 B1", budget: budget{Late: 1}},
	{Title: "three clients and a fault", Calls: "A1 B1 C1", budget: budget{Faults: 1}},
	{Title: "two clients, one of which comes back, and two messages that come twice", Calls: "A1 A2 B1", budget: budget{Twice: 2}},
	{Title: "three clients, a message that comes twice, and a fault", Calls: "A1 B1 C1", budget: budget{Twice: 1, Faults: 1}, Long: true},
	{Title: "three clients and two faults", Calls: "A1 B1 C1", budget: budget{Faults: 2}, Long: true},
	{Title: "two clients that come back, a late message and one that gives up", Calls: "A1 A2 B1 B2", budget: budget{Late: 1, Cancels: 1}, Wide: true, Long: true},
	{Title: "two clients, one of which unsubscribes and comes back, and a late message", Calls: "A1 B1 B2", Leaves: "B", budget: budget{Late: 1}, Long: true},
	{Title: "two clients that come back, one that gives up and one that unsubscribes", Calls: "A1 A2 B1 B2", Leaves: "B", budget: budget{Cancels: 1}},
	{Title: "two clients that come back, a fault and one that unsubscribes", Calls: "A1 A2 B1 B2", Leaves: "B", budget: budget{Faults: 1}, Long: true},
	{Title: "two clients that come back, a late message, one that gives up and one that unsubscribes", Calls: "A1 A2 B1 B2", Leaves: "B", budget: budget{Late: 1, Cancels: 1}, Wide: true, Long: true},
	{Title: "two calls at a time, a late message and a fault", Calls: "A1 B1 B2", Double: "B", budget: budget{Late: 1, Faults: 1}, Wide: true, Long: true},
	{Title: "two calls at a time, and a fault", Calls: "A1 A2 B1 B2", Double: "B", budget: budget{Faults: 1}, Long: true},
	{Title: "three clients, one of which listens at a replica", Calls: "A1 B1 C1", Replica: "B"},
	{Title: "three clients, one of which listens at a replica, and a late message", Calls: "A1 B1 C1", Replica: "B", budget: budget{Late: 1}, Long: true},
	{
		Title: "three clients, one of which comes back, one of which listens at a replica and makes two calls at a time, and a late message",
		Calls: "A1 A2 B1 B2 C1", Double: "B", Replica: "B", budget: budget{Late: 1}, Wide: true, Depth: 11,
	},
	{Title: "a semaphore of two, a fault and a call that gives up", Calls: "A1 B1 C1", Permits: 2, Heavy: "B", budget: budget{Faults: 1, Cancels: 1}, Long: true},
	{Title: "two readers, a writer, a fault and a call that gives up", Calls: "A1 B1 C1", Permits: wire.AllReaders, Heavy: "B", Readers: true, budget: budget{Faults: 1, Cancels: 1}, Long: true},
	{Title: "three clients of which one may wait, and a fault", Calls: "A1 B1 C1", Limit: 1, budget: budget{Faults: 1}},
	{Title: "three clients of which one may wait, and a late message", Calls: "A1 B1 C1", Limit: 1, budget: budget{Late: 1}},
	{Title: "three clients of which one may wait, a late message and a fault", Calls: "A1 B1 C1", Limit: 1, budget: budget{Late: 1, Faults: 1}, Wide: true, Long: true},
	{Title: "two calls at a time, two of which may wait, a fault and one that gives up", Calls: "A1 A2 B1 B2", Double: "B", Limit: 2, budget: budget{Faults: 1, Cancels: 1}, Long: true},
	{Title: "a holder that wants to know whether somebody waits, one other, and a fault", Calls: "A1 B1", Asks: "A", budget: budget{Faults: 1}},
	{Title: "a holder that wants to know whether somebody waits, one other, a late message and one that gives up", Calls: "A1 B1", Asks: "A", budget: budget{Late: 1, Cancels: 1}},
	{Title: "a holder that wants to know whether somebody waits, two others, and a fault", Calls: "A1 B1 C1", Asks: "A", budget: budget{Faults: 1}},
	{Title: "a holder that enters again, one other, and a fault", Calls: "A1 B1", Enters: "A", budget: budget{Faults: 1}},
	{Title: "a holder that is freed by force, one other, and a late message", Calls: "A1 B1", Forces: true, budget: budget{Late: 1}, Long: true},
	{Title: "a holder that is freed by force, one other, and a fault", Calls: "A1 B1", Forces: true, budget: budget{Faults: 1}},
	{Title: "a holder that is buried, one other, and a late message", Calls: "A1 B1", Buries: "A", budget: budget{Late: 1, Faults: 1}, Long: true},
	{Title: "a holder that is buried, one other, and another fault", Calls: "A1 B1", Buries: "A", budget: budget{Faults: 2}},
	{Title: "a client that is buried, two others, and one that gives up", Calls: "A1 B1 C1", Buries: "B", budget: budget{Faults: 1, Cancels: 1}, Long: true},
	{Title: "a writer that is buried, and two readers", Calls: "A1 B1 C1", Permits: wire.AllReaders, Heavy: "B", Readers: true, Buries: "B", budget: budget{Faults: 1}},
	{Title: "a hold with a minimum, two others, and a fault", Calls: "A1 B1 C1", Least: "A", budget: budget{Faults: 1}},
	{Title: "a hold with a minimum, one other, a late message and one that gives up", Calls: "A1 B1", Least: "A", budget: budget{Late: 1, Cancels: 1}},
	{Title: "a hold with a maximum, one other, a late message and one that gives up", Calls: "A1 B1", Most: "A", budget: budget{Late: 1, Cancels: 1}},
	{Title: "a hold with a maximum, one other, and a fault", Calls: "A1 B1", Most: "A", budget: budget{Faults: 1}},
	{Title: "a cohort alone", Calls: "A1 A2 A3", Mates: "A", Passes: 1},
	{Title: "a cohort and a stranger", Calls: "A1 A2 A3 B1 B2", Mates: "A", Passes: 1, Long: true},
	{Title: "a cohort, a stranger and a fault", Calls: "A1 A2 A3 B1", Mates: "A", Passes: 1, budget: budget{Faults: 1}, Long: true},
	{Title: "a client that hands over, and two others", Calls: "A1 B1 C1", Gives: "A"},
	{Title: "a client that hands over, one other, a late message and a fault", Calls: "A1 B1", Gives: "A", budget: budget{Late: 1, Faults: 1}, Long: true},
	{Title: "a client that hands over, two others, and a fault", Calls: "A1 B1 C1", Gives: "A", budget: budget{Faults: 1}},
	{Title: "a client that hands over, two others, and a late message", Calls: "A1 B1 C1", Gives: "A", budget: budget{Late: 1}, Long: true},
	{Title: "a client that keeps its hold, and two others", Calls: "A1 A2 B1 C1", Mates: "A", Keeps: true},
	{Title: "a client that keeps its hold, one other, and a fault", Calls: "A1 A2 B1", Mates: "A", Keeps: true, budget: budget{Faults: 1}, Long: true},
	{Title: "a client that keeps its hold, one other, tokens ahead of the clock, and a fault", Calls: "A1 A2 B1", Mates: "A", Keeps: true, Ahead: true, budget: budget{Faults: 1}, Long: true},
	{Title: "a client that keeps its hold, one other, and a server that forgets", Calls: "A1 A2 B1", Mates: "A", Keeps: true, Forgets: true, Quick: true, budget: budget{Faults: 1}, Long: true},
	{Title: "a latch of two, two who wait, a late message and a fault", Calls: "A1 B1", Event: latchOfTwo, budget: budget{Late: 1, Faults: 1}},
	{Title: "a latch that is set again, two who wait, one of which comes back, and a late message", Calls: "A1 A2 B1", Event: latchOfTwo, Sets: 1, budget: budget{Late: 1}},
	{Title: "a barrier of two, a late message and a fault", Calls: "A1 B1", Event: barrierOfTwo, budget: budget{Late: 1, Faults: 1}},
	{Title: "a barrier of two, both come again, a late message and a fault", Calls: "A1 A2 B1 B2", Event: barrierOfTwo, budget: budget{Late: 1, Faults: 1}, Long: true},
	{Title: "a barrier of two, both come again, a fault and one that gives up", Calls: "A1 A2 B1 B2", Event: barrierOfTwo, budget: budget{Faults: 1, Cancels: 1}},
	{Title: "a barrier of two with an action, a late message and one that gives up", Calls: "A1 B1", Event: barrierWithAction, budget: budget{Late: 1, Cancels: 1}},
	{Title: "a barrier of two with an action, a fault and one that gives up", Calls: "A1 B1", Event: barrierWithAction, budget: budget{Faults: 1, Cancels: 1}},
	{Title: "a latch of two, two who wait, a late message and one that gives up", Calls: "A1 B1", Event: latchOfTwo, budget: budget{Late: 1, Cancels: 1}},
	{Title: "a barrier of two, a late message and one that gives up", Calls: "A1 B1", Event: barrierOfTwo, budget: budget{Late: 1, Cancels: 1}},
	{Title: "two who observe an election, and a late message", Calls: "A1 B1", Event: leadership, Sets: 2, budget: budget{Late: 1}},
	{Title: "two who observe an election, and a fault", Calls: "A1 B1", Event: leadership, Sets: 2, budget: budget{Faults: 1}},
	{Title: "a client that keeps its hold, one other, and a late message", Calls: "A1 A2 B1", Mates: "A", Keeps: true, budget: budget{Late: 1}, Long: true},
	{Title: "two calls for two names", Calls: "A1:12 B1:12", Names: 2},
	{Title: "two calls for two names, a fault and one that gives up", Calls: "A1:12 B1:12", Names: 2, Stale: true, budget: budget{Faults: 1, Cancels: 1}},
	{Title: "two calls for two names, a late message and one that gives up", Calls: "A1:12 B1:12", Names: 2, budget: budget{Late: 1, Cancels: 1}, Long: true},
	{Title: "a call for two names, two for one of them, and one for the other", Calls: "A1:2 B1:2 C1:12 D1:1", Names: 2},
	{Title: "a call for one name, two for two, and a ticket that is skipped", Calls: "A1:2 B1:12 C1:12", Names: 2, Skips: true, budget: budget{Faults: 1}},
	{Title: "a call for one name, two for two, and a late message", Calls: "A1:2 B1:12 C1:12", Names: 2, budget: budget{Late: 1}, Wide: true, Depth: 10},
	{Title: "a call for one name, three for two", Calls: "A1:2 B1:12 C1:12 D1:12", Names: 2},
	{Title: "three calls for two of three names each", Calls: "A1:23 B1:13 C1:12", Names: 3, Long: true},
	{Title: "three calls for two of three names each, and a ticket that is skipped", Calls: "A1:23 B1:13 C1:12", Names: 3, Skips: true, budget: budget{Faults: 1}, Wide: true, Depth: 10},
	{Title: "three calls for two of three names each, and two tickets that are skipped", Calls: "A1:23 B1:13 C1:12", Names: 3, Skips: true, budget: budget{Faults: 2}, Wide: true, Depth: 9},
}

func (s *scope) permits() int64 { return max(s.Permits, 1) }

func (s *scope) weightOf(client string) int64 {
	if client == s.Heavy {
		return s.Permits
	}
	return 1
}

func (s *scope) kindOf(client string) byte {
	switch {
	case s.Keeps && client == s.Mates:
		return wire.Kept
	case s.Permits == 0:
		return wire.Exclusive
	case !s.Readers:
		return wire.Permit
	case client == s.Heavy:
		return wire.Write
	}
	return wire.Read
}

func (s *scope) slots(client string) int {
	if client == s.Double || client == s.Mates {
		return 2
	}
	return 1
}

// alike reports whether it makes no difference which of two clients comes first.
func (s *scope) alike(a, b string) bool {
	special := s.Leaves + s.Least + s.Most + s.Enters + s.Heavy + s.Double + s.Replica + s.Asks + s.Gives + s.Mates
	return strings.Count(s.Calls, a) == strings.Count(s.Calls, b) && !strings.Contains(special, a) && !strings.Contains(special, b)
}

func (s *scope) keep() time.Duration {
	if s.Keeps {
		return keepTime
	}
	return 0
}

// linger is how long a client keeps a name after its last use.
func (s *scope) linger(client string) time.Duration {
	if client == s.Leaves {
		return time.Second
	}
	return 1000 * time.Hour
}

const startMicros = 1_700_000_000_000_000

// world is the one in which a scope begins.
func (s *scope) world() *world {
	r := &shared{scope: s, now: time.UnixMicro(startMicros), budget: s.budget, mute: true}
	for range max(s.Names, 1) {
		s.addName(r)
	}
	for one := range strings.FieldsSeq(s.Calls) {
		name, wants, _ := strings.Cut(one, ":")
		if len(wants) > 1 {
			r.addMulti(name, wants)
			continue
		}
		w := r.names[max(0, strings.Index(names, wants))]
		w.calls = append(w.calls, &call{name: name, client: w.client(name[:1])})
	}
	return r.names[0]
}

// addName adds a name that nobody has used.
func (s *scope) addName(r *shared) {
	w := &world{shared: r, number: len(r.names)}
	r.names = append(r.names, w)
	if s.Permits == 0 {
		w.mutex = model.New()
		if s.Ahead {
			w.mutex.Lock.Token = startMicros + 1_000_000_000
		}
	} else {
		w.permits = permits.New()
	}
	if s.Event != nil {
		s.Event(w)
	}
	w.judge.seen, w.judge.alone = startMicros-1, startMicros-1
	if s.Replica != "" {
		w.judge.Hurt = []string{s.Replica}
	}
}

// client returns the client with a name, which is added if there is none.
func (w *world) client(name string) *client {
	if c := w.clientNamed(name); c != nil {
		return c
	}
	s := w.scope
	c := &client{name: name, world: w}
	w.clients = append(w.clients, c)
	if s.Event != nil {
		w.awaited().joins(c)
	} else {
		c.newLock()
	}
	if c.name == s.Mates {
		c.cohort = &core.Cohort{}
		c.lock.Begin(c.cohort, s.Passes, s.keep())
	}
	for _, x := range w.names {
		if e := x.clientNamed(name); e != nil {
			c.process = append(c.process, e)
		}
	}
	for _, e := range c.process {
		e.process = c.process
	}
	return c
}
