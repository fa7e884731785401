package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// player plays one history on a server and on the model.
type player struct {
	*line.Player[*Mutex]
	server host
	moving []lua.Transit // newest last
	before state         // the keys after the last step
	judge  judge
}

func newPlayer(s host, k lua.Keys) *player {
	p := line.NewPlayer(s, k, New(), slots)
	return &player{Player: p, server: s, before: expected(p.Model, p.Now)}
}

func (p *player) step(s step) error {
	if done, err := p.Around(s, p.expire); done {
		return err
	}
	switch s.Op {
	case line.OpDelete:
		return p.remove(s.Choice)
	case line.OpCrowd:
		return p.crowd(s)
	}
	return p.Send(s, p.build, p.request)
}

// expire lets the keys of the model go with the time, and looks whether those of the server do.
func (p *player) expire() error {
	stage.Tick(p.server, &p.Now)
	held, until := p.before.owner() != "", p.before.number("until")
	p.elapse()
	if held && until > p.Now && p.Model.Lock.Owner == "" {
		return fmt.Errorf("the key of a lock expired while it was held until %d", until)
	}
	return p.compare()
}

// elapse removes what has expired from the model.
func (p *player) elapse() {
	p.Model.Expire(p.Now)
	if p.Model.Lock == (Hash{}) {
		p.judge.lost = true
	}
}

func (p *player) remove(choice int) error {
	which := [8][3]bool{
		{true, true, true}, {true, true, true}, {true, false, false}, {true, false, false},
		{false, true, false}, {false, false, true}, {true, true, false}, {true, false, true},
	}[choice]
	p.Model.Delete(which[0], which[1], which[2])
	p.judge.deleted(which[0])
	p.Log = append(p.Log, fmt.Sprint("delete ", which))
	if err := stage.Lose(p.server, p.Keys, which[:]); err != nil {
		return err
	}
	return p.compare()
}

// crowd puts silent tickets into the queue.
func (p *player) crowd(s step) error {
	tickets := p.Crowd(s, p.Model.Lock.Scan, wire.Exclusive, 1)
	if len(tickets) == 0 {
		return nil
	}
	return p.put(tickets, max(p.Model.Lock.Kept-p.Now, 0)+2*minute)
}

// put queues tickets by hand. Where the hash is not lost it says that there are some.
func (p *player) put(tickets []lua.Arrival, lives int64) error {
	if h := &p.Model.Lock; h.Token != 0 {
		for _, a := range tickets {
			h.High = max(h.High, a.Arrival)
		}
		if err := p.server.Do("HSET", p.Keys.Lock, "high", stage.Decimal(h.High)).Error(); err != nil {
			return err
		}
	}
	if err := p.Put(tickets, lives); err != nil {
		return err
	}
	return p.compare()
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter, floor := p.Terms(s, line.SentBy+stage.Millisecond)
	t := &p.Clients[s.Client][s.Slot]
	switch s.Op {
	case line.OpAsk:
		if p.renumber(t, s); t.Arrival == 0 {
			t.Head = s.Head
		}
		r := Ask{
			Ticket: t.Text, Mode: s.Mode, NotAfter: notAfter, Arrival: t.Arrival, Head: t.Head, Floor: floor,
			Uncounted: s.Blank, Phase: s.Phase(),
		}
		if s.Mode != wire.Try {
			r.Bound = t.Bound
		}
		r.FastPath = r.Arrival == 0 && r.Head == 0 && !s.Blank && !s.Final && s.Choice%2 == 0
		r.Busy = s.Choice%4 == 0
		return r
	case line.OpEnd:
		if t.Text == "" {
			return nil
		}
		t.Ended = true
		last := t.Token + passesOf(t.Text)
		token := [...]int64{0, 0, 0, 0, t.Token, last, last + 1, t.Token - 1}[s.Choice]
		note := ""
		if s.Choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		r := End{Ticket: t.Text, Token: max(token, 0), Floor: floor, Uncounted: s.Blank, Note: note, Above: t.Token}
		known := p.before.owner() != t.Text || p.before.number("token") == t.Token
		r.Rests, r.How = s.Rests, s.How
		r.FastPath = r.Token == 0 && !r.Rests && r.How == "" && !s.Blank && known && floor < p.Now+line.ForgedAhead && s.Size%2 == 0
		return r
	case line.OpRenew:
		if owner := p.Find(p.before.owner()); owner != nil && s.Choice > 2 {
			t = owner
		}
		if t.Text == "" {
			return nil
		}
		token := t.Token
		if s.Choice == 7 {
			token--
		}
		if s.Wants {
			says := s.Phase()
			if !s.Final && s.Slot == 1 {
				says = wire.PhaseIdle
			}
			return Renew{
				Ticket: t.Text, Token: token, Lease: min(s.Lease, t.Ticket.Lease.Milliseconds()), Phase: says, NotAfter: notAfter,
				Wants: true, Marked: !s.Final && s.Choice%2 == 0 && s.Keeps == 0, Keeps: s.Keeps,
			}
		}
		if s.Least > 0 {
			return Renew{
				Ticket: t.Text, Token: token, Lease: min(s.Lease, t.Ticket.Lease.Milliseconds()), Phase: s.Phase(), NotAfter: notAfter,
				Least: s.Least, Keeps: s.Keeps,
			}
		}
		if latest := t.Kept - lua.Least.Microseconds() - t.Renewed*millisecond; latest >= p.Now && s.Choice > 2 && s.Choice < 7 && s.Keeps == 0 {
			return Renew{
				Ticket: t.Text, Token: token, Lease: t.Renewed, Phase: wire.PhaseHeld,
				NotAfter: min(notAfter, latest), Still: true,
			}
		}
		return Renew{
			Ticket: t.Text, Token: token, Lease: min(s.Lease, t.Ticket.Lease.Milliseconds()), Phase: s.Phase(), NotAfter: notAfter,
			Revision: int64(s.Slots), Count: int64(s.Choice % 3), Keeps: s.Keeps,
		}
	case line.OpMove:
		if s.Choice%2 == 0 {
			return p.give(t, s, notAfter, floor)
		}
		return p.adopt(t, s, notAfter, floor)
	case line.OpBury:
		return Bury{Client: stage.ClientName(s.Client), Floor: floor, Uncounted: s.Blank}
	case line.OpCheck:
		r := Check{Client: stage.ClientName(s.Client), Mode: s.Mode, NotAfter: notAfter, Floor: floor, Uncounted: s.Blank}
		r.Tickets, r.Bounds, r.Heads = p.Waiting(s)
		r.Together = s.Mode == wire.Hears && len(r.Bounds) == 0 && s.Choice%4 != 0
		return r
	}
	return Force{Token: [...]int64{0, p.Highest, p.Highest, p.Highest - 1}[s.Choice%4], Floor: floor, Uncounted: s.Blank}
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *line.Slot, s step) {
	if t.Text == "" || t.Ended || s.Fresh || s.Mode == wire.Try {
		*t = p.Fresh(s, wire.Exclusive, 1+int64(s.Client%3)*int64(s.Client%3))
	}
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	if end, ok := r.(End); ok && s.Op == line.OpRepeat {
		end.FastPath = false // The token that it reckons from may be another by now.
		r = end
	}
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
func (p *player) send(r Request) (wire.Tuple, error) {
	muted, blinded := p.Muted, p.Blinded
	reply, err := p.Run(r.Script(), r.Args(), func() (wire.Tuple, error) { return p.server.run(p.Keys, p.Model.History, r) })
	if err != nil {
		return reply, err
	}
	p.elapse()
	pre := p.Model.Clone()
	want := r.Run(p.Model, p.Now)
	if err := p.noNews(r, pre.Clone(), p.Model, want); err != nil {
		return reply, err
	}
	sent, err := p.server.Woken(p.Keys)
	if err != nil {
		return reply, err
	}
	err = p.took(happened{request: r, before: p.before, Happened: line.Happened{
		Says: says(r), Reply: reply, Sent: sent, Now: p.Now, Before: p.before.State,
		Hears: p.Model.Hears, Muted: muted, Blinded: blinded, Scan: pre.Lock.Scan,
	}}, want)
	p.Muted, p.Blinded = false, false
	p.note(r, reply, sent)
	return reply, err
}

// noNews holds a look with others against the check that it stands for: that would have nothing to do, and say the same.
func (p *player) noNews(r Request, before, after *Mutex, reply wire.Tuple) error {
	c, ok := r.(Check)
	if !ok || !c.Together {
		return nil
	}
	if _, calm := c.together(before.Clone(), reply.Now); !calm {
		return nil
	}
	p.Seen["looked together"]++
	c.Together = false
	check := c.Run(before, reply.Now)
	check.Waiting = 0
	before.Lock.Kept = after.Lock.Kept // The first ticket's may be later.
	if err := line.SameReply(check, reply); err != nil || len(before.Sent) > 0 {
		return fmt.Errorf("a check of its own sends %v, and\n%w", before.Sent, err)
	}
	if is, was := expected(after, reply.Now), expected(before, reply.Now); is.text() != was.text() {
		return fmt.Errorf("a check of its own leaves\n%s\n  and not\n%s", was.text(), is.text())
	}
	return nil
}

// took holds what the lock shows of a request against the model and the invariants.
func (p *player) took(h happened, want wire.Tuple) error {
	if err := p.Answered(want, h.Reply, h.Sent); err != nil {
		return err
	}
	if err := p.compare(); err != nil {
		return err
	}
	h.after, h.After = p.before, p.before.State
	return p.judge.step(h)
}

// note counts what came of a request.
func (p *player) note(r Request, reply wire.Tuple, messages []stage.Message) {
	p.Note(r.Script(), reply, messages)
	if r, ok := r.(Renew); ok && r.Still && reply.Status == wire.Granted {
		p.Seen["renewed still"]++
	}
	if r, ok := r.(Move); ok && lua.InTransit(r.From) && reply.Status == wire.Granted {
		p.Seen["adopted"]++
	}
	if r, ok := r.(Renew); ok && r.Wants && reply.Status == wire.Granted {
		p.Seen["phase "+p.before.lock()["phase"]]++
	}
	if r, ok := r.(Renew); ok && r.Least > 0 && reply.Status == wire.Granted {
		p.Seen["stays"]++
	}
	if r, ok := r.(Renew); ok && r.Keeps > 0 && reply.Status == wire.Granted {
		p.Seen["remembered"]++
	}
	if before := reply.Before(); before != "" {
		p.note1(r.Script().Name, before)
	}
	for _, g := range reply.Grants {
		if g.Before != "" {
			p.note1("grants", g.Before)
		}
	}
	for _, m := range messages {
		if _, before, ok := strings.Cut(m.Text, " ~!"); ok {
			p.note1("message", before)
		}
	}
	if p.before.lock()["owner"] == wire.Nobody {
		p.Seen["nobody"]++
	}
	if wire.Rests(p.before.owner()) {
		p.Seen["rests "+r.Script().Name]++
	}
	if len(reply.Grants) > 0 {
		p.Seen["grant in a reply"]++
	}
	if p.before.number("mark") != 0 {
		p.Seen["mark"]++
	}
	if p.before.lock()["scan"] != "" {
		p.Seen["scan"]++
	}
	if len(p.before.past) > 0 {
		p.Seen["history "+strings.Fields(p.before.past[0])[3]]++
	}
}

// note1 counts what was told of the hold before.
func (p *player) note1(by, before string) {
	how, _, _ := strings.Cut(before, ":")
	p.Seen[by+" tells "+how]++
}

// compare holds the keys of the server against those of the model.
func (p *player) compare() error {
	err := p.Compare()
	p.before.State = p.State
	if err == nil {
		p.before.past, p.before.pastLeft, err = p.server.past(p.Keys)
	}
	if err != nil {
		return err
	}
	got, want := p.before, expected(p.Model, p.Now)
	if !p.server.Frozen() { // What is answered alone by a status does not tell when it was.
		want.untimed()
		got.untimed()
	}
	slack := max(p.Host.Slack(), millisecond) // It is asked for in ms.
	g, w := got.pastLeft, want.pastLeft
	if off := max(g-w, w-g); !slices.Equal(got.past, want.past) || off > slack || (g <= 0 || w <= 0) && g != w {
		return fmt.Errorf("the history is %q for %d µs, should be %q for %d", got.past, g, want.past, w)
	}
	return nil
}
