package permits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// kind is what a ticket of a step asks for.
func (p *player) kind(s step) (byte, int64) {
	switch {
	case p.locks && s.permits%3 == 0:
		return lua.Write, p.limit
	case p.locks:
		return lua.Read, 1
	case s.mode == lua.Drain:
		return lua.Permit, 0
	}
	n := [...]int64{1, 1, 1, 2, 1, 3, p.limit, p.limit - 1}[s.permits%8]
	if s.permits == 8 {
		n = p.limit + 1
	}
	return lua.Permit, min(max(n, 1), 1<<53-1)
}

// crowd puts silent tickets into the queue, as of clients that died while they waited.
func (p *player) crowd(s step) error {
	if len(p.model.Queue) > 1000 || p.model.Hash.Scan != nil {
		return nil // More would only be slower; and nobody comes in behind a cursor without moving it.
	}
	kind, n := p.kind(s)
	first := p.now - int64(s.size)
	if len(p.model.Queue) > 0 && s.ahead {
		first = p.model.Queue[0].Arrival - int64(s.size)
	}
	var tickets []lua.Arrival
	for i := range s.size {
		p.number++
		t := lua.Ticket{Client: "dead" + strconv.FormatUint(p.number, 10), Number: p.number, Kind: kind, Permits: n}
		if s.single {
			t.Client = "dead"
		}
		t.Lease, t.Grant = 10*time.Second, time.Duration(s.grant)*time.Millisecond
		tickets = append(tickets, lua.Arrival{Ticket: t.String(), Arrival: first + int64(i)})
	}
	return p.put(tickets)
}

// put queues tickets by hand.
func (p *player) put(tickets []lua.Arrival) error {
	lives := (max(p.model.Hash.Kept-p.now, 0) + 2*stage.Minute) / stage.Millisecond
	args := []string{"ZADD", p.keys.Queue}
	for _, a := range tickets {
		p.model.Enqueue(a.Ticket, a.Arrival)
		args = append(args, stage.Decimal(a.Arrival), a.Ticket)
	}
	p.model.QueueEnds = p.now + lives*stage.Millisecond
	if err := p.host.Do(args...).Error(); err != nil {
		return err
	}
	if err := p.host.Do("PEXPIRE", p.keys.Queue, stage.Decimal(lives)).Error(); err != nil {
		return err
	}
	return p.compare()
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter := p.now
	if !p.host.Frozen() {
		notAfter += 60 * stage.Minute
	}
	if s.late {
		notAfter = p.now - 1
	}
	floor := [...]int64{0, p.highest, p.highest + 1000, 1<<53 - 2}[s.floor]
	limit, born := p.limit, p.born
	if born != 0 {
		born += int64(s.client) * stage.Second
	}
	if s.other {
		limit = max(1, limit-1)
	}
	t := &p.clients[s.client][s.slot]
	if t.text == "" && (s.op == opEnd || s.op == opRenew || s.op == opForce || s.op == opDowngrade) {
		return nil
	}
	switch s.op {
	case opAsk:
		if p.locks && s.mode == lua.Drain {
			s.mode = lua.Try
		}
		if p.renumber(t, s); t.arrival == 0 {
			t.head = s.head
		}
		r := Ask{
			Ticket: t.text, Mode: s.mode, NotAfter: notAfter, Arrival: t.arrival, Head: t.head, Floor: floor,
			Uncounted: s.blank, Phase: phase(s.final), Who: "who of: " + stage.ClientName(s.client), Limit: limit, Born: born,
		}
		if s.mode == lua.Wait || s.mode == lua.Look {
			r.Bound = t.bound
		}
		return r
	case opEnd:
		t.ended = true
		token := [...]int64{0, 0, 0, 0, 0, t.token, t.token, t.token - 1}[s.choice]
		note := ""
		if s.choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		return End{Ticket: t.text, Token: max(token, 0), Floor: floor, Uncounted: s.blank, Note: note, Rests: s.rests}
	case opRenew:
		token := t.token
		if s.choice == 7 {
			token--
		}
		return Renew{
			Ticket: t.text, Token: token, Lease: s.lease, Phase: phase(s.final), Who: "again", NotAfter: notAfter,
			Wants: s.wants, Least: s.least, Stays: s.least > 0,
		}
	case opForce:
		return Force{Ticket: t.text, Floor: floor, Uncounted: s.blank}
	case opResize:
		if s.late {
			return nil // It is lib/once that refuses it.
		}
		if p.locks {
			return nil
		}
		return Resize{Permits: limits[s.permits], Floor: floor, Uncounted: s.blank}
	case opDowngrade:
		if !p.locks {
			return nil
		}
		token := t.token
		if s.choice == 7 {
			token--
		}
		return Downgrade{Ticket: t.text, Token: token, Floor: floor, Uncounted: s.blank, NotAfter: notAfter}
	}
	r := Check{
		Client: stage.ClientName(s.client), Mode: s.mode, NotAfter: notAfter, Floor: floor, Uncounted: s.blank, Limit: limit, Born: born,
		Bounds: map[string]line.Bound{}, Heads: map[string]int64{},
	}
	for i, t := range p.clients[s.client] {
		if s.slots>>i&1 == 1 && t.arrival != 0 && !t.ended {
			r.Tickets = append(r.Tickets, lua.Arrival{Ticket: t.text, Arrival: t.arrival})
			r.Heads[t.text] = t.head
			if t.bound != nil {
				r.Bounds[t.text] = *t.bound
			}
		}
	}
	slices.SortFunc(r.Tickets, line.Order)
	r.Together = s.mode == lua.Hears && len(r.Bounds) == 0 && s.choice%4 != 0
	return r
}

func phase(final bool) string {
	if final {
		return lua.PhaseFinal
	}
	return lua.PhaseHeld
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *slot, s step) {
	tries := s.mode == lua.Try || s.mode == lua.Drain
	if last, _ := line.Read(t.text); t.text != "" && !t.ended && !s.fresh && !tries && last.Permits > 0 {
		return
	}
	p.number++
	kind, n := p.kind(s)
	*t = slot{bound: s.bound, text: lua.Ticket{
		Client: stage.ClientName(s.client), Number: p.number, Kind: kind, Permits: n,
		Lease: time.Duration(s.lease) * time.Millisecond, Grant: time.Duration(s.grant) * time.Millisecond,
	}.String()}
}

// A history is a list of steps. Each can be taken out, and what is left is a history still: that is how
// failing ones are made short.
type history struct {
	deaf  int   // clients that do not subscribe at the start, a bit each
	locks bool  // a read-write lock, not a semaphore
	fixed bool  // a semaphore whose limit cannot change
	limit int64 // of the semaphore at the start
	steps []step
}

// What a step may do.
const (
	opAsk       = "ask"
	opEnd       = "end"
	opRenew     = "renew"
	opCheck     = "check"
	opForce     = "force"
	opResize    = "resize"
	opDowngrade = "downgrade"
	opInspect   = "inspect"
	opRepeat    = "repeat" // an earlier request, word for word
	opHear      = "hear"
	opHush      = "hush" // the client's subscription is gone
	opPass      = "pass" // time passes
	opClock     = "clock"
	opDelete    = "delete"
	opDeny      = "deny" // the server refuses PUBLISH or NUMSUB to the next request
	opCrowd     = "crowd"
)

const (
	clients = 4
	slots   = 4 // tickets that a client has at a time
)

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op      string
	client  int
	slot    int
	slots   int         // of a check, a bit each
	mode    string      // of an ask or check
	permits int         // which number of permits, or which limit
	lease   int64       // ms
	grant   int64       // ms
	head    int64       // µs
	bound   *line.Bound // of a new ticket
	micros  int64       // of pass and clock
	choice  int         // which token, keys, right, or how far back a repeat goes
	floor   int         // 0: none, 1: the highest token seen, 2: one above it, 3: one that is forged
	size    int         // of a crowd
	fresh   bool        // a new ticket, though the last one has not ended
	final   bool
	least   int64 // ms, of a renewal, after which permits rest
	rests   bool  // of an end
	wants   bool  // a renewal of a holder that wants to be told when somebody waits
	late    bool  // the not-after has passed
	blank   bool  // subscribers are not counted
	other   bool  // another limit is stated
	lost    bool  // the client does not get the reply
	twice   bool  // sent twice in a row
	ahead   bool  // a crowd that came before everybody else
	single  bool  // a crowd of one client
}

var (
	limits     = []int64{3, 1, 2, 5, 3, 16, 4, 1<<53 - 1}
	leases     = []int64{1000, 10000, 50, 1, 600000, 2000, 300, 5000}
	leasts     = []int64{30000, 2000, 200000, 5000, 600000, 1000, 50, 1}
	bounds     = []*line.Bound{nil, {Limit: 1}, nil, {Limit: 2}, nil, {Limit: 3}}
	grants     = []int64{500, 2000, 1, 300000}
	askModes   = []string{lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Look, lua.Try, lua.Drain}
	checkModes = []string{lua.Hears, lua.Hears, lua.Hears, lua.Hears, lua.Proven, lua.Proven, lua.Deaf, lua.Deaf}
	passes     = []int64{
		1, 999, stage.Millisecond, 10 * stage.Millisecond, 300 * stage.Millisecond, 500 * stage.Millisecond,
		stage.Second, stage.Second, 2 * stage.Second, 2 * stage.Second, 11 * stage.Second, 44 * stage.Second,
		stage.Minute, 2*stage.Minute + 1, 11 * stage.Minute, 2 * day,
	}
	clocks = []int64{
		-1, -999, -10 * stage.Millisecond, -stage.Second, -5 * stage.Second, -stage.Minute, -60 * stage.Minute,
		-60 * stage.Minute, -11 * stage.Minute, -2 * stage.Second, stage.Second, stage.Minute, 60 * stage.Minute,
		10 * stage.Millisecond, -500 * stage.Millisecond, 11 * stage.Minute,
	}
	crowds = []int{2, 3, 5, 20, 3, 2, 3, 600}
	ops    = stage.Weights{
		{opAsk, 28}, {opEnd, 11}, {opRenew, 6}, {opCheck, 10}, {opForce, 4}, {opResize, 5}, {opDowngrade, 3},
		{opInspect, 1}, {opRepeat, 3}, {opHear, 3}, {opHush, 3}, {opPass, 6}, {opClock, 1}, {opDelete, 1},
		{opDeny, 2}, {opCrowd, 1},
	}
)

// decode makes a history of any bytes: two for the start, then four for each step.
func decode(data []byte) history {
	var h history
	if len(data) < 2 {
		return h
	}
	if data[0] > 127 {
		h.deaf = int(data[0]) & (1<<clients - 1)
	}
	h.locks, h.fixed, h.limit = data[1]&1 == 1, data[1]>>4%4 == 0, limits[data[1]>>1%8]
	h.steps = stage.Steps(data[2:], decodeStep)
	return h
}

func decodeStep(a, b, c, d byte) step {
	s := step{client: int(b) % clients, slot: int(b/clients) % slots, twice: a >= 192}
	s.op = ops.Pick(a)
	s.fresh = b >= 224
	s.floor = [...]int{0, 1, 1, 1, 1, 1, 1, 2}[c>>5]
	if c == 255 {
		s.floor = 3
	}
	s.choice = int(c) % 8
	variant := d >> 5
	s.lost, s.blank, s.late = variant == 4, variant == 5, variant == 7
	switch s.op {
	case opAsk:
		s.mode, s.final = askModes[c%8], c>>3%4 == 0
		s.lease, s.grant, s.permits = leases[d%8], grants[d>>3%4], int(b>>4)
		s.other = variant == 3
		if variant == 6 {
			s.head = [...]int64{1, 2, -3}[b%3] * stage.Second
		}
		s.bound = bounds[int(b)/clients/slots%len(bounds)]
	case opRenew:
		s.lease, s.final, s.wants = leases[d%8], c>>3%4 == 0, d>>3%2 == 1
		if d>>4%2 == 1 && !s.wants {
			s.least = leasts[c>>3%8]
		}
	case opEnd:
		s.rests = d>>1%2 == 1
	case opCheck:
		s.mode, s.slots, s.other = checkModes[c%8], int(d)%(1<<slots), variant == 3
	case opResize:
		s.permits = int(d) % 8
	case opPass:
		s.micros = passes[c%16]
	case opClock:
		s.micros = clocks[c%16]
	case opCrowd:
		s.size, s.ahead, s.single, s.grant = crowds[c%8], d%2 == 0, d>>1%4 == 0, 500
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 4, 2) }

func (s step) String() string {
	var b stage.Words
	b.WriteString(s.op)
	ticket := s.op == opAsk || s.op == opEnd || s.op == opRenew || s.op == opForce || s.op == opDowngrade
	request := ticket || s.op == opCheck || s.op == opResize
	b.Say(ticket, "%s/%d", stage.ClientName(s.client), s.slot)
	b.Say(s.op == opCheck, "%s %s slots %04b", stage.ClientName(s.client), s.mode, s.slots)
	b.Say(s.op == opHear || s.op == opHush, "%s", stage.ClientName(s.client))
	b.Say(s.op == opAsk, "%s permits %d lease %d ms grant %d ms", s.mode, s.permits, s.lease, s.grant)
	b.Say(s.op == opResize, "to %d", s.permits)
	b.Say(s.op == opAsk && s.fresh, "fresh")
	b.Say(s.other, "stating another limit")
	b.Say(s.op == opRenew, "lease %d ms", s.lease)
	b.Say((s.op == opAsk || s.op == opRenew) && s.final, "final")
	b.Say(s.wants, "wants")
	b.Say(s.least > 0, "rests %d ms", s.least)
	b.Say(s.rests, "rests")
	b.Say(s.head != 0, "head start %d µs", s.head)
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(s.bound != nil, "bound %v", s.bound)
	b.Say(s.op == opCrowd, "of %d ahead %t single %t", s.size, s.ahead, s.single)
	b.Say(s.op != opAsk && s.op != opCheck && s.op != opHear && s.op != opHush, "choice %d", s.choice)
	b.Say(request && s.floor > 0, "floor %d", s.floor)
	b.Say(request && s.late, "late")
	b.Say(request && s.blank, "uncounted")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	return b.String()
}

// start tells what is not among the steps.
func (h history) start() string {
	var b strings.Builder
	if h.locks {
		b.WriteString("  a read-write lock\n")
	} else {
		fmt.Fprintf(&b, "  a semaphore of %d, fixed: %t\n", h.limit, h.fixed)
	}
	for i := range clients {
		if h.deaf>>i&1 == 1 {
			fmt.Fprintf(&b, "  %s does not subscribe\n", stage.ClientName(i))
		}
	}
	return b.String()
}
