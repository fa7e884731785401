package line

import (
	"maps"
	"math"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Call is one script that runs.
type Call struct {
	line  *Line
	notes *Notes
	view  *view // of the tickets, if this script has looked at them to see whether there is room

	Now     int64
	Caller  string
	Floor   int64
	Counted bool
	Note    string

	Left    int64 // 1 if the queue has outlived what is said of it
	Lives   int64 // until when renewals of what was freed may have prolonged keys
	Created bool  // a key is new, and has no expiry yet
	Flags   int64
	Skipped int
	Expired int
	Grants  []wire.Grant
}

// Begin is a call that begins.
func Begin(l *Line, n *Notes, now int64, caller string, floor int64, counted bool) Call {
	if floor > now+ForgedAhead {
		floor = 0 // It would use up the numbers that tokens can have.
	}
	return Call{line: l, notes: n, Now: now, Caller: caller, Floor: floor, Counted: counted}
}

// Ahead is until when the last token is ahead of the clock, but no longer than it could be without being forged.
func (c *Call) Ahead() int64 { return min(c.notes.Token, c.Now+ForgedAhead) }

// Next gives the next token, above every earlier one (I2).
func (c *Call) Next() int64 {
	c.notes.Token = max(c.notes.Token, c.Floor, c.Now-1) + 1
	return c.notes.Token
}

// In is a time that many µs from now, rounded as PEXPIRE wants it.
func (c *Call) In(micros int64) int64 {
	return c.Now + int64(math.RoundToEven(float64(micros)/stage.Millisecond))*stage.Millisecond
}

// Watched is until when keys are needed by the waiters, for two looks.
func (c *Call) Watched(waiting int) int64 {
	return c.Now + 2*max(LongLook, int64(waiting)*LookEach)
}

// Suspect reports whether a client let a lease run out. A mark that lies ahead is of one that has until then to
// show that it lives.
func (c *Call) Suspect(client string) bool {
	at, found := c.line.Suspects[client]
	return found && c.notes.Marked && at <= c.Now
}

// Doubt makes the client of a ticket a suspect, and tells it.
func (c *Call) Doubt(ticket string) {
	client := wire.TicketClient(ticket)
	c.Shun(client)
	if client == c.Caller {
		c.Flags |= wire.Suspected
	} else {
		c.line.Publish(client, "S "+ticket)
	}
}

// Shun lets the tickets of a client be passed over.
func (c *Call) Shun(client string) {
	maps.DeleteFunc(c.line.Suspects, func(_ string, at int64) bool { return at <= c.Now-remembers })
	c.line.Suspects[client] = c.Now
	c.notes.Marked, c.Created = true, true
}

// Calm forgets all suspects once they hold up nobody any more: after ten minutes, or after one where no ticket waits that
// came before they were suspected. It reports whether there may have been some.
func (c *Call) Calm() (marked bool) {
	head := c.Now
	if q := c.line.Queue; len(q) > 0 {
		head = q[0].Arrival
	}
	since := max(c.Now-remembers, min(c.Now-suspected, head))
	for _, at := range c.line.Suspects {
		if at > since {
			return c.notes.Marked
		}
	}
	if marked = c.notes.Marked; marked {
		c.notes.Marked = false
		clear(c.line.Suspects)
		c.line.Tidy()
	}
	return marked
}

// Shown takes it from a check that a client lives: by its mode, or as an answer to a call. What it shows is older than
// what the script may find out.
func (c *Call) Shown(client, mode string) {
	if mode == wire.Proven || c.notes.Marked && c.line.Suspects[client] > c.Now {
		delete(c.line.Suspects, client)
		c.notes.Marked = c.notes.Marked && len(c.line.Suspects) > 0
		c.line.Tidy()
	}
}

// Roll calls the clients at the head of the queue, who are suspects from some time on unless they look.
func (c *Call) Roll() {
	called, listed := map[string]bool{}, callsMost // Clients that look in place of hearing do so the more rarely the more are ahead.
	if c.Counted {
		listed = callsListed
	}
	for _, a := range c.line.Queue[:min(len(c.line.Queue), listed)] {
		client := wire.TicketClient(a.Ticket)
		if client == c.Caller || called[client] || len(called) == callsMost {
			continue
		}
		called[client] = true
		if _, marked := c.line.Suspects[client]; marked {
			continue
		}
		if c.line.Publish(client, "L "+a.Ticket) {
			c.line.Suspects[client] = c.Now + AnswerTime
		}
	}
}

// Alive reports whether a client can be granted.
func (c *Call) Alive(client string) bool {
	switch {
	case client == c.Caller:
		return true // R5
	case c.Suspect(client):
		return false
	}
	return !c.Counted || c.line.Blind || c.line.Hears[client] // R4
}

// A Pass is a look at the heads of the queue.
type Pass struct {
	Looked int    // tickets it went past
	silent int    // clients among the dead that nobody hears for
	one    string // the last of these clients
	last   int64  // arrival of the last ticket it went past

	counted map[string]bool
}

// Resume begins where the last pass was cut.
func (c *Call) Resume() Pass {
	p := Pass{last: never}
	if s := c.notes.Scan; s != nil {
		p.silent, p.last, p.one = s.Silent, s.Arrival, s.One
		for p.Looked < len(c.line.Queue) && c.line.Queue[p.Looked].Arrival <= s.Arrival {
			p.Looked++
		}
	}
	p.counted = map[string]bool{p.one: true}
	return p
}

// Heads are the next tickets of the queue, at most as many as most says. It notes that the server does not tell who
// subscribes, if that is asked for some of them.
func (c *Call) Heads(p *Pass, most int) []lua.Arrival {
	heads := c.line.Queue[p.Looked:min(p.Looked+most, len(c.line.Queue))]
	for _, a := range heads {
		client := wire.TicketClient(a.Ticket)
		if c.line.Blind && c.Counted && client != c.Caller && !c.Suspect(client) {
			c.Flags |= wire.Uncounted
		}
	}
	return heads
}

// Past notes that a pass goes past a ticket.
func (p *Pass) Past(a lua.Arrival) { p.Looked, p.last = p.Looked+1, a.Arrival }

// Dead goes past a ticket whose client is not alive.
func (c *Call) Dead(p *Pass, a lua.Arrival) {
	client := wire.TicketClient(a.Ticket)
	if !c.Suspect(client) && !p.counted[client] {
		p.counted[client] = true
		p.silent, p.one = p.silent+1, client
	}
	p.Past(a)
}

// Deaf reports whether the pass found more than one client silent: then the server may have lost all subscriptions.
func (p *Pass) Deaf() bool { return p.silent >= 2 }

// Forget clears what passes have stored.
func (c *Call) Forget() { c.notes.Scan, c.notes.Mark = nil, 0 }

// Remember keeps how far a pass came, and asks for another.
func (c *Call) Remember(p *Pass) {
	c.notes.Scan = &Scan{p.silent, p.last, p.one}
	c.Flags |= wire.More
}

// Spares sets the mark that keeps everybody in the queue for the grant lease of the first ticket, unless
// there is one already, and reports whether it stands (R6). One that ends later than it can is from before
// a step of the clock.
func (c *Call) Spares() bool {
	if len(c.line.Queue) == 0 {
		return false
	}
	t, _ := Read(c.line.Queue[0].Ticket)
	lasts := min(t.Grant, mostSpared)
	if c.Now-c.notes.Mark > markLasts || c.notes.Mark-c.Now > lasts {
		c.notes.Mark = c.Now + lasts
	}
	return c.Now < c.notes.Mark
}

// Drop removes the tickets that a pass went past, as far as one script may, and reports whether that was all.
func (c *Call) Drop(p *Pass) bool {
	now := min(p.Looked, Drops)
	c.line.Queue = c.line.Queue[now:]
	c.Skipped += now
	return now == p.Looked
}

// Enter queues a ticket, and reports false if it is queued already: then an earlier arrival counts, if it was
// given before. Who comes from now on comes after it, unless its arrival is forged.
func (c *Call) Enter(ticket string, arrival int64, given bool, head int64) (entered bool) {
	c.Created = c.Created || len(c.line.Queue) == 0
	c.notes.High = max(1, c.notes.High)
	if came := arrival + head; given && came <= c.Now+ForgedAhead {
		c.notes.High = max(c.notes.High, came)
	}
	if given || c.line.Rank(ticket) < 0 {
		entered = c.line.Enqueue(ticket, arrival)
	}
	c.recall(arrival)
	return entered
}

// Recall lets the next pass begin at the head if the one that was cut went past a ticket.
func (c *Call) Recall(ticket string) {
	if i := c.line.Rank(ticket); i >= 0 {
		c.recall(c.line.Queue[i].Arrival)
	}
}

func (c *Call) recall(arrival int64) {
	if s := c.notes.Scan; s != nil && arrival <= s.Arrival {
		c.notes.Scan = nil
	}
}

// Wait keeps a place for the ticket of an ask in mode wait, if its client hears and is not suspected, and tells its
// arrival in any case: the one that it was given before, or a new one. entered says that it was not queued before.
func (c *Call) Wait(ticket, mode string, given, head int64) (queued, entered bool, arrival int64) {
	arrival = given
	if arrival == 0 {
		c.notes.High = max(c.Now, max(c.notes.High, c.Left)+1)
		arrival = c.notes.High - head
	}
	if c.Suspect(c.Caller) {
		c.Flags |= wire.Suspected
	} else if mode == wire.Wait {
		entered = c.Enter(ticket, arrival, given != 0, head)
		queued = true
	}
	if i := c.line.Rank(ticket); i >= 0 {
		arrival = c.line.Queue[i].Arrival // What was queued already keeps its arrival.
	}
	return queued, entered, arrival
}

// Place is how many are ahead of a ticket, all holders as one; -1 if it is not queued.
func (c *Call) Place(ticket string, held bool) int {
	rank := c.line.Rank(ticket)
	if rank >= 0 && held {
		rank++
	}
	return rank
}

// Places adds to the states of tickets that wait how many are ahead of them.
func (c *Call) Places(states []string, tickets []lua.Arrival, held bool) {
	for i, a := range tickets {
		if states[i] == wire.StateQueued || states[i] == wire.StateAgain {
			states[i] += " " + strconv.Itoa(c.Place(a.Ticket, held))
		}
	}
}

// Exact reports whether a check tells exactly how many wait.
func Exact(size int) bool { return size <= exactSize }

// Clients is the number of clients that wait, as far as a check tells it.
func (c *Call) Clients() int {
	if !Exact(len(c.line.Queue)) {
		return Estimated
	}
	return len(c.line.Queue)
}

// Reply is the long form of an answer.
func (c *Call) Reply(status wire.Status, until int64, place, waiting int, arrival int64, states ...string) wire.Tuple {
	return wire.Tuple{
		Status: status, Now: c.Now, Token: uint64(c.notes.Token), Until: until,
		Place: int64(place), Waiting: waiting, Arrival: arrival,
		Flags: c.Flags, Skipped: c.Skipped, Expired: c.Expired, Grants: c.Grants, States: states,
	}
}
