package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/internal/calls"
)

const (
	// listenTime is how long the listener hears nothing before it asks whether anybody is there.
	listenTime = 2 * time.Second
	// answerTime is how long it waits for that.
	answerTime = time.Second
)

// A listener hears the client's channel, on a connection of its own, from the first wait until Close.
type listener struct {
	hearing bool          // what is sent arrives; the client's lock guards it
	changed chan struct{} // closed when that changes; the client's lock guards it
	strays  chan message  // grants to nobody, until they are given back
}

// mostStrays is how many grants to nobody are given back one after the other. What more is heard was not sent by this
// library, or ends with its grant lease.
const mostStrays = 64

// hears reports whether grants are told, and returns what is closed when that may change. The first call begins to
// listen.
func (c *Client) hears() (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ear == nil {
		strays := make(chan message, mostStrays)
		c.ear = &listener{changed: make(chan struct{}), strays: strays}
		c.work.Add(2) // A call is at work.
		go func() {
			defer c.work.Done()
			defer close(strays)
			c.listenAlways()
		}()
		go func() {
			defer c.work.Done()
			for m := range strays {
				c.giveBack(m)
			}
		}()
	}
	return c.ear.hearing, c.ear.changed
}

// hearing notes whether grants are told. The waiters look at once: something may have been missed.
func (c *Client) hearing(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ear.hearing == now {
		return
	}
	c.ear.hearing = now
	close(c.ear.changed)
	c.ear.changed = make(chan struct{})
}

// listenAlways listens until Close, or until it turns out that it is a pooler that it would listen to.
func (c *Client) listenAlways() {
	for pause := 50 * time.Millisecond; c.life.Err() == nil; pause = min(2*pause, 5*time.Second) {
		pooled, heard := c.listen()
		c.hearing(false)
		if pooled {
			return
		}
		if heard {
			pause = 50 * time.Millisecond
		}
		_ = calls.Rest(c.life, pause/2+rand.N(pause))
	}
}

// listen listens on one connection until that ends. It reports whether it is a pooler's, and whether it could hear.
func (c *Client) listen() (pooled, heard bool) {
	ctx, cancel := context.WithTimeout(c.life, attemptTime)
	defer cancel()
	conn, err := c.dialDirect(ctx)
	if err != nil {
		return false, false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(c.last, partTime)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	// Close waits for these, as for all statements that a pooler may pass on; see moved.
	first, done := context.WithTimeout(c.last, attemptTime)
	defer done()
	var pid uint32
	if err := conn.QueryRow(first, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return false, false
	}
	// A pooler has process ids of its own, as far as it tells any.
	if pid != conn.PgConn().PID() && !c.opts.SessionPooling {
		return true, false
	}
	if _, err := conn.Exec(first, "LISTEN "+c.id); err != nil {
		return false, false
	}
	c.hearing(true)
	for c.life.Err() == nil {
		limit, cancel := context.WithTimeout(c.life, listenTime)
		n, err := conn.WaitForNotification(limit)
		cancel()
		switch {
		case err == nil:
			c.told(n.Payload, time.Now())
		case conn.IsClosed():
			return false, true
		default:
			limit, cancel := context.WithTimeout(c.life, answerTime)
			err := conn.Ping(limit)
			cancel()
			if err != nil {
				return false, true
			}
		}
	}
	return false, true
}

// dialDirect makes a connection by the direct way.
func (c *Client) dialDirect(ctx context.Context) (*pgx.Conn, error) {
	config := c.opts.Direct.Copy()
	if before := c.opts.Config.BeforeConnect; before != nil {
		if err := before(ctx, config); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config)
}

// A message is what a notification says: "grant" or "forced", ticket, token, the server's time and the end of the
// grant in µs; the name of the lock comes last.
type message struct {
	what, ticket string
	grant
}

func parse(payload string, heard time.Time) (m message, ok bool) {
	fields := strings.SplitN(payload, " ", 6)
	if len(fields) < 6 {
		return m, false
	}
	m = message{what: fields[0], ticket: fields[1], grant: grant{heard: heard}}
	for i, number := range []*int64{&m.token, &m.at, &m.until} {
		var err error
		if *number, err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
			return m, false
		}
	}
	return m, m.what == "grant" || m.what == "forced"
}

// told takes a message to the ticket that it is about.
func (c *Client) told(payload string, heard time.Time) {
	m, ok := parse(payload, heard)
	if !ok {
		return // Whoever may notify may say anything.
	}
	c.mu.Lock()
	t := c.tickets[m.ticket]
	var h *rowHold
	if t != nil {
		h = t.hold
	}
	c.mu.Unlock()
	switch {
	case m.what == "forced":
		if h != nil && h.token == m.token {
			h.doubt()
		}
	case t == nil:
		// Its call has left. If what it had asked came late to the server, nobody else knows of the grant.
		select {
		case c.ear.strays <- m: // Only the listener sends.
		default:
		}
	case h == nil:
		select {
		case <-t.granted: // One that was not taken is older.
		default:
		}
		t.granted <- m.grant // Only the listener sends.
	}
}

// giveBack ends what the client holds by a ticket that it does not know any more. A hold of another client is none of
// its, whoever says so: anybody who may connect may notify.
func (c *Client) giveBack(m message) {
	limit, cancel := context.WithTimeout(c.last, attemptTime)
	defer cancel()
	var name string
	var granted bool
	err := c.pool.QueryRow(limit, `SELECT t.name, ended.o_granted FROM headwaiter_ticket t,
		LATERAL headwaiter_end(t.name, t.ticket, t.token, $4, false) ended
		WHERE t.ticket = $1 AND t.token = $2 AND t.client = $3`, m.ticket, m.token, c.id, c.opts.GrantLease).Scan(&name, &granted)
	if err == nil && granted {
		c.lookAfter(name)
	}
}
