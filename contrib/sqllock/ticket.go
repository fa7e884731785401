package sqllock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A ticket is one call for a leased lock, from its first ask until its end has been acknowledged.
type ticket struct {
	client *Client
	lock   *Leased
	id     string
	begun  time.Time

	// Of the call alone.
	arrival *int64 // its place in the order, once it has one
	place   int
	grant   *grant // what was heard last
	seen    answer // the newest of them, by which the server's time is told

	known  bool            // the server may have it
	unsure bool            // a request was not answered, and may run yet
	asking <-chan struct{} // closed when the last request of the call is answered
	late   error           // what that was answered; read it then

	granted chan grant // has room for one: a grant that nobody has taken yet
	hold    *rowHold   // the client's lock guards it
}

// A grant is what a notification tells.
type grant struct {
	token     int64
	at, until int64     // by the server's clock, in µs
	heard     time.Time // here
}

// An answer is what an ask comes back with.
type answer struct {
	token int64 // 0 if it does not hold
	place int   // 1 for the first in the queue, at most 20
	now   int64 // by the server's clock, in µs
	lasts time.Duration
	sent  time.Time // here, so that now is not before it
	slept time.Duration
}

// newTicket makes a ticket that hears of its grants.
func (c *Client) newTicket(m *Leased) *ticket {
	t := &ticket{
		client: c, lock: m, id: strings.ToLower(rand.Text()), begun: time.Now(), place: -1,
		granted: make(chan grant, 1),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets[t.id] = t
	return t
}

// ask asks once. What ends ctx does not end the request, since nobody could tell then when it has run: the call leaves,
// and the end of its ticket follows the answer.
func (t *ticket) ask(ctx context.Context, wait bool) (answer, error) {
	var a answer
	var arrival *int64
	var err error
	done, at := make(chan struct{}), t.arrival
	t.client.work.Add(1) // The call is at work.
	go func() {
		defer t.client.work.Done()
		defer close(done)
		a, arrival, err = t.request(at, wait)
		t.late = err
	}()
	t.known = true
	select {
	case <-done:
	case <-ctx.Done():
		t.asking = done
		return answer{}, ctx.Err()
	case <-t.client.life.Done():
		t.asking = done
		return answer{}, context.Cause(t.client.life)
	}
	switch {
	case err != nil:
		t.unsure = t.unsure || code(err) == ""
	case arrival == nil:
		t.known = t.unsure
	default:
		t.arrival, t.seen = arrival, a
	}
	return a, err
}

// request is one round trip.
func (t *ticket) request(at *int64, wait bool) (a answer, arrival *int64, err error) {
	limit, cancel := context.WithTimeout(t.client.last, attemptTime)
	defer cancel()
	a = answer{sent: time.Now(), slept: keeper.Slept()}
	var token, now, until *int64
	var place *int
	err = t.client.pool.QueryRow(limit, `SELECT * FROM headwaiter_ask($1, $2, $3, $4, $5, $6, $7, $8)`,
		t.lock.line.Name, t.id, t.client.id, at, wait, t.lock.lasts, window, t.client.opts.GrantLease,
	).Scan(&token, &arrival, &place, &now, &until)
	t.client.watch.Request(t.client.last, a.sent, err, passes)
	if err != nil || arrival == nil {
		return a, nil, err
	}
	a.now = *now
	a.lasts = time.Duration(*until-*now) * time.Microsecond
	if token != nil {
		a.token = *token
	} else {
		a.place = *place
	}
	return a, arrival, nil
}

// take makes the hold of a ticket that was granted, unless its time is over already.
func (t *ticket) take(ctx context.Context, a answer) *lease.Lease {
	return t.holds(ctx, a.token, a.sent, until(a.sent, a.lasts, a.slept))
}

// taken is take for what was heard. The server's time of the grant is brought to here by the last answer: the grant
// was not made before that was sent and as much time had passed there, less what clocks run apart.
// Where the machine has slept for long since, that would be taken off the grant: the server is to be asked.
func (t *ticket) taken(ctx context.Context) *lease.Lease {
	if t.grant == nil {
		return nil
	}
	g := *t.grant
	t.grant = nil
	age := time.Duration(g.at-t.seen.now) * time.Microsecond
	from := t.seen.sent.Add(age - age.Abs()/1000)
	if g.heard.Before(from) {
		from = g.heard
	}
	// The first renewal shows that the server has granted it, whoever says so: it is due by the client's own terms.
	lasts := min(time.Duration(g.until-g.at)*time.Microsecond, t.lock.lasts, t.client.opts.GrantLease)
	if keeper.Slept()-t.seen.slept > lasts/3 {
		return nil
	}
	return t.holds(ctx, g.token, from, until(from, lasts, t.seen.slept))
}

// holds makes the hold, from the moment at which it was granted on, or before.
func (t *ticket) holds(ctx context.Context, token int64, from time.Time, u keeper.Until) *lease.Lease {
	c := t.client
	if time.Until(u.Deadline)-(keeper.Slept()-u.Slept) <= 0 {
		return nil // Nobody is told of a hold that is over as it begins.
	}
	h := &rowHold{ticket: t, token: token}
	h.keeper = keeper.New(engine.Hold(ctx, keeper.Terms{
		Name:  t.lock.line.Label(),
		Token: uint64(token), Key: t.lock.line.Key, Waited: time.Since(t.begun), Until: u, Release: h.release, Unlock: h.letGo,
	}))
	h.mu.Lock() // Whoever ends it, Close above all, waits until it has its timer.
	defer h.mu.Unlock()
	if !c.keep(h) {
		return nil
	}
	c.mu.Lock()
	t.hold = h
	c.mu.Unlock()
	h.beginLocked(from, u)
	return (*lease.Lease)(h.keeper)
}

// drop ends a ticket whose call has no hold, in the background.
func (c *Client) drop(t *ticket) {
	if !t.known {
		c.unknow(t)
		return
	}
	c.work.Add(1) // The call is at work, so Close still waits.
	go func() {
		defer c.work.Done()
		if t.asking != nil {
			<-t.asking
			t.unsure = t.unsure || t.late != nil && code(t.late) == ""
		}
		_, _, _ = c.endAlways(t)
	}()
}

// again ends a ticket once more when no request of it can run any longer.
func (c *Client) again(t *ticket) {
	_ = calls.Rest(c.life, attemptTime)
	_, _ = c.endOnce(c.last, t)
}

// unknow forgets a ticket.
func (c *Client) unknow(t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tickets, t.id)
}

// endOnce ends a ticket. It returns what the ticket was. Close ends all at once: then the wait for a connection does not
// take the time of the attempt.
func (c *Client) endOnce(ctx context.Context, t *ticket) (was int, err error) {
	if c.life.Err() != nil {
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	limit, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	var granted bool
	sent := c.watch.Sending()
	err = c.pool.QueryRow(limit, `SELECT * FROM headwaiter_end($1, $2, NULL, $3, false)`,
		t.lock.line.Name, t.id, c.opts.GrantLease).Scan(&was, &granted)
	if ctx.Err() == nil {
		c.watch.Request(c.last, sent, err, passes)
	}
	if err == nil {
		c.unknow(t)
		c.answered()
	}
	if err == nil && t.unsure {
		t.unsure = false
		c.work.Go(func() { c.again(t) }) // Whoever ends it is at work.
	}
	if granted {
		c.lookAfter(t.lock.line.Name)
	}
	return was, err
}

// lookAfter lets the client look once at a name that it has handed on, when that grant is over unless it was claimed:
// the rest of the queue would find out that the next was dead, but later. There is one such look ahead for each name.
func (c *Client) lookAfter(name string) {
	wait := c.opts.GrantLease + 10*time.Millisecond
	c.mu.Lock()
	defer c.mu.Unlock()
	if timer := c.looks[name]; timer != nil {
		timer.Reset(wait)
		return
	}
	c.looks[name] = time.AfterFunc(wait, func() { c.look(name) })
}

func (c *Client) look(name string) {
	c.mu.Lock()
	delete(c.looks, name)
	c.mu.Unlock()
	if c.enter() != nil {
		return
	}
	defer c.work.Done()
	ctx, cancel := context.WithTimeout(c.last, attemptTime)
	defer cancel()
	var granted bool
	err := c.pool.QueryRow(ctx, `SELECT headwaiter_look($1, $2)`, name, c.opts.GrantLease).Scan(&granted)
	if err == nil && granted {
		c.lookAfter(name)
	}
}

// endAlways ends a ticket, for as long as the server may have it. What ends the context of a call does not end it; see
// moved. It is sure of what the ticket was if no attempt before the last may have ended it.
func (c *Client) endAlways(t *ticket) (was int, sure bool, err error) {
	sure = true
	limit, cancel := context.WithTimeout(c.last, max(window, t.lock.lasts)+attemptTime)
	defer cancel()
	defer c.unknow(t)
	for tries := 0; ; tries++ {
		if was, err = c.endOnce(limit, t); err == nil || !passes(err) {
			return was, sure, err
		}
		sure = sure && refused(err)
		if calls.Rest(limit, calls.Backoff(tries)) != nil {
			return 0, false, fmt.Errorf("%w: %w", lease.ErrUnconfirmed, err)
		}
	}
}
