package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
)

// An Option sets how a leased lock is held.
type Option func(*Leased)

// WithLease sets for how long a hold lasts unless it is renewed, which the client does at a third of it: how long the
// others wait if the holder dies. The default is [lease.DefaultLease].
func WithLease(d time.Duration) Option { return func(m *Leased) { m.lasts = d } }

// A Leased is the name of a leased lock, as one client sees it: a row with a time. It holds no state, and may be used by
// several goroutines at once.
type Leased struct {
	lock
	lasts time.Duration
}

// NewLeased names a leased lock. Nothing is sent; a name or an option that cannot be used is reported by the first call
// of Lock or TryLock.
func NewLeased(c *Client, name string, opts ...Option) *Leased {
	m := &Leased{newLock(c, "leased", name), lease.DefaultLease}
	for _, o := range opts {
		o(m)
	}
	if m.line.Err == nil && (m.lasts < minLease || m.lasts > lease.MaxLease) {
		m.line.Err = fmt.Errorf("%w: WithLease: a lease of %v must be from %v to 365 days", lease.ErrInvalid, m.lasts, minLease)
	}
	return m
}

const (
	// minLease leaves a renewal the time to be answered by a server that commits to a disk.
	minLease = 50 * time.Millisecond
	// window is how long a call stays in the queue without a look: a dead process is dropped after that.
	window = 15 * time.Second
	// tries is how often a try asks where an answer does not come.
	tries = 3
)

// Lock waits its turn for m and returns the lease on it.
//
// Calls are served in the order in which Postgres saw them, across all clients. If ctx ends first, Lock gives up its
// place, which reaches Postgres a little after it has returned, and returns an error that wraps the context's and tells
// the time waited ([lease.WaitError]). The lease is renewed until it is released or lost. Connections that fail are
// made again until ctx ends; the place stays. With a context that comes from a hold of the same lock by the same client
// it fails at once with [lease.ErrDeadlock].
func (m *Leased) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, true)
	return l, m.line.Failed("lock", err)
}

// TryLock returns the lease on m if nobody holds it and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise: it never overtakes a waiter. It leaves no trace when it fails.
func (m *Leased) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, false)
	return l, m.line.Failed("try lock", err)
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Leased) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// Waiting returns how many calls wait for m, those of clients too that died lately.
func (m *Leased) Waiting(ctx context.Context) (int, error) {
	const query = `SELECT count(*) FROM headwaiter_ticket WHERE name = $1 AND token IS NULL AND until > clock_timestamp()`
	n, err := m.client.count(ctx, query, m.line.Name)
	return n, m.line.Failed("waiting", err)
}

// ForceRelease takes m from whoever holds it, and the next in the queue holds. The holder is told at once where it hears
// notifications, otherwise by its next renewal; until then it may go on together with the next.
//
// A token other than 0 limits this to the hold with that token. It returns what it freed; [lease.ErrNotHeld] if there was
// nothing to free, [lease.ErrOtherToken] if it is held with another token.
func (m *Leased) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	h, err := m.force(ctx, token)
	return h, m.line.Failed("force release", err)
}

// force ends the hold that it has seen, and no later one, however late it is done: a call that gives up may still be on its way.
func (m *Leased) force(ctx context.Context, token uint64) (h lease.Holder, err error) {
	c, was := m.client, 0
	if err := c.enter(); err != nil {
		return h, err
	}
	defer c.work.Done()
	err = c.pool.QueryRow(ctx, `SELECT ticket, client, token FROM headwaiter_ticket WHERE name = $1 AND token IS NOT NULL`, m.line.Name).
		Scan(&h.Ticket, &h.Client, &h.Token)
	if err == nil && token != 0 && token != h.Token {
		return lease.Holder{}, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, h.Token)
	}
	if err == nil {
		err = c.pool.QueryRow(ctx, `SELECT o_was FROM headwaiter_end($1, $2, $3, $4, true)`, m.line.Name, h.Ticket, int64(h.Token), c.opts.GrantLease).Scan(&was)
	}
	if errors.Is(err, pgx.ErrNoRows) || err == nil && was < 2 {
		return lease.Holder{}, lease.ErrNotHeld
	}
	return h, err
}

// acquire is Lock and TryLock. Whatever way it ends without a hold, its ticket ends too.
func (m *Leased) acquire(ctx context.Context, wait bool) (*lease.Lease, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	c := m.client
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.work.Done()
	if begun := time.Now(); c.behindEnds(ctx, m.line.Name) != nil {
		return nil, m.gaveUp(ctx, begun, -1, true, nil)
	}
	return c.watch.Acquire(ctx, m.line.Kind, m.line.Name, func(ctx context.Context) (*lease.Lease, error) {
		t := c.newTicket(m)
		l, err := t.acquire(ctx, wait)
		if err != nil {
			c.drop(t)
		}
		return l, err
	})
}

func (t *ticket) acquire(ctx context.Context, wait bool) (*lease.Lease, error) {
	var last error
	for n, failed := 1, 0; ; n++ {
		asked := time.Now()
		a, err := t.ask(ctx, wait)
		switch {
		case err == nil && a.token != 0:
			if l := t.take(ctx, a); l != nil {
				return l, nil
			}
			continue // It was over before it came.
		case err == nil && !wait:
			return nil, lease.ErrBusy
		case err == nil:
			failed, last = 0, nil
			if err := t.await(ctx, a); err != nil {
				return nil, err
			}
			if l := t.taken(ctx); l != nil {
				return l, nil
			}
			continue
		case ctx.Err() != nil || t.client.life.Err() != nil:
			silent := t.arrival == nil || last != nil || time.Since(asked) > calls.SlowAnswer
			return nil, t.lock.gaveUp(ctx, t.begun, t.place, silent, last)
		case !passes(err):
			return nil, err
		case !wait && n == tries:
			return nil, noAnswer(t.begun, err)
		}
		last = err
		if engine.Rest(ctx, t.client.life, calls.Backoff(failed)) != nil {
			return nil, t.lock.gaveUp(ctx, t.begun, t.place, true, last)
		}
		failed++
	}
}

// await waits until there is something to ask about, or a grant.
func (t *ticket) await(ctx context.Context, a answer) error {
	t.standsAt(ctx, a.place)
	ear, changed := t.client.hears()
	next := a.next()
	if !ear {
		next = min(next, poll(a.place))
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	silent := false // a look was slow, and ctx has ended
	for {
		select {
		case g := <-t.granted:
			t.grant = &g
			return nil
		case <-changed: // Something may have been missed.
			return nil
		case <-ctx.Done():
			return t.lock.gaveUp(ctx, t.begun, t.place, silent, nil)
		case <-t.client.life.Done():
			return t.lock.gaveUp(ctx, t.begun, t.place, false, nil)
		case <-timer.C:
		}
		looked := time.Now()
		if ear || t.moved(ctx, &a.place) || time.Since(a.sent) >= a.next() {
			return nil
		}
		silent = ctx.Err() != nil && time.Since(looked) > calls.SlowAnswer
		t.standsAt(ctx, a.place)
		timer.Reset(poll(a.place))
	}
}

// standsAt keeps the place, and tells of it.
func (t *ticket) standsAt(ctx context.Context, place int) {
	t.place = place
	engine.Queued(ctx, place)
}

// moved asks whether the ticket waits no longer, and for its place, without taking part in anything. What ends ctx does
// not end the request: the driver would close the connection for that, and send a request to cancel, which ended a
// PgBouncer 1.18.
func (t *ticket) moved(ctx context.Context, place *int) bool {
	const query = `SELECT 1 + (SELECT count(*) FROM (SELECT FROM headwaiter_ticket
			WHERE name = $1 AND token IS NULL AND arrival < $2 LIMIT 19) ahead)
		FROM headwaiter_ticket WHERE ticket = $3 AND token IS NULL`
	c := t.client
	answer, name, arrival, id := make(chan int, 1), t.lock.line.Name, *t.arrival, t.id
	c.work.Add(1) // The call is at work.
	go func() {
		defer c.work.Done()
		limit, cancel := context.WithTimeout(c.last, attemptTime)
		defer cancel()
		place := 0
		_ = c.pool.QueryRow(limit, query, name, arrival, id).Scan(&place) // 0 after an error.
		answer <- place
	}()
	select {
	case now := <-answer:
		if now > 0 {
			*place = now
		}
		return now == 0
	case <-ctx.Done():
	case <-c.life.Done():
	}
	return false
}

// next is when the ticket is to look again by itself: when the lease of the holder is over, the first in the queue
// before the others, and soon enough to be known to live. The second looks after the first, who may be dead.
func (a answer) next() time.Duration {
	jitter := rand.N(50 * time.Millisecond)
	switch {
	case a.place == 1:
		return min(a.lasts+5*time.Millisecond, window/3) + jitter
	case a.place == 2:
		return min(a.lasts+time.Second/2, window/3, time.Second) + 4*jitter
	}
	return window/3 - rand.N(window/10)
}

// poll is how long a ticket waits from one look to the next where nothing is heard: the further from its turn, the
// longer.
func poll(place int) time.Duration {
	step := time.Duration(place) * 5 * time.Millisecond
	return step + rand.N(step)
}
