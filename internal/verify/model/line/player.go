package line

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Model is one of a lock with a queue.
type Model interface {
	// Expire removes the keys whose time has come.
	Expire(now int64)
	// State is what the keys of a server should hold.
	State(now int64) stage.State
	// Queueing is its queue.
	Queueing() *Line
}

// Queueing is the line itself.
func (l *Line) Queueing() *Line { return l }

// A Slot is what a client knows of one of its tickets.
type Slot struct {
	Ticket  wire.Ticket
	Text    string
	Arrival int64
	Head    int64 // start of the first ask, µs
	Token   int64
	Ended   bool
	Bound   *Bound // until it has a place

	// What the last of several renewals has told that wrote everything: until when the key lives, and its lease.
	Kept, Renewed int64
}

// A Player plays one history on a server and on a model.
type Player[M Model] struct {
	Host    stage.Host
	Keys    lua.Keys
	Model   M
	Clients [Clients][]Slot
	Number  uint64
	Highest int64       // token that anybody has seen
	Now     int64       // the newest time of the server
	State   stage.State // the keys after the last step
	Muted   bool        // for the next request
	Blinded bool
	Log     []string
	Seen    map[string]int // what the replies and messages were, to know that histories reach it

	sent []stage.Request[M]
}

// NewPlayer begins with no keys, and with that many tickets of each client.
func NewPlayer[M Model](s stage.Host, k lua.Keys, m M, slots int) *Player[M] {
	p := &Player[M]{Host: s, Keys: k, Model: m, Now: s.Now(), State: m.State(0), Seen: map[string]int{}}
	for i := range p.Clients {
		p.Clients[i] = make([]Slot, slots)
	}
	return p
}

// Play plays a history to its end or to the first difference, and removes what it has left: also these keys.
func (p *Player[M]) Play(h History, step func(Step) error, more ...string) error {
	defer stage.Leave(p.Host, p.Keys, Clients, more...)
	p.Host.Deny(false, false)
	if _, err := p.Host.Woken(p.Keys); err != nil {
		return err
	}
	for i := range Clients {
		if h.Deaf>>i&1 == 0 {
			if err := p.Hear(i, true); err != nil {
				return err
			}
		}
	}
	return stage.Through(h.Steps, step, &p.Log)
}

// Hear lets a client subscribe to its channel, or not any more.
func (p *Player[M]) Hear(client int, on bool) error {
	name := stage.ClientName(client)
	p.Model.Queueing().Hears[name] = on
	return p.Host.Wake(p.Keys, name, on)
}

// Around does what a step does to clients, to the clock or to the server, and reports whether it was one of these. With the
// time keys expire.
func (p *Player[M]) Around(s Step, expire func() error) (done bool, err error) {
	stage.Tick(p.Host, &p.Now)
	switch s.Op {
	case OpHear, OpHush:
		return true, p.Hear(s.Client, s.Op == OpHear)
	case OpPass:
		p.Host.Pass(s.Micros)
		return true, expire()
	case OpClock:
		p.Host.Clock(s.Micros)
		return true, expire()
	case OpDeny:
		p.Muted, p.Blinded = s.Choice < 6, s.Choice > 3
		return true, nil
	}
	return false, nil
}

// Send makes the request of a step and sends it, if the step has one; or one that was made before.
func (p *Player[M]) Send(s Step, build func(Step) stage.Request[M], send func(stage.Request[M], Step) error) error {
	if s.Op == OpRepeat {
		if len(p.sent) == 0 {
			return nil
		}
		return send(p.sent[max(len(p.sent)-1-s.Choice, 0)], s)
	}
	r := build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	return send(r, s)
}

// Expire lets the keys of the model go with the time, and looks whether those of the server do.
func (p *Player[M]) Expire() error {
	stage.Tick(p.Host, &p.Now)
	p.Model.Expire(p.Now)
	return p.Compare()
}

// Compare holds the keys of the server against those of the model.
func (p *Player[M]) Compare() (err error) {
	if p.State, err = p.Host.State(p.Keys); err != nil {
		return err
	}
	return stage.Same(p.Keys, p.Model.State(p.Now), p.State, p.Host.Slack())
}

// Run runs a script, on a server that may refuse something to it.
func (p *Player[M]) Run(s *lua.Script, args []string, run func() (wire.Tuple, error)) (wire.Tuple, error) {
	l := p.Model.Queueing()
	l.Mute, l.Blind = p.Muted, p.Blinded
	p.Host.Deny(p.Muted, p.Blinded)
	reply, err := run()
	p.Host.Deny(false, false)
	if err != nil {
		return reply, fmt.Errorf("the script: %w\n  %s %q", err, s.Name, args)
	}
	if reply.Now != 0 {
		p.Now = reply.Now
	}
	p.Log = append(p.Log, fmt.Sprintf("%d %s %q\n      -> %s", p.Now, s.Name, args, stage.ReplyText(reply)))
	return reply, nil
}

// Answered holds a reply and messages against those of the model.
func (p *Player[M]) Answered(want, reply wire.Tuple, sent []stage.Message) error {
	p.Highest = max(p.Highest, int64(reply.Token))
	if err := SameReply(want, reply); err != nil {
		return err
	}
	return stage.Published(sent, &p.Model.Queueing().Sent)
}

// Note counts what came of a request.
func (p *Player[M]) Note(s *lua.Script, reply wire.Tuple, messages []stage.Message) {
	p.Seen[fmt.Sprintf("%s %d", s.Name, reply.Status)]++
	for flag := int64(1); flag <= wire.Differs; flag *= 2 {
		if reply.Has(flag) {
			p.Seen[fmt.Sprint("flag ", flag)]++
		}
	}
	for _, state := range reply.States {
		state, _, _ = strings.Cut(state, " ")
		p.Seen[s.Name+" "+state]++
	}
	for _, m := range messages {
		p.Seen["message "+m.Text[:1]]++
		if strings.Contains(m.Text, " ~") {
			p.Seen["grant with a note"]++
		}
	}
}

// Crowd makes silent tickets, as of clients that died while they waited, and puts them into the queue.
func (p *Player[M]) Crowd(s Step, scan *Scan, kind byte, permits int64) []lua.Arrival {
	queue := p.Model.Queueing().Queue
	if len(queue) > 1000 || scan != nil {
		return nil // More would only be slower; and nobody comes in before a cursor without moving it.
	}
	first := p.Now - int64(s.Size)
	if len(queue) > 0 && s.Ahead {
		first = queue[0].Arrival - int64(s.Size)
	}
	var tickets []lua.Arrival
	for i := range s.Size {
		p.Number++
		t := wire.Ticket{Client: "dead" + strconv.FormatUint(p.Number, 10), Number: p.Number, Kind: kind, Permits: permits}
		if s.Single {
			t.Client = "dead"
		}
		t.Lease, t.Grant = 10*time.Second, time.Duration(s.Grant)*time.Millisecond
		tickets = append(tickets, lua.Arrival{Ticket: t.String(), Arrival: first + int64(i)})
	}
	return tickets
}

// Put queues tickets by hand, in a key that lives for so long.
func (p *Player[M]) Put(tickets []lua.Arrival, lives int64) error {
	l, args := p.Model.Queueing(), []string{"ZADD", p.Keys.Queue}
	for _, a := range tickets {
		l.Enqueue(a.Ticket, a.Arrival)
		args = append(args, stage.Decimal(a.Arrival), a.Ticket)
	}
	l.QueueEnds = p.Now + lives/stage.Millisecond*stage.Millisecond
	if err := p.Host.Do(args...).Error(); err != nil {
		return err
	}
	return p.Host.Do("PEXPIRE", p.Keys.Queue, stage.Decimal(lives/stage.Millisecond)).Error()
}

// Terms are what the request of a step says of the time and of tokens. Some clients think the server's clock to be ahead of
// what it is by so much.
func (p *Player[M]) Terms(s Step, ahead int64) (notAfter, floor int64) {
	notAfter = p.Now
	if !p.Host.Frozen() {
		notAfter += 60 * stage.Minute
	} else if s.Choice >= 4 {
		notAfter += ahead
	}
	if s.Late {
		notAfter = p.Now - 1
	}
	return notAfter, [...]int64{0, p.Highest, p.Highest + 1000, 1<<53 - 2}[s.Floor]
}

// Fresh is a slot with a new ticket.
func (p *Player[M]) Fresh(s Step, kind byte, permits int64) Slot {
	p.Number++
	t := wire.Ticket{
		Client: stage.ClientName(s.Client), Number: p.Number, Kind: kind, Permits: permits,
		Lease: time.Duration(s.Lease) * time.Millisecond, Grant: time.Duration(s.Grant) * time.Millisecond,
	}
	return Slot{Bound: s.Bound, Ticket: t, Text: t.String()}
}

// Waiting are the tickets that a check of a client names, with their bounds and head starts.
func (p *Player[M]) Waiting(s Step) (tickets []lua.Arrival, bounds map[string]Bound, heads map[string]int64) {
	bounds, heads = map[string]Bound{}, map[string]int64{}
	for i, t := range p.Clients[s.Client] {
		if s.Slots>>i&1 == 1 && t.Arrival != 0 && !t.Ended {
			tickets = append(tickets, lua.Arrival{Ticket: t.Text, Arrival: t.Arrival})
			heads[t.Text] = t.Head
			if t.Bound != nil {
				bounds[t.Text] = *t.Bound
			}
		}
	}
	slices.SortFunc(tickets, Order)
	return tickets, bounds, heads
}

// Find is the slot of a ticket, or nil.
func (p *Player[M]) Find(ticket string) *Slot {
	for c := range p.Clients {
		for i := range p.Clients[c] {
			if t := &p.Clients[c][i]; t.Text == ticket {
				return t
			}
		}
	}
	return nil
}

// Learn lets a client take in a reply as waitqueue does.
func (p *Player[M]) Learn(r Says, reply wire.Tuple) {
	for _, g := range reply.Grants {
		p.Granted(g.Ticket, g.Token)
	}
	if t := p.Find(r.Ticket); r.Ticket != "" && t != nil {
		switch reply.Status {
		case wire.Granted:
			p.Granted(r.Ticket, reply.Token)
		case wire.Waiting:
			t.Arrival = reply.Arrival
			if reply.Place >= 0 {
				t.Bound = nil
			}
		case wire.Late:
		default:
			t.Ended = true
		}
	}
	if reply.Status != wire.Done {
		return
	}
	for i, a := range r.Tickets {
		t := p.Find(a.Ticket)
		switch state, _, _ := strings.Cut(reply.States[i], " "); {
		case t == nil || state == wire.StateGone:
		case state == wire.StateFull || state == wire.StateExcess:
			t.Ended = true
		default:
			t.Bound = nil
		}
	}
}

// Granted notes the token of a ticket.
func (p *Player[M]) Granted(ticket string, token uint64) {
	t := p.Find(ticket)
	if t == nil {
		return
	}
	if t.Token != int64(token) {
		t.Kept = 0 // Another hold: of its renewals none has written anything yet.
	}
	t.Token, t.Bound = int64(token), nil
}
