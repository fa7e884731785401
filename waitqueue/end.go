package waitqueue

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// endPool has those that were answered: a release takes one and gives it back.
var endPool = sync.Pool{New: func() any { return &owned{} }}

// An owned release is one that the caller has made room for, with what sends it.
type owned struct {
	core.Release
	sender
}

// A sender sends a release, again and again if need be.
type sender struct {
	release *core.Release
	item    outItem[sender]
	site    *site
	heir    *lua.Transit // where the hold goes; nil: to the next in the queue
	timer   timers.Timer
	room    [5]string     // of args
	stuck   chan struct{} // closed when the server refuses the release until somebody mends it; nil while no call wants to know
	isStuck bool          // it is so; guarded by act, as is stuck
}

// set fills in a sender.
func (d *sender) set(s *site, r *core.Release) {
	d.site, d.release = s, r
	r.Owner = d
}

// sending returns what sends a release.
func (s *site) sending(r *core.Release) *sender {
	d, ok := r.Owner.(*sender)
	if !ok {
		d = &sender{}
		d.set(s, r)
	}
	return d
}

// push sees that the release is sent: at once, or also with an acquire request that comes soon.
func (d *sender) push(atOnce bool) {
	s := d.site
	d.item.Of = d
	s.client.ends.push(s.node(), &d.item, atOnce)
}

// later sends a release at a time.
func (d *sender) later(at time.Time) {
	c := d.site.client
	c.ends.count(1)
	d.timer.Target = timers.Func(func(now time.Time) {
		if now.Before(at) {
			c.servers.Timers.Before(&d.timer, at)
			return
		}
		d.push(true)
		c.ends.count(-1)
	})
	c.servers.Timers.Before(&d.timer, at)
}

// sendEnd sends the release of a ticket and takes in the answer. Without one it goes on in the background. No release by
// force that this client has given up frees the next hold after that, as far as ctx allows.
func (e *entry) sendEnd(ctx context.Context, t *ticket, heir *lua.Transit) answer {
	_ = e.client.servers.Overtake(ctx, e.keys.Lock)
	sent := conn.Sending()
	sent.Note = t.Note
	e.client.stats.Ends.Add(1)
	d := endPool.Get().(*owned)
	e.own(d, t, heir)
	a := e.answered(&d.sender, sent, e.endFor(ctx, &d.sender))
	if a.err == nil { // Otherwise it may be sent again.
		*d = owned{}
		endPool.Put(d)
	}
	return a
}

// own fills in the release of a ticket.
func (e *entry) own(d *owned, t *ticket, heir *lua.Transit) {
	d.Release = core.ReleaseOf(&t.Ticket)
	d.Moves = heir != nil
	d.set(&e.site, &d.Release)
	d.heir = heir
}

// answered takes in the answer to a release, or its lack.
func (e *entry) answered(d *sender, sent conn.Attempt, res rueidis.RedisResult) answer {
	r, err := d.script().Decode(res)
	if t := d.release.Ticket; t != nil {
		r.Complete(0, t.Takes())
	}
	return e.took(d, sent, &r, err)
}

// took takes in the decoded answer.
func (e *entry) took(d *sender, sent conn.Attempt, r *wire.Reply, err error) answer {
	a := answer{err: err}
	if err == nil {
		a.Head = r.Head()
		e.client.saw(e.node(), sent, e.proto, e.name, a.Head, r.Token)
	}
	f := failure(err)
	x := e.begin()
	if err == nil {
		e.lock.OnReply(&x.Input, attempt(&sent), r, d.release.Note(), false)
	}
	e.lock.OnReleaseReply(&x.Input, d.release, sent.Sent, &a.Head, &f)
	if t := d.release.Ticket; err == nil && t != nil && t.Hold != nil {
		a.outcome = t.Hold.Outcome(x.Now, &a.Head)
	}
	e.end(x)
	return a
}

// script is that for the release.
func (d *sender) script() *lua.Script {
	if d.heir != nil {
		return lua.Move
	}
	return d.site.proto.End
}

// whole is a release as it is sent, with all that the script may need.
func (d *sender) whole() conn.Job { return d.site.job(d.script(), d.site.keys.All(), d.args()) }

func (d *sender) job() (conn.Job, bool) {
	d.site.client.stats.Ends.Add(1)
	return d.whole(), true
}

func (d *sender) answered(sent conn.Attempt, res rueidis.RedisResult) answer {
	return d.site.use.answered(d, sent, res)
}

func (d *sender) unsent() {}

// args is what the script for the release of a ticket gets.
func (d *sender) args() []string {
	s, r, room := d.site, d.release, d.room[:0]
	c := s.client
	if d.heir != nil {
		return d.moving()
	}
	if r.Tries > 0 {
		room = nil // A request that was not answered may still read those of before.
	}
	args := append(room, r.Text, strconv.FormatUint(r.Token, 10), c.highest(), c.servers.Counted())
	if light, _ := s.proto.Light(); light {
		args[1], args[2] = args[2], args[1]
	}
	switch note := r.Note(); {
	case r.Rests:
		args = append(args, note, wire.EndRests)
	case note != "":
		args = append(args, note)
	}
	return args
}

// moving is what it gets where the hold is handed over. It may run at any time: it has no effect where the ticket does not
// hold.
func (d *sender) moving() []string {
	c, r := d.site.client, d.release
	token := strconv.FormatUint(r.Ticket.Grant().Token, 10)
	return []string{r.Text, d.heir.Ticket(), token, "", wire.PhaseFinal, lua.Ever, c.highest(), c.servers.Counted()}
}

// endFor sends the release of a ticket, on the fast path if it can be.
func (e *entry) endFor(ctx context.Context, d *sender) rueidis.RedisResult {
	servers := e.client.servers
	if args := e.fast(d); args != nil {
		j := e.job(d.script(), e.keys.Light(), args)
		if res := servers.RunFor(ctx, j.Script, j.Keys, j.Args...); !lua.Unusual(res) {
			return res
		}
	}
	j := d.whole()
	return servers.RunFor(ctx, j.Script, j.Keys, j.Args...)
}

// fast is the arguments of a release on the fast path: the first of a ticket that holds by the token of its grant; for any other
// it is nil. One that tells no highest token is of a name whose last acquire request had not to wait: the script then expects that
// nobody does.
func (e *entry) fast(d *sender) []string {
	r := d.release
	h := r.Ticket.Hold
	if _, light := e.proto.Light(); !light || h == nil || d.heir != nil || r.Token != 0 || r.Rests || e.client.servers.Counted() != "1" {
		return nil
	}
	args, note := append(d.room[:0], r.Text), r.Note()
	if seen := e.client.floor.Load(); r.Crowded || seen > h.Token || note != "" {
		args = append(args, strconv.FormatUint(max(seen, h.Token)-h.Token, 10))
	}
	if note != "" {
		args = append(args, "0", "1", note)
	}
	return args
}
