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

// endPool has the releases that were answered: a release takes one and puts it back.
var endPool = sync.Pool{New: func() any { return &owned{} }}

// An owned release is one in memory that the caller has provided, with its sender.
type owned struct {
	core.Release
	sender
}

// A sender sends a release, and repeats it if need be.
type sender struct {
	release *core.Release
	item    outItem[sender]
	entry   *entry
	heir    *lua.Transit // where the hold goes; nil: to the next in the queue
	timer   timers.Timer
	room    [7]string     // of args
	stuck   chan struct{} // closed when the server refuses the release until somebody mends it; nil while no call wants to know
	isStuck bool          // it is so; guarded by act, as is stuck
}

// set fills in a sender.
func (d *sender) set(s *entry, r *core.Release) {
	d.entry, d.release = s, r
	r.Owner = d
}

// sending returns what sends a release.
func (s *entry) sending(r *core.Release) *sender {
	d, ok := r.Owner.(*sender)
	if !ok {
		d = &sender{}
		d.set(s, r)
	}
	return d
}

// push sees that the release is sent: at once, or also with an acquire request that comes soon.
func (d *sender) push(atOnce bool) {
	s := d.entry
	d.item.Of = d
	s.client.ends.push(s.node(), &d.item, atOnce)
}

// later sends a release at a time.
func (d *sender) later(at time.Time) {
	c := d.entry.client
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

// sendEnd sends the release of a ticket and takes in the reply. Without a reply it goes on in the background. Before the
// release it settles the releases by force that this client has given up, as far as ctx allows: they must not free the
// next hold.
func (e *lockEntry) sendEnd(ctx context.Context, t *ticket, heir *lua.Transit) answer {
	_ = e.client.servers.Overtake(ctx, e.keys.Lock)
	sent := conn.Sending()
	sent.Note = t.Note
	e.client.stats.ReleaseRequests.Add(1)
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
func (e *lockEntry) own(d *owned, t *ticket, heir *lua.Transit) {
	d.Release = core.ReleaseOf(&t.Ticket)
	d.Moves = heir != nil
	d.set(&e.entry, &d.Release)
	d.heir = heir
}

// answered takes in the answer to a release, or its lack.
func (e *lockEntry) answered(d *sender, sent conn.Attempt, res rueidis.RedisResult) answer {
	r, err := d.script().Decode(res)
	if t := d.release.Ticket; t != nil {
		r.Complete(0, t.Takes())
	}
	return e.onReleaseReply(d, sent, &r, err)
}

// onReleaseReply takes in the decoded answer.
func (e *lockEntry) onReleaseReply(d *sender, sent conn.Attempt, r *wire.Reply, err error) answer {
	a := answer{err: err}
	if err == nil {
		a.Head = r.Head()
		e.client.observeHeader(e.node(), sent, e.proto, e.name, a.Head, r.Token)
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

// script is the script of the release.
func (d *sender) script() *lua.Script {
	if d.heir != nil {
		return lua.Move
	}
	return d.entry.proto.End
}

// whole is a release as it is sent in full, with all that the script may need.
func (d *sender) whole() conn.Job { return d.entry.job(d.script(), d.entry.keys.All(), d.args()) }

func (d *sender) job() (conn.Job, bool) {
	d.entry.client.stats.ReleaseRequests.Add(1)
	return d.whole(), true
}

func (d *sender) answered(sent conn.Attempt, res rueidis.RedisResult) answer {
	return d.entry.use.answered(d, sent, res)
}

func (d *sender) unsent() {}

// args is what the script for the release of a ticket gets.
func (d *sender) args() []string {
	s, r, room := d.entry, d.release, d.room[:0]
	c := s.client
	if d.heir != nil {
		return d.moving()
	}
	if r.Tries > 0 {
		room = nil // A request that was not answered may still read those of before.
	}
	args := append(room, r.Text, strconv.FormatUint(r.Token, 10), c.highest(), c.servers.Counted())
	if fast, _ := s.proto.FastPath(); fast {
		args[1], args[2] = args[2], args[1]
	}
	switch note := r.Note(); {
	case r.How != "" && !s.proto.Dated:
		rests := ""
		if r.Rests {
			rests = wire.EndRests
		}
		args = append(args, note, rests, r.How)
	case r.Rests:
		args = append(args, note, wire.EndRests)
	case note != "":
		args = append(args, note)
	}
	return args
}

// moving is what the script gets if the hold is handed over. It may run at any time: it has no effect if the ticket does
// not hold.
func (d *sender) moving() []string {
	c, r := d.entry.client, d.release
	token := strconv.FormatUint(r.Ticket.Grant().Token, 10)
	return []string{r.Text, d.heir.Ticket(), token, "", wire.PhaseFinal, lua.Ever, c.highest(), c.servers.Counted()}
}

// endFor sends the release of a ticket, on the fast path if it can be.
func (e *lockEntry) endFor(ctx context.Context, d *sender) rueidis.RedisResult {
	servers := e.client.servers
	if args := e.fast(d); args != nil {
		j := e.job(d.script(), e.keys.FastPath(), args)
		if res := servers.RunFor(ctx, j.Script, j.Keys, j.Args...); !lua.Fallback(res) {
			return res
		}
	}
	j := d.whole()
	return servers.RunFor(ctx, j.Script, j.Keys, j.Args...)
}

// fast is the arguments of a release on the fast path: the first release of a ticket that holds by the token of its
// grant. For any other it is nil. A release without a highest token is for a name whose last acquire request did not have
// to wait: the script then expects that nobody waits.
func (e *lockEntry) fast(d *sender) []string {
	r := d.release
	h := r.Ticket.Hold
	if _, fast := e.proto.FastPath(); !fast || h == nil || d.heir != nil || r.Token != 0 || r.Rests || r.How != "" || e.client.servers.Counted() != "1" {
		return nil
	}
	args, note := append(d.room[:0], r.Text), r.Note()
	if seen := e.client.minToken.Load(); r.Crowded || seen > h.Token || note != "" {
		from := h.Token
		if e.proto.Several() {
			from = 0 // With all keys it is told in full.
		}
		args = append(args, strconv.FormatUint(max(seen, h.Token)-from, 10))
	}
	if note != "" {
		args = append(args, "0", "1", note)
	}
	return args
}
