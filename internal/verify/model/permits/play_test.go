package permits

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// slot is what a client knows of one of its tickets.
type slot struct {
	text    string
	arrival int64
	head    int64 // start of the first ask, µs
	token   int64
	ended   bool
	bound   *line.Bound // until it has a place
}

// player plays one history on a server and on the model.
type player struct {
	host    stage.Host
	keys    lua.Keys
	model   *Lock
	limit   int64 // that is stated
	born    int64 // when the first of the clients was made; 0: the limit cannot change
	locks   bool
	clients [clients][slots]slot
	number  uint64
	highest int64 // token that anybody has seen
	now     int64 // the newest time of the server
	sent    []Request
	muted   bool // for the next request
	blinded bool
	before  stage.State // the keys after the last step
	judge   judge
	log     []string
	seen    map[string]int // what the replies and messages were, to know that histories reach it
}

func newPlayer(s stage.Host, name string, locks bool, limit int64) *player {
	proto, born := lua.Semaphore, s.Now()-2*stage.Second
	if locks {
		proto, limit, born = lua.RWLock, lua.AllReaders, 0
	}
	k := proto.Keys("model", name)
	l := New()
	return &player{
		host: s, keys: k, model: l, limit: limit, born: born, locks: locks, now: s.Now(), before: l.State(0),
		seen: map[string]int{},
	}
}

// play plays a history to its end or to the first difference.
func (p *player) play(h history) (err error) {
	defer stage.Leave(p.host, p.keys, clients)
	p.host.Deny(false, false)
	if _, err := p.host.Woken(p.keys); err != nil {
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
	return p.host.Wake(p.keys, name, on)
}

func (p *player) step(s step) error {
	stage.Tick(p.host, &p.now)
	switch s.Op {
	case line.OpHear, line.OpHush:
		return p.hear(s.Client, s.Op == line.OpHear)
	case line.OpPass:
		p.host.Pass(s.Micros)
		return p.expire()
	case line.OpClock:
		p.host.Clock(s.Micros)
		return p.expire()
	case line.OpDeny:
		p.muted, p.blinded = s.Choice < 6, s.Choice > 3
		return nil
	case line.OpDelete:
		return p.remove(s.Choice)
	case line.OpCrowd:
		return p.crowd(s)
	case line.OpInspect:
		return p.inspect()
	case line.OpRepeat:
		if len(p.sent) == 0 {
			return nil
		}
		return p.request(p.sent[max(len(p.sent)-1-s.Choice, 0)], s)
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
	stage.Tick(p.host, &p.now)
	p.elapse()
	for ticket, h := range holdsOf(p.before) {
		if _, there := p.model.Hash.Holds[ticket]; h.until > p.now && h.until-p.now <= h.lease && !there {
			return fmt.Errorf("the key of a lock expired while %s held until %d", ticket, h.until)
		}
	}
	return p.compare()
}

// elapse removes what has expired from the model.
func (p *player) elapse() {
	p.model.Expire(p.now)
	if p.model.LockEnds == 0 {
		p.judge.lost = true
	}
}

func (p *player) remove(choice int) error {
	which := [8][4]bool{
		{true, true, true, true}, {true, true, true, true}, {true, false, false, false}, {true, false, false, true},
		{false, true, false, false}, {false, false, true, false}, {true, true, false, false}, {false, false, false, true},
	}[choice]
	p.model.Delete(which[0], which[1], which[2], which[3])
	p.judge.lost = p.judge.lost || which[0]
	p.judge.gone = p.judge.gone || which[0] || which[3]
	p.log = append(p.log, fmt.Sprint("delete ", which))
	if err := stage.Lose(p.host, p.keys, which[:]); err != nil {
		return err
	}
	return p.compare()
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
	if !s.Twice || !p.host.Frozen() {
		return nil
	}
	first := p.before
	again, err := p.send(r)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	if err := sameTwice(p.keys, r, reply, again, first, p.before); err != nil {
		return fmt.Errorf("sent twice: %w", err)
	}
	return nil
}

// run runs the script of a request.
func (p *player) run(r Request) (lua.Tuple, error) {
	keys := p.keys.All()
	if r, ok := r.(Renew); ok {
		keys = p.keys.Renewed()
		switch {
		case r.Stays:
			keys = p.keys.Staying()
		case r.Wants:
			keys = p.keys.Wanting()
		}
	}
	if c, ok := r.(Check); ok && c.Together {
		if reply, ok, err := stage.Together(p.host, p.keys, lua.Semaphore.Checks, c.NotAfter, c.Client, !c.Uncounted, c.Tickets); ok || err != nil {
			return reply, err
		}
	}
	return r.Script().Tuple(p.host.Call(keys, r.Script(), r.Args()))
}

// send runs a request on both and holds the results against each other and the invariants.
func (p *player) send(r Request) (lua.Tuple, error) {
	p.model.Mute, p.model.Blind = p.muted, p.blinded
	p.host.Deny(p.muted, p.blinded)
	reply, err := p.run(r)
	p.host.Deny(false, false)
	if err != nil {
		return reply, fmt.Errorf("the script: %w\n  %s %q", err, r.Script().Name, r.Args())
	}
	if reply.Now != 0 {
		p.now = reply.Now
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %q\n      -> %s", p.now, r.Script().Name, r.Args(), stage.ReplyText(reply)))
	p.elapse()
	pre := p.model.Clone()
	scan := pre.Hash.Scan
	want := r.Run(p.model, p.now)
	if err := p.noNews(r, pre, p.model, want); err != nil {
		return reply, err
	}
	p.highest = max(p.highest, int64(reply.Token))
	if err := line.SameReply(want, reply); err != nil {
		return reply, err
	}
	messages, err := p.host.Woken(p.keys)
	if err != nil {
		return reply, err
	}
	if err := stage.Published(messages, &p.model.Sent); err != nil {
		return reply, err
	}
	before := p.before
	if err := p.compare(); err != nil {
		return reply, err
	}
	err = p.judge.step(happened{
		request: r, reply: reply, sent: messages, now: p.now, before: before, after: p.before,
		hears: p.model.Hears, muted: p.muted, blinded: p.blinded, scan: scan,
	})
	p.muted, p.blinded = false, false
	p.note(r, reply, messages)
	return reply, err
}

// noNews holds a look with others against the check that it stands for: that would have nothing to do, and say the same.
func (p *player) noNews(r Request, before, after *Lock, reply lua.Tuple) error {
	c, ok := r.(Check)
	if !ok || !c.Together {
		return nil
	}
	if _, calm := c.together(before.Clone(), reply.Now); !calm || c.Born > before.Hash.Born {
		return nil // It does not state a number: its client's next ask does.
	}
	p.seen["looked together"]++
	if before.Used() < before.Hash.Limit {
		p.seen["looked together at a head that does not fit"]++
	}
	c.Together = false
	check := c.Run(before, reply.Now)
	check.Waiting = 0
	before.Hash.Kept = after.Hash.Kept // That of the first ticket may be later.
	if err := line.SameReply(check, reply); err != nil || len(before.Sent) > 0 {
		return fmt.Errorf("a check of its own sends %v, and\n%w", before.Sent, err)
	}
	if is, was := after.State(reply.Now).Text(p.keys), before.State(reply.Now).Text(p.keys); is != was {
		return fmt.Errorf("a check of its own leaves\n%s\n  and not\n%s", was, is)
	}
	return nil
}

// note counts what came of a request.
func (p *player) note(r Request, reply lua.Tuple, messages []stage.Message) {
	name := r.Script().Name
	p.seen[fmt.Sprintf("%s %d", name, reply.Status)]++
	if r, ok := r.(Renew); ok && r.Stays && reply.Status == lua.Granted {
		p.seen["stays"]++
	}
	for ticket := range p.before[3].Members {
		if lua.Rests(ticket) {
			p.seen["rests "+name]++
		}
	}
	for flag := int64(1); flag <= lua.Differs; flag *= 2 {
		if reply.Has(flag) {
			p.seen[fmt.Sprint("flag ", flag)]++
		}
	}
	for _, state := range reply.States {
		state, _, _ = strings.Cut(state, " ")
		p.seen[name+" "+state]++
	}
	for _, m := range messages {
		p.seen["message "+m.Text[:1]]++
		grants, _, noted := strings.Cut(m.Text, " ~")
		if m.Text[0] == 'G' && strings.Count(grants, " ") > 4 {
			p.seen["several grants in a message"]++
		}
		if noted {
			p.seen["grant with a note"]++
		}
	}
	if len(reply.Grants) > 1 {
		p.seen["several grants in a reply"]++
	}
	if p.before[0].Number("limit") != p.before[0].Number("stated") && p.before[0].Left > resizedFor-stage.Minute {
		p.seen["a month for one that was resized"]++
	}
	for what, so := range p.judge.did {
		if so {
			p.seen[what]++
		}
	}
	for _, field := range []string{"mark", "scan", "group"} {
		if p.before[0].Members[field] != "" {
			p.seen[field]++
		}
	}
}

// compare holds the keys of the server against those of the model.
func (p *player) compare() error {
	got, err := p.host.State(p.keys)
	if err != nil {
		return err
	}
	p.before = got
	return stage.Same(p.keys, p.model.State(p.now), got, p.host.Slack())
}

// inspect holds what is shown against the model.
func (p *player) inspect() error {
	args := []string{"5", stage.Decimal(p.limit)}
	got, err := lua.Semaphore.Inspect.DecodeInspect(p.host.Call(p.keys.All(), lua.Semaphore.Inspect, args))
	if err != nil {
		return err
	}
	p.now = got.Now
	p.elapse()
	want := p.model.View(p.now, 5, p.limit)
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		return fmt.Errorf("  shows     %s\n  should be %s", g, w)
	}
	return p.compare()
}

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply lua.Tuple) {
	for _, g := range reply.Grants {
		p.granted(g.Ticket, g.Token)
	}
	if r, ok := r.(Check); ok && reply.Status == lua.Done {
		p.looked(r.Tickets, reply.States)
	}
	a, ok := r.(Ask)
	if !ok {
		return
	}
	t := p.find(a.Ticket)
	switch {
	case t == nil:
	case reply.Status == lua.Granted:
		t.token, t.bound = int64(reply.Token), nil
	case reply.Status == lua.Waiting:
		t.arrival = reply.Arrival
		if reply.Place >= 0 {
			t.bound = nil
		}
	default:
		t.ended = true
	}
}

// looked takes in what a check says of tickets.
func (p *player) looked(tickets []lua.Arrival, states []string) {
	for i, a := range tickets {
		t := p.find(a.Ticket)
		switch state, _, _ := strings.Cut(states[i], " "); {
		case t == nil || state == lua.StateGone:
		case state == lua.StateFull || state == lua.StateExcess:
			t.ended = true
		default:
			t.bound = nil
		}
	}
}

func (p *player) granted(ticket string, token uint64) {
	if t := p.find(ticket); t != nil {
		t.token, t.bound = int64(token), nil
	}
}

func (p *player) find(ticket string) *slot {
	for c := range p.clients {
		for i := range p.clients[c] {
			if t := &p.clients[c][i]; t.text == ticket {
				return t
			}
		}
	}
	return nil
}
