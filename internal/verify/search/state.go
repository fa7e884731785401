package search

import "fmt"

// What a state has room for. A run that needs more is not followed further, and counted.
const (
	maxClients = 3
	maxSlots   = 2
	maxNumber  = 7
	maxQueue   = 8
	maxHolds   = 4
	maxNet     = 12
	maxAge     = 15 // ages do not grow further
)

// A ticket's id says its client, which of the client's calls it belongs to (the slot), and its number, which
// is new for each call of the slot and after each lapse. 0 is none.
type id uint8

func idOf(c, k int, number uint8) id { return id(0x80 | c<<4 | k<<3 | int(number)) }
func (x id) client() int             { return int(x>>4) & 3 }
func (x id) slot() int               { return int(x>>3) & 1 }
func (x id) number() uint8           { return uint8(x) & 7 }

// String is A1 for the first ticket of client A, a1 for that of its second slot.
func (x id) String() string {
	letter := 'A'
	if x.slot() == 1 {
		letter = 'a'
	}
	return fmt.Sprintf("%c%d", letter+rune(x.client()), x.number()+1)
}

func letter(c int) string { return string(rune('A' + c)) }

// A State is all that decides what can happen next. Times are spans in ticks, so that states at different
// times are the same state if they go on alike. It has bytes only and no gaps, so that it can be hashed as
// memory.
type State struct {
	server  server
	clients [maxClients]client
	net     [maxNet]message // by client and lane, in each lane in the order of sending
	sent    uint8           // how many of net
	left    budget
	over    bool // it needed more room than there is
}

// A budget is what may still be done to the system.
type budget struct {
	late, faults, cancels, drops uint8
}

// A hold as the server has it.
type hold struct {
	ticket id
	token  uint8
	until  uint8 // 0: over
	phase  phase
}

type phase uint8

const (
	byMessage phase = iota // granted by message, and not renewed yet
	byReply                // granted in a reply to another request of its client, and not renewed yet
	full                   // for a full lease
)

// An entry of the queue.
type entry struct {
	ticket  id
	arrival uint8
}

// server is what Redis keeps of one lock, and who subscribes.
type server struct {
	holds    [maxHolds]hold // without gaps
	queue    [maxQueue]entry
	queued   uint8
	token    uint8             // the last
	group    uint8             // that of the readers who came last
	high     uint8             // the last arrival
	marked   bool              // a mark was set (R6)
	mark     uint8             // and is in force so long
	suspects uint8             // clients, as bits, like the following
	subs     uint8             // subscribed with their present connections
	zombies  uint8             // still counted for connections that nobody reads any more
	lapses   [maxClients]uint8 // how often each was marked: it stands for the time of the mark

	// Only for the judge.
	eaten    uint8 // let a grant by message lapse, and have sent nothing since
	writer   uint8 // the highest token that was believed to be exclusive
	believed uint8 // and any other
	hurt     uint8 // something happened to their subscriptions
}

type life uint8

const (
	alive life = iota
	stopped
	dead
)

type subscription uint8

const (
	subNone subscription = iota
	subSent
	subConfirmed
	subLeaving
)

// client is what a client knows of one lock.
type client struct {
	life     life
	sub      subscription
	want     bool
	deaf     bool
	proven   bool
	proof    uint8 // what lapses was when the echo was sent
	half     bool  // nothing comes through on the present connection, and it does not know
	echo     uint8
	checking bool
	again    bool
	looked   bool  // in this tick, of its own
	passed   uint8 // how often a cohort's hold was passed on
	missing  id
	tickets  [maxSlots]ticket
}

type ticketState uint8

const (
	none ticketState = iota
	asking
	subscribing
	waiting
	confirming
	held
	mating // a mate of a cohort, which waits for its leader
	ending
)

// ticket is a call, or the place for one.
type ticket struct {
	state    ticketState
	number   uint8
	calls    uint8 // that are still to come
	arrival  uint8
	token    uint8
	left     uint8 // of the grant, by the client's clock
	inflight uint8 // asks and checks that name it
	ghost    uint8 // until then one that is not answered can run
	endOut   bool  // an end is under way
	endAgain bool  // and another must follow, because something else was under way when it was sent
	renewing bool
	renewed  bool // in this tick
	told     bool
	unsure   bool  // something that named it was not answered
	past     id    // that it had before it lapsed, and under which something may run
	pastFor  uint8 // until then
	placed   bool  // for the judge: it was queued, and nothing excuses that it is not served in turn
}

func (t *ticket) waits() bool {
	return (t.state == waiting || t.state == subscribing) && t.arrival != 0
}

// believes reports whether its owner may work: it holds, and its deadline has not passed.
func (t *ticket) believes() bool { return t.state == held && t.left > 0 }

func bit(c int) uint8 { return 1 << c }

func (s *server) holder(x id) int {
	for i := range s.holds {
		if s.holds[i].ticket == x {
			return i
		}
	}
	return -1
}

func (s *server) free(i int) {
	copy(s.holds[i:], s.holds[i+1:])
	s.holds[maxHolds-1] = hold{}
}

func (s *server) rank(x id) int {
	for i := range s.queue[:s.queued] {
		if s.queue[i].ticket == x {
			return i
		}
	}
	return -1
}

func (s *server) dequeue(i int) {
	copy(s.queue[i:s.queued], s.queue[i+1:s.queued])
	s.queued--
	s.queue[s.queued] = entry{}
}

// ticket returns the ticket with that id, or nil if its client does not know it (any more).
func (s *State) ticket(x id) *ticket {
	t := &s.clients[x.client()].tickets[x.slot()]
	if t.state == none || t.number != x.number() {
		return nil
	}
	return t
}

// hears reports whether tickets of a client may queue (R2).
func (w *world) hears(c int) bool {
	x := &w.s.clients[c]
	return !x.deaf && (x.sub == subConfirmed || !w.rules.has(R2Confirmed) && x.sub == subLeaving)
}
