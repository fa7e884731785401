package permits

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// player plays one history on a server and on the model.
type player struct {
	*line.Player[*Lock]
	limit int64 // that is stated
	born  int64 // when the first of the clients was made; 0: the limit cannot change
	locks bool
	judge judge
}

func newPlayer(s stage.Host, name string, locks bool, limit int64) *player {
	proto, born := lua.Semaphore, s.Now()-2*stage.Second
	if locks {
		proto, limit, born = lua.RWLock, wire.AllReaders, 0
	}
	p := line.NewPlayer(s, proto.Keys("model", name), New(), slots)
	return &player{Player: p, limit: limit, born: born, locks: locks}
}

func (p *player) step(s step) error {
	if done, err := p.Around(s, p.expire); done {
		return err
	}
	switch s.Op {
	case line.OpDelete:
		return p.remove(s.Choice)
	case line.OpCrowd:
		kind, n := p.kind(s)
		return p.put(p.Crowd(s, p.Model.Hash.Scan, kind, n))
	case line.OpInspect:
		return p.inspect()
	}
	return p.Send(s, p.build, p.request)
}

// expire lets the keys of the model go with the time, and looks whether those of the server do.
func (p *player) expire() error {
	stage.Tick(p.Host, &p.Now)
	p.elapse()
	for ticket, h := range holdsOf(p.State) {
		if _, there := p.Model.Hash.Holds[ticket]; h.until > p.Now && h.until-p.Now <= h.lease && !there {
			return fmt.Errorf("the key of a lock expired while %s held until %d", ticket, h.until)
		}
	}
	return p.Compare()
}

// elapse removes what has expired from the model.
func (p *player) elapse() {
	p.Model.Expire(p.Now)
	if p.Model.LockEnds == 0 {
		p.judge.lost = true
	}
}

func (p *player) remove(choice int) error {
	which := [8][4]bool{
		{true, true, true, true}, {true, true, true, true}, {true, false, false, false}, {true, false, false, true},
		{false, true, false, false}, {false, false, true, false}, {true, true, false, false}, {false, false, false, true},
	}[choice]
	p.Model.Delete(which[0], which[1], which[2], which[3])
	p.judge.lost = p.judge.lost || which[0]
	p.judge.gone = p.judge.gone || which[0] || which[3]
	p.Log = append(p.Log, fmt.Sprint("delete ", which))
	if err := stage.Lose(p.Host, p.Keys, which[:]); err != nil {
		return err
	}
	return p.Compare()
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	reply, err := p.send(r)
	if err != nil {
		return err
	}
	if !s.Lost {
		p.Learn(says(r), reply)
	}
	if !s.Twice || !p.Host.Frozen() {
		return nil
	}
	first := p.State
	again, err := p.send(r)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	if err := sameTwice(p.Keys, r, reply, again, first, p.State); err != nil {
		return fmt.Errorf("sent twice: %w", err)
	}
	return nil
}

// run runs the script of a request.
func (p *player) run(r Request) (wire.Tuple, error) {
	keys := stage.KeysOf(p.Keys, r.Script(), r.Args())
	if r, ok := r.(Renew); ok {
		keys = p.Keys.Renewed()
		switch {
		case r.Stays:
			keys = p.Keys.Staying()
		case r.Wants:
			keys = p.Keys.Wanting()
		}
	}
	if c, ok := r.(Check); ok && c.Together {
		if reply, ok, err := stage.Together(p.Host, p.Keys, lua.Semaphore.Checks, c.NotAfter, c.Client, !c.Uncounted, c.Tickets); ok || err != nil {
			return reply, err
		}
	}
	reply, err := r.Script().Tuple(p.Host.Call(keys, r.Script(), r.Args()))
	if a, ok := r.(Ask); ok {
		reply.Complete(wire.TicketTerms(a.Ticket))
	}
	return reply, err
}

// send runs a request on both and holds the results against each other and the invariants.
func (p *player) send(r Request) (wire.Tuple, error) {
	muted, blinded := p.Muted, p.Blinded
	reply, err := p.Run(r.Script(), r.Args(), func() (wire.Tuple, error) { return p.run(r) })
	if err != nil {
		return reply, err
	}
	p.elapse()
	pre := p.Model.Clone()
	scan := pre.Hash.Scan
	want := r.Run(p.Model, p.Now)
	if err := p.noNews(r, pre, p.Model, want); err != nil {
		return reply, err
	}
	messages, err := p.Host.Woken(p.Keys)
	if err != nil {
		return reply, err
	}
	if err := p.Answered(want, reply, messages); err != nil {
		return reply, err
	}
	before := p.State
	if err := p.Compare(); err != nil {
		return reply, err
	}
	err = p.judge.step(happened{request: r, Happened: line.Happened{
		Says: says(r), Reply: reply, Sent: messages, Now: p.Now, Before: before, After: p.State,
		Hears: p.Model.Hears, Muted: muted, Blinded: blinded, Scan: scan,
	}})
	p.Muted, p.Blinded = false, false
	p.note(r, reply, messages)
	return reply, err
}

// noNews holds a look with others against the check that it stands for: that would have nothing to do, and say the same.
func (p *player) noNews(r Request, before, after *Lock, reply wire.Tuple) error {
	c, ok := r.(Check)
	if !ok || !c.Together {
		return nil
	}
	if _, calm := c.together(before.Clone(), reply.Now); !calm || c.Born > before.Hash.Born {
		return nil // It does not state a number: its client's next ask does.
	}
	p.Seen["looked together"]++
	if before.Used() < before.Hash.Limit {
		p.Seen["looked together at a head that does not fit"]++
	}
	c.Together = false
	check := c.Run(before, reply.Now)
	check.Waiting = 0
	before.Hash.Kept = after.Hash.Kept // The first ticket's may be later.
	if err := line.SameReply(check, reply); err != nil || len(before.Sent) > 0 {
		return fmt.Errorf("a check of its own sends %v, and\n%w", before.Sent, err)
	}
	if is, was := after.State(reply.Now).Text(p.Keys), before.State(reply.Now).Text(p.Keys); is != was {
		return fmt.Errorf("a check of its own leaves\n%s\n  and not\n%s", was, is)
	}
	return nil
}

// note counts what came of a request.
func (p *player) note(r Request, reply wire.Tuple, messages []stage.Message) {
	p.Note(r.Script(), reply, messages)
	if r, ok := r.(Renew); ok && r.Stays && reply.Status == wire.Granted {
		p.Seen["stays"]++
	}
	for ticket := range p.State[3].Members {
		if wire.Rests(ticket) {
			p.Seen["rests "+r.Script().Name]++
		}
	}
	for _, m := range messages {
		if grants, _, _ := strings.Cut(m.Text, " ~"); m.Text[0] == 'G' && strings.Count(grants, " ") > 4 {
			p.Seen["several grants in a message"]++
		}
	}
	if len(reply.Grants) > 1 {
		p.Seen["several grants in a reply"]++
	}
	if p.State[0].Number("limit") != p.State[0].Number("stated") && p.State[0].Left > resizedFor-stage.Minute {
		p.Seen["a month for one that was resized"]++
	}
	for what, so := range p.judge.did {
		if so {
			p.Seen[what]++
		}
	}
	for _, field := range []string{"mark", "scan", "group"} {
		if p.State[0].Members[field] != "" {
			p.Seen[field]++
		}
	}
}

// inspect holds what is shown against the model.
func (p *player) inspect() error {
	args := []string{"5", stage.Decimal(p.limit)}
	got, err := lua.Semaphore.Inspect.DecodeInspect(p.Host.Call(p.Keys.All(), lua.Semaphore.Inspect, args))
	if err != nil {
		return err
	}
	p.Now = got.Now
	p.elapse()
	want := p.Model.View(p.Now, 5, p.limit)
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		return fmt.Errorf("  shows     %s\n  should be %s", g, w)
	}
	return p.Compare()
}
