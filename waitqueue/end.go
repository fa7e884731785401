package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// The end of a ticket (R9) is sent at once, by the call that releases, or in the background for a ticket
// that nobody waits for any more. It is repeated until it is answered, and again when everything that was
// in flight for the ticket is answered or can no longer run (R1, R7). Then the ticket is forgotten.

// endsTime is how long an end that is not answered is repeated at the least; it is repeated until the
// lease is over. A ticket that stays queued then gives back what it is granted.
const endsTime = time.Minute

var errNoAnswer = errors.New("no answer from Redis until the lease was over")
var errUnanswered = unconfirmed(errNoAnswer)

func unconfirmed(why error) error { return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, why) }

// endPool has those that were answered: a release takes one and gives it back.
var endPool = sync.Pool{New: func() any { return &end{} }}

// An end is the last request of a ticket, on its way.
type end struct {
	item   outbox.Item[end]
	site   *site
	text   string
	token  uint64  // only if it holds with this token, or with one that has led to it ([Hold.Pass]); 0 for any
	ticket *ticket // nil if the ticket is unknown: a grant that is given back
	rests  bool    // the name is to stay taken for as long as the server was told
	repeat bool    // it is the end of a ticket once more, which the ticket waits for
	tries  int
	unsure bool         // an attempt had no answer: it may have done it
	heir   *lua.Transit // where the hold goes; nil: to the next in the queue
	until  time.Time    // when repeating is given up

	owes    time.Time // of an unknown ticket: until when the server may have what it ends
	unended error     // of an unknown ticket: why that was not confirmed
	entry   timers.Timer
	room    [5]string // of args
}

// end is the last request of the ticket.
func (t *ticket) end() end {
	return end{site: t.site, text: t.text, ticket: t, token: t.used, rests: t.rests}
}

// push sees that the end is sent: at once, or also with an ask that comes soon.
func (d *end) push(atOnce bool) {
	d.item.Of = d
	d.site.client.ends.Push(d.site.node(), &d.item, atOnce)
}

// finish ends a ticket that does not hold. Where nothing of it can be in the server, it is just forgotten;
// clean says that the last answer said so.
func (s *site) finish(t *ticket, clean bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state == passed || t.inflight == 0 && t.ghost.IsZero() && t.grant.token == 0 && (clean || t.state == idling) {
		s.forgetLocked(t)
		return
	}
	s.endLocked(t)
}

// endLocked begins the end of a ticket in the background.
func (s *site) endLocked(t *ticket) {
	if t.state == ending || t.state == ended {
		return
	}
	t.to(ending)
	t.rests = t.restsLocked()
	if s.proto.End == nil || s.copied {
		s.forgetLocked(t) // The server never has anything of it, or what it has may be the other copy's.
		return
	}
	t.endAgain = t.endAgain || t.inflight > 0
	d := t.end()
	d.push(true)
}

// forgetLocked drops a ticket whose end is acknowledged, or was never needed.
func (s *site) forgetLocked(t *ticket) {
	t.to(ended)
	s.used = time.Now()
	delete(s.tickets, t.text)
	t.oweLocked(false)
	t.unlockedLocked(cmp.Or(t.refused, errUnanswered))
	t.acknowledgeLocked()
}

// acknowledgeLocked lets those go on who wait for the answer to the end of a ticket.
func (t *ticket) acknowledgeLocked() {
	if t.over != nil && !t.acknowledged {
		close(t.over)
	}
	t.acknowledged = true
}

// verdict returns a channel that is closed when the ticket's end was answered or given up, and what that means to whoever
// released, if not that all is well.
func (s *site) verdict(t *ticket) (over <-chan struct{}, refused error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.overLocked(), t.refused
}

// overLocked returns the channel of [site.verdict].
func (t *ticket) overLocked() <-chan struct{} {
	if t.over == nil {
		t.over = make(chan struct{})
		if t.acknowledged {
			close(t.over)
		}
	}
	return t.over
}

// sendEnd sends the end of a ticket and takes in the answer. Without one the end goes on in the background. No release by
// force that this client has given up frees the next hold after that, as far as ctx allows.
func (s *site) sendEnd(ctx context.Context, t *ticket, heir *lua.Transit) answer {
	_ = s.client.servers.Overtake(ctx, s.keys.Lock)
	sent := conn.Sending()
	sent.Note = t.note
	s.client.stats.Ends.Add(1)
	d := endPool.Get().(*end)
	*d = t.end()
	d.heir = heir
	a := s.ended(d, sent, s.endFor(ctx, d))
	if a.err == nil { // Otherwise it may be sent again.
		endPool.Put(d)
	}
	return a
}

// ended takes in the answer to an end, which is of the kind of the site's protocol.
func (s *site) ended(d *end, a conn.Attempt, res rueidis.RedisResult) answer {
	h, _, err := s.read(d.script(), a, res, d.ticket, false)
	s.endAnswered(d, a, &h, err)
	return answer{Head: h, err: err}
}

// read reads the reply to a request about the site's name that is no ask, and takes in what it says beside the fate of
// tickets; ended is that which it ends.
func (s *site) read(script *lua.Script, a conn.Attempt, res rueidis.RedisResult, ended *ticket, check bool) (lua.Head, trust.Sight, error) {
	if s.proto.Broadcast {
		r, err := s.proto.DecodeEvent(script, res)
		if err == nil {
			s.client.saw(s.node(), a, s.proto, s.name, r.Head, 0)
		}
		return r.Head, sightOf(&r), err
	}
	r, err := script.Decode(res)
	if ended != nil {
		r.Complete(0, ended.takes)
	}
	if err == nil {
		s.absorb(a, &r, check)
	}
	return r.Head(), trust.SightOf(r.Waiting, r.Now, r.Until, r.Token), err
}

// job is an end as it is sent with other requests.
func (d *end) job() conn.Job {
	return d.site.job(d.script(), d.site.keys.All(), d.args())
}

// args is what the script for the end of a ticket gets.
func (d *end) args() []string {
	c, room := d.site.client, d.room[:0]
	if d.heir != nil {
		return d.moving()
	}
	if d.tries > 0 {
		room = nil // A request that was not answered may still read those of before.
	}
	args := append(room, d.text, strconv.FormatUint(d.token, 10), c.highest(), c.servers.Counted())
	if light, _ := d.site.proto.Light(); light {
		args[1], args[2] = args[2], args[1]
	}
	switch note := d.note(); {
	case d.rests:
		args = append(args, note, lua.EndRests)
	case note != "":
		args = append(args, note)
	}
	return args
}

// note is what the grant to the next is to carry.
func (d *end) note() string {
	if d.ticket == nil {
		return ""
	}
	return d.ticket.note
}

// endAnswered takes in the answer to an end, or its lack.
func (s *site) endAnswered(d *end, a conn.Attempt, r *lua.Head, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := d.ticket
	if t != nil && err == nil {
		d.handedOverLocked(r)
		if t.hold != nil && !t.acknowledged && d.heir == nil && (!d.unsure || r.Status == lua.Done) {
			t.refused = t.hold.outcomeLocked(r) // Else it may be an attempt before that did it.
		}
		t.unlockedLocked(t.refused)
		t.acknowledgeLocked() // The end itself may have to be sent once more.
	}
	if err != nil && conn.Mendable(err) {
		d.unsure = d.unsure || !conn.Answered(err) && !conn.Unsent(err)
		if t != nil {
			t.endRefusedLocked(err)
		}
		d.retryLocked(err)
		return
	}
	if d.repeat {
		t.repeats--
	}
	switch {
	case t == nil || err != nil:
		d.overLocked(conn.Advise(err))
	case t.inflight > 0:
		t.endAgain = true
		t.oweLocked(true)
	case a.Sent.Before(t.ghost):
		// What may still have run after this end was sent, however late its answer is, ends with the next.
		t.repeatLocked()
	case t.repeats == 0: // Close waits for ends that are to be sent again as long as there is the ticket.
		s.forgetLocked(t)
	}
}

// endRefusedLocked notes that a request for the end of a ticket failed, and tells the calls that have to follow that end
// where the server has refused it with an error that only somebody mends.
func (t *ticket) endRefusedLocked(err error) {
	if t.hold != nil {
		t.hold.endFailure = err
	}
	if u := t.unlock; u != nil && !conn.Transient(err) && !u.isStuck {
		u.isStuck = true
		if u.stuck != nil {
			close(u.stuck)
		}
	}
}

// mostLeaving is how many ends without a ticket may be under way for a name, which bounds what forged messages cost. A
// grant that is not given back ends with its grant lease.
const mostLeaving = 4096

// giveBackLocked ends a grant to a ticket that is not known here any more.
func (s *site) giveBackLocked(text string, token uint64) {
	if lua.TicketClient(text) != s.id || strings.Count(text, ":") != 5 || len(s.leaving) >= mostLeaving {
		s.client.stats.Forged.Add(1)
		return
	}
	s.newEndLocked(text, token, time.Now()).push(true)
}

// endGhostLocked ends what a ticket has under a number that it does not go by any more, when no request that names it
// can run after that. Where it may have adopted what somebody has used, rests, the name stays taken.
func (s *site) endGhostLocked(text string, at time.Time, rests bool) {
	if s.copied {
		return
	}
	d := s.newEndLocked(text, 0, at)
	d.rests = rests
	d.later(at)
}

// newEndLocked notes the end of what has no ticket, and was granted, or will have been, at a time.
func (s *site) newEndLocked(text string, token uint64, at time.Time) *end {
	d := &end{site: s, text: text, token: token, owes: at.Add(lua.TicketLease(text))}
	if s.leaving == nil {
		s.leaving = make(map[*end]struct{})
	}
	s.leaving[d] = struct{}{}
	return d
}

// repeatLocked sends the end of a ticket once more when what was in flight for it cannot run any more.
func (t *ticket) repeatLocked() {
	t.endAgain = false
	t.repeats++
	d := &end{site: t.site, text: t.text, ticket: t, rests: t.restsLocked(), repeat: true}
	if !t.acknowledged {
		d.token = t.used // Else what the ticket has now is another grant, whatever its token.
	}
	d.later(t.ghost)
	t.oweLocked(false)
}

// oweLocked has Close wait for the end of a ticket, or not any more, as it is over or is going to be repeated.
func (t *ticket) oweLocked(owed bool) {
	switch ends := &t.site.client.ends; {
	case owed && !t.owed:
		ends.Count(1)
	case !owed && t.owed:
		ends.Count(-1)
	}
	t.owed = owed
}

// retryLocked sends an end again that was not answered, for as long as that can help.
func (d *end) retryLocked(why error) {
	d.tries++
	if d.until.IsZero() {
		d.until = timers.Later(time.Now().Add(endsTime), d.owes)
		if d.ticket != nil {
			d.until = time.Now().Add(max(endsTime, d.ticket.lease()+conn.AnswerTime))
			if d.ticket.unlock != nil {
				d.until = d.ticket.owesLocked(time.Now())
			}
		}
	}
	if time.Now().After(d.until) {
		if !conn.Answered(why) {
			why = errNoAnswer
		}
		d.overLocked(conn.Advise(why))
		return
	}
	d.later(time.Now().Add(retry.Backoff(d.tries - 1)))
}

// overLocked notes that an end is sent no more, and why it was not confirmed, if it was given up.
func (d *end) overLocked(why error) {
	if d.ticket == nil {
		d.unended = why
		delete(d.site.leaving, d)
		return
	}
	d.ticket.refused, d.ticket.unended = unconfirmed(why), why
	d.site.forgetLocked(d.ticket)
}

// later sends an end at a time.
func (d *end) later(at time.Time) {
	c := d.site.client
	c.ends.Count(1)
	d.entry.Target = timers.Func(func(now time.Time) {
		if now.Before(at) {
			c.servers.Timers.Before(&d.entry, at)
			return
		}
		d.push(true)
		c.ends.Count(-1)
	})
	c.servers.Timers.Before(&d.entry, at)
}
