package model

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

// slot is what a client knows of one of its tickets.
type slot struct {
	ticket  lua.Ticket
	text    string
	arrival int64
	head    int64 // start of the first ask, µs
	token   int64
	ended   bool
	bound   *line.Bound // until it has a place

	// What the last of several renewals has told that wrote everything: until when the key lives, and its lease.
	kept, renewed int64
}

// player plays one history on a server and on the model.
type player struct {
	server  backend
	keys    lua.Keys
	model   *Mutex
	clients [clients][slots]slot
	number  uint64
	highest int64 // token that anybody has seen
	now     int64 // the newest time of the server
	sent    []Request
	moving  []lua.Transit // newest last
	muted   bool          // for the next request
	blinded bool
	before  state // the keys after the last step
	judge   judge
	log     []string
	seen    map[string]int // what the replies and messages were, to know that histories reach it
}

func newPlayer(s backend, k lua.Keys) *player {
	return &player{server: s, keys: k, model: New(), now: s.Now(), seen: map[string]int{}}
}

// play plays a history to its end or to the first difference.
func (p *player) play(h history) (err error) {
	defer stage.Leave(p.server, p.keys, clients, p.keys.History)
	p.server.Deny(false, false)
	if _, err := p.server.Woken(p.keys); err != nil {
		return err
	}
	for i := range clients {
		if h.Deaf>>i&1 == 0 {
			if err := p.hear(i, true); err != nil {
				return err
			}
		}
	}
	return stage.Through(h.Steps, p.step, &p.log)
}

func (p *player) hear(client int, on bool) error {
	name := stage.ClientName(client)
	p.model.Hears[name] = on
	return p.server.Wake(p.keys, name, on)
}

func (p *player) step(s step) error {
	stage.Tick(p.server, &p.now)
	switch s.Op {
	case line.OpHear, line.OpHush:
		return p.hear(s.Client, s.Op == line.OpHear)
	case line.OpPass:
		p.server.Pass(s.Micros)
		return p.expire()
	case line.OpClock:
		p.server.Clock(s.Micros)
		return p.expire()
	case line.OpDeny:
		p.muted, p.blinded = s.Choice < 6, s.Choice > 3
		return nil
	case line.OpDelete:
		return p.remove(s.Choice)
	case line.OpCrowd:
		return p.crowd(s)
	case line.OpRepeat:
		if len(p.sent) == 0 {
			return nil
		}
		r := p.sent[max(len(p.sent)-1-s.Choice, 0)]
		if end, ok := r.(End); ok {
			end.Light = false // The token that it reckons from may be another by now.
			r = end
		}
		return p.request(r, s)
	}
	r := p.build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	return p.request(r, s)
}

// expire lets the keys of the model go with the time, and looks whether those of the server do.
func (p *player) expire() error {
	stage.Tick(p.server, &p.now)
	held, until := p.before.owner() != "", p.before.number("until")
	p.elapse()
	if held && until > p.now && p.model.Lock.Owner == "" {
		return fmt.Errorf("the key of a lock expired while it was held until %d", until)
	}
	return p.compare()
}

// elapse removes what has expired from the model.
func (p *player) elapse() {
	p.model.Expire(p.now)
	if p.model.Lock == (Hash{}) {
		p.judge.lost = true
	}
}

func (p *player) remove(choice int) error {
	which := [8][3]bool{
		{true, true, true}, {true, true, true}, {true, false, false}, {true, false, false},
		{false, true, false}, {false, false, true}, {true, true, false}, {true, false, true},
	}[choice]
	p.model.Delete(which[0], which[1], which[2])
	p.judge.deleted(which[0])
	p.log = append(p.log, fmt.Sprint("delete ", which))
	if err := stage.Lose(p.server, p.keys, which[:]); err != nil {
		return err
	}
	return p.compare()
}

// crowd puts silent tickets into the queue, as of clients that died while they waited.
func (p *player) crowd(s step) error {
	if len(p.model.Queue) > 1000 || p.model.Lock.Scan != nil {
		return nil // More would only be slower; and nobody comes in behind a cursor without moving it.
	}
	var tickets []lua.Arrival
	first := p.now - int64(s.Size)
	if len(p.model.Queue) > 0 && s.Ahead {
		first = p.model.Queue[0].Arrival - int64(s.Size)
	}
	for i := range s.Size {
		p.number++
		t := lua.Ticket{Client: "dead" + strconv.FormatUint(p.number, 10), Number: p.number, Kind: lua.Exclusive, Permits: 1}
		if s.Single {
			t.Client = "dead"
		}
		t.Lease, t.Grant = 10*time.Second, time.Duration(s.Grant)*time.Millisecond
		tickets = append(tickets, lua.Arrival{Ticket: t.String(), Arrival: first + int64(i)})
	}
	lives := max(p.model.Lock.Kept-p.now, 0) + 2*minute
	return p.put(tickets, lives)
}

// put queues tickets by hand. Where the hash is not lost it says that there are some.
func (p *player) put(tickets []lua.Arrival, lives int64) error {
	high := int64(0)
	for _, a := range tickets {
		p.model.Enqueue(a.Ticket, a.Arrival)
		high = max(high, p.model.Lock.High, a.Arrival)
	}
	p.model.QueueEnds = p.now + lives/millisecond*millisecond
	if p.model.Lock.Token == 0 {
		high = 0
	} else {
		p.model.Lock.High = high
	}
	if err := p.server.put(p.keys, tickets, high, lives); err != nil {
		return err
	}
	return p.compare()
}

// bounds are what the request of a step says of the time and of tokens.
func (p *player) bounds(s step) (notAfter, floor int64) {
	notAfter = p.now
	if !p.server.Frozen() {
		notAfter += 60 * minute
	} else if s.Choice >= 4 {
		notAfter += sentBy + stage.Millisecond // By a client that thinks the server's clock to be ahead of what it is.
	}
	if s.Late {
		notAfter = p.now - 1
	}
	return notAfter, [...]int64{0, p.highest, p.highest + 1000, 1<<53 - 2}[s.Floor]
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter, floor := p.bounds(s)
	t := &p.clients[s.Client][s.Slot]
	switch s.Op {
	case line.OpAsk:
		if p.renumber(t, s); t.arrival == 0 {
			t.head = s.Head
		}
		r := Ask{
			Ticket: t.text, Mode: s.Mode, NotAfter: notAfter, Arrival: t.arrival, Head: t.head, Floor: floor,
			Uncounted: s.Blank, Phase: s.Phase(),
		}
		if s.Mode != lua.Try {
			r.Bound = t.bound
		}
		r.Light = r.Arrival == 0 && r.Head == 0 && !s.Blank && !s.Final && s.Choice%2 == 0
		r.Busy = s.Choice%4 == 0
		return r
	case line.OpEnd:
		if t.text == "" {
			return nil
		}
		t.ended = true
		last := t.token + passesOf(t.text)
		token := [...]int64{0, 0, 0, 0, t.token, last, last + 1, t.token - 1}[s.Choice]
		note := ""
		if s.Choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		r := End{Ticket: t.text, Token: max(token, 0), Floor: floor, Uncounted: s.Blank, Note: note, Above: t.token}
		known := p.before.owner() != t.text || p.before.number("token") == t.token
		r.Rests = s.Rests
		r.Light = r.Token == 0 && !r.Rests && !s.Blank && known && floor < p.now+line.ForgedAhead && s.Size%2 == 0
		return r
	case line.OpRenew:
		if owner := p.find(p.before.owner()); owner != nil && s.Choice > 2 {
			t = owner
		}
		if t.text == "" {
			return nil
		}
		token := t.token
		if s.Choice == 7 {
			token--
		}
		if s.Wants {
			says := s.Phase()
			if !s.Final && s.Slot == 1 {
				says = lua.PhaseIdle
			}
			return Renew{
				Ticket: t.text, Token: token, Lease: min(s.Lease, t.ticket.Lease.Milliseconds()), Phase: says, NotAfter: notAfter,
				Wants: true, Marked: !s.Final && s.Choice%2 == 0,
			}
		}
		if s.Least > 0 {
			return Renew{
				Ticket: t.text, Token: token, Lease: min(s.Lease, t.ticket.Lease.Milliseconds()), Phase: s.Phase(), NotAfter: notAfter,
				Least: s.Least,
			}
		}
		if latest := t.kept - lua.Least.Microseconds() - t.renewed*millisecond; latest >= p.now && s.Choice > 2 && s.Choice < 7 {
			return Renew{
				Ticket: t.text, Token: token, Lease: t.renewed, Phase: lua.PhaseHeld,
				NotAfter: min(notAfter, latest), Still: true,
			}
		}
		return Renew{
			Ticket: t.text, Token: token, Lease: min(s.Lease, t.ticket.Lease.Milliseconds()), Phase: s.Phase(), NotAfter: notAfter,
			Revision: int64(s.Slots), Count: int64(s.Choice % 3),
		}
	case line.OpMove:
		if s.Choice%2 == 0 {
			return p.give(t, s, notAfter, floor)
		}
		return p.adopt(t, s, notAfter, floor)
	case line.OpCheck:
		r := Check{Client: stage.ClientName(s.Client), Mode: s.Mode, NotAfter: notAfter, Floor: floor, Uncounted: s.Blank, Bounds: map[string]line.Bound{}, Heads: map[string]int64{}}
		for i, t := range p.clients[s.Client] {
			if s.Slots>>i&1 == 1 && t.arrival != 0 && !t.ended {
				r.Tickets = append(r.Tickets, lua.Arrival{Ticket: t.text, Arrival: t.arrival})
				r.Heads[t.text] = t.head
				if t.bound != nil {
					r.Bounds[t.text] = *t.bound
				}
			}
		}
		slices.SortFunc(r.Tickets, line.Order)
		r.Together = s.Mode == lua.Hears && len(r.Bounds) == 0 && s.Choice%4 != 0
		return r
	}
	return Force{Token: [...]int64{0, p.highest, p.highest, p.highest - 1}[s.Choice%4], Floor: floor, Uncounted: s.Blank}
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *slot, s step) {
	if t.text != "" && !t.ended && !s.Fresh && s.Mode != lua.Try {
		return
	}
	p.number++
	*t = slot{bound: s.Bound, ticket: lua.Ticket{
		Client: stage.ClientName(s.Client), Number: p.number, Kind: lua.Exclusive, Permits: 1 + int64(s.Client%3)*int64(s.Client%3),
		Lease: time.Duration(s.Lease) * time.Millisecond, Grant: time.Duration(s.Grant) * time.Millisecond,
	}}
	t.text = t.ticket.String()
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	reply, err := p.send(r)
	if err != nil {
		return err
	}
	if !s.Lost {
		p.learn(r, reply)
	}
	if !s.Twice || !p.server.Frozen() {
		return nil
	}
	first := p.before
	again, err := p.send(r)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	if err := sameTwice(r, reply, again, first, p.before); err != nil {
		return fmt.Errorf("sent twice: %w", err)
	}
	return nil
}

// send runs a request on both and holds the results against each other and the invariants.
func (p *player) send(r Request) (lua.Tuple, error) {
	p.model.Mute, p.model.Blind = p.muted, p.blinded
	p.server.Deny(p.muted, p.blinded)
	reply, err := p.server.run(p.keys, p.model.History, r)
	if err != nil {
		return reply, fmt.Errorf("the script: %w", err)
	}
	if reply.Now != 0 {
		p.now = reply.Now
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %v\n      -> %s", p.now, r.Script().Name, r.Args(), stage.ReplyText(reply)))
	p.elapse()
	pre := p.model.Clone()
	want := r.Run(p.model, p.now)
	if err := p.noNews(r, pre.Clone(), p.model, want); err != nil {
		return reply, err
	}
	sent, err := p.server.Woken(p.keys)
	if err != nil {
		return reply, err
	}
	err = p.took(happened{
		request: r, reply: reply, sent: sent, now: p.now, before: p.before,
		hears: p.model.Hears, muted: p.muted, blinded: p.blinded, scan: pre.Lock.Scan,
	}, want)
	p.muted, p.blinded = false, false
	p.server.Deny(false, false)
	p.note(r, reply, sent)
	return reply, err
}

// noNews holds a look with others against the check that it stands for: that would have nothing to do, and say the same.
func (p *player) noNews(r Request, before, after *Mutex, reply lua.Tuple) error {
	c, ok := r.(Check)
	if !ok || !c.Together {
		return nil
	}
	if _, calm := c.together(before.Clone(), reply.Now); !calm {
		return nil
	}
	p.seen["looked together"]++
	c.Together = false
	check := c.Run(before, reply.Now)
	check.Waiting = 0
	before.Lock.Kept = after.Lock.Kept // That of the first ticket may be later.
	if err := line.SameReply(check, reply); err != nil || len(before.Sent) > 0 {
		return fmt.Errorf("a check of its own sends %v, and\n%w", before.Sent, err)
	}
	if is, was := expected(after, reply.Now), expected(before, reply.Now); is.text() != was.text() {
		return fmt.Errorf("a check of its own leaves\n%s\n  and not\n%s", was.text(), is.text())
	}
	return nil
}

// took holds what the lock shows of a request against the model and the invariants.
func (p *player) took(h happened, want lua.Tuple) error {
	wanted := p.model.Sent
	p.model.Sent = nil
	if err := line.SameReply(want, h.reply); err != nil {
		return err
	}
	p.highest = max(p.highest, int64(h.reply.Token))
	if !slices.Equal(h.sent, wanted) {
		return fmt.Errorf("published %q, should be %q", h.sent, wanted)
	}
	if err := p.compare(); err != nil {
		return err
	}
	h.after = p.before
	return p.judge.step(h)
}

// note counts what came of a request.
func (p *player) note(r Request, reply lua.Tuple, messages []stage.Message) {
	p.seen[fmt.Sprintf("%s %d", r.Script().Name, reply.Status)]++
	if r, ok := r.(Renew); ok && r.Still && reply.Status == lua.Granted {
		p.seen["renewed still"]++
	}
	if r, ok := r.(Move); ok && lua.InTransit(r.From) && reply.Status == lua.Granted {
		p.seen["adopted"]++
	}
	if r, ok := r.(Renew); ok && r.Wants && reply.Status == lua.Granted {
		p.seen["phase "+p.before.lock["phase"]]++
	}
	if r, ok := r.(Renew); ok && r.Least > 0 && reply.Status == lua.Granted {
		p.seen["stays"]++
	}
	if lua.Rests(p.before.owner()) {
		p.seen["rests "+r.Script().Name]++
	}
	for flag := int64(1); flag <= lua.Wanted; flag *= 2 {
		if reply.Has(flag) {
			p.seen[fmt.Sprint("flag ", flag)]++
		}
	}
	for _, state := range reply.States {
		state, _, _ = strings.Cut(state, " ")
		if _, force := r.(Force); !force {
			p.seen[state]++
		}
	}
	for _, m := range messages {
		p.seen["message "+m.Text[:1]]++
		if strings.Contains(m.Text, " ~") {
			p.seen["grant with a note"]++
		}
	}
	if len(reply.Grants) > 0 {
		p.seen["grant in a reply"]++
	}
	if p.before.number("mark") != 0 {
		p.seen["mark"]++
	}
	if p.before.lock["scan"] != "" {
		p.seen["scan"]++
	}
	if len(p.before.past) > 0 {
		p.seen["history "+strings.Fields(p.before.past[0])[3]]++
	}
}

// compare holds the keys of the server against those of the model.
func (p *player) compare() error {
	got, err := p.server.state(p.keys)
	if err != nil {
		return err
	}
	p.before = got
	want := expected(p.model, p.now)
	if !p.server.Frozen() { // What is answered alone by a status does not tell when it was.
		want.untimed()
		got.untimed()
	}
	if w, g := want.text(), got.text(); w != g {
		return fmt.Errorf("  the keys hold\n%s\n  should be\n%s", g, w)
	}
	for i, key := range append(p.keys.All(), p.keys.History) {
		g, w := got.left[i], want.left[i]
		slack := p.server.Slack()
		if key == p.keys.History {
			slack = max(slack, millisecond) // It is asked for in ms.
		}
		if off := max(g-w, w-g); off > slack || (g <= 0 || w <= 0) && g != w {
			return fmt.Errorf("%s expires in %d µs, should be %d", key, g, w)
		}
	}
	return nil
}
