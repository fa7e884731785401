package search

// A Scope is what a search covers: who takes part, and how much may go wrong.
type Scope struct {
	Name    string
	Clients []Client
	Permits int
	Shared  bool // who asks for less than all permits is a reader: readers share a token
	Whole   bool // the usual search goes through all of it
	Replica int  // the number, from 1, of a client that subscribes at a replica: it hears, and is not counted

	Async   bool  // whatever is under way may take any time
	Late    uint8 // else: how many messages are held up; the others arrive before anything else happens
	Faults  uint8 // losses, cuts, deaths, stops, half-open connections
	Cancels uint8 // calls that give up
	Drops   uint8 // subscriptions that are ended because nothing waits
}

// A Client takes part with calls that each ask for so many permits. With several slots it makes several
// calls at a time, which with Passes are a cohort.
type Client struct{ Slots, Calls, Weight, Passes int }

// Times, in ticks.
const (
	leaseTime = 3 // of a hold
	grantTime = 2 // of a grant by message, until it is renewed, and of the mark that spares silent clients (R6)
	runTime   = 2 // after which a request is too late (R7)
	patience  = 2 // after which a client gives up a connection on which an answer is due
)

// start is the state in which nothing has happened.
func (x *Scope) start() State {
	var s State
	for c, y := range x.Clients {
		for k := range y.Slots {
			s.clients[c].tickets[k].calls = uint8(y.Calls)
		}
	}
	s.left = budget{x.Late, x.Faults, x.Cancels, x.Drops}
	if x.Replica > 0 {
		s.server.hurt = bit(x.Replica - 1) // It is never in the right to be heard.
	}
	return s
}

// A world is a state on its way through moves.
type world struct {
	scope *Scope
	rules Rules
	s     State
	kind  Kind
	why   string
	trace *[]string // nil: nobody reads it

	resting bool // only what concerns the end of it counts
}
