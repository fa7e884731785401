package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	sqlClean = `SELECT pg_advisory_unlock_all()`

	// cleanTime is how long a connection has to give back what it may have been granted.
	cleanTime = time.Second
)

// errCrowded is why there is no connection that says nothing of the server.
var errCrowded = errors.New("other calls have all connections")

// A Session is the name of a session lock, as one client sees it: an advisory lock of Postgres. It holds no state, and
// may be used by several goroutines at once.
type Session struct {
	lock
	key int64
}

// NewSession names a session lock. Nothing is sent; a name that cannot be used is reported by the first call of Lock or
// TryLock. How long its holds last is up to the client ([Options.SessionLease]), since it is a matter of connections.
func NewSession(c *Client, name string) *Session {
	return &Session{newLock(c, "session", name), Key(name)}
}

// Lock waits its turn for m, on a connection of its own, and returns the lease on it.
//
// Calls are served in the order in which Postgres saw them, which is when they have a connection. If ctx ends first,
// Lock gives up its place and returns an error that wraps the context's ([lease.WaitError]); it returns when
// Postgres has confirmed that, or half a second later. A connection that cannot be made, or is lost in the wait, is made
// again until ctx ends, with a new place. With a context that comes from a hold of the same lock by the same client it
// fails at once with [lease.ErrDeadlock].
func (m *Session) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, false)
	return l, m.line.Failed("lock", err)
}

// TryLock returns the lease on m if nobody holds it and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise. It leaves no trace when it fails.
func (m *Session) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, true)
	return l, m.line.Failed("try lock", err)
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Session) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// Waiting returns how many calls wait for m, those of other programs too.
func (m *Session) Waiting(ctx context.Context) (int, error) {
	const query = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint = ($1::bigint >> 32) & 4294967295 AND objid::bigint = $1::bigint & 4294967295`
	n, err := m.client.count(ctx, query, m.key)
	return n, m.line.Failed("waiting", err)
}

// acquire is Lock and TryLock.
func (m *Session) acquire(ctx context.Context, try bool) (*lease.Lease, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	return m.client.watch.Acquire(ctx, m.line.Kind, m.line.Name, func(ctx context.Context) (*lease.Lease, error) { return m.insist(ctx, try) })
}

// insist attempts until there is a hold, or none can be had.
func (m *Session) insist(ctx context.Context, try bool) (*lease.Lease, error) {
	c := m.client
	wait := &sessionCall{Context: ctx, client: c, done: make(chan struct{})}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.work.Done()
	if !c.keep(wait) {
		return nil, lease.ErrClosed
	}
	defer c.forget(wait)
	defer context.AfterFunc(ctx, wait.close)()

	begun := time.Now()
	if c.behindEnds(wait, m.key) != nil {
		return nil, m.gaveUp(ctx, begun, -1, true, nil)
	}
	for tries := 0; ; tries++ {
		l, err := m.attempt(ctx, wait, begun, try)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, lease.ErrBusy), errors.Is(err, lease.ErrClosed):
			return nil, err
		case wait.Err() != nil:
			return nil, m.gaveUp(ctx, begun, -1, code(err) == "" && !errors.Is(err, errCrowded), nil)
		case tries == 0 && (passes(err) || code(err) == codeNoFunction):
			continue // The connection had been idle, and may have ended long ago; or the functions were made anew.
		case !passes(err):
			return nil, err
		case try:
			return nil, noAnswer(begun, err)
		}
		if calls.Rest(wait, calls.Backoff(tries)) != nil {
			return nil, m.gaveUp(ctx, begun, -1, true, err)
		}
	}
}

// attempt asks once, on one connection, which the hold keeps.
func (m *Session) attempt(ctx context.Context, wait *sessionCall, begun time.Time, try bool) (*lease.Lease, error) {
	c := m.client
	conn, err := c.sessions.Acquire(wait)
	if err != nil {
		c.watch.Request(wait, time.Now(), err, passes)
		if s := c.sessions.Stat(); s.AcquiredConns() == s.MaxConns() {
			err = fmt.Errorf("%w: %w", errCrowded, err)
		}
		return nil, err
	}
	what := verbLock
	if try {
		what = verbTry
	}
	var token int64
	var granted bool
	err = wait.patiently(conn.Conn(), func() (err error) {
		token, granted, err = call(conn.Conn(), what, m.key)
		return err
	})
	if err != nil {
		// Postgres may have granted it all the same: an error does not take a session's locks back.
		stale := conn.Conn().IsClosed() && wait.Err() == nil || code(err) == codeNoFunction
		c.clean(conn)
		if stale {
			c.sessions.Reset() // What happened to this connection may have happened to all that are idle.
		}
		return nil, err
	}
	if !granted {
		conn.Release()
		return nil, lease.ErrBusy
	}
	now, slept := time.Now(), keeper.Slept()
	h := &sessionHold{
		client: c, conn: conn, key: m.key, begun: now,
		// A call that waited for long does not know since when the way to Postgres is silent.
		doubtful: now.Sub(begun) > c.opts.SessionLease/4,
	}
	h.keeper = keeper.New(engine.Hold(ctx, keeper.Terms{
		Name:  m.line.Label(),
		Token: uint64(token), Key: m.line.Key, Waited: now.Sub(begun),
		Until: until(now, c.opts.SessionLease, slept), Release: h.release, Unlock: h.letGo,
	}))
	if !c.keep(h) {
		c.clean(conn)
		return nil, lease.ErrClosed
	}
	fresh.add(h)
	return (*lease.Lease)(h.keeper), nil
}

// clean gives back all that a connection may hold, and the connection. What does not answer is closed, which has the
// same effect as soon as Postgres sees it.
func (c *Client) clean(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(c.last, cleanTime)
	defer cancel()
	var err error
	for range 2 { // The request to cancel the statement before may come late, and hit this one.
		if conn.Conn().IsClosed() {
			break
		}
		sent := c.watch.Sending()
		_, err = conn.Exec(ctx, sqlClean)
		c.watch.Request(c.last, sent, err, passes)
		if code(err) != "57014" {
			break
		}
	}
	if err != nil {
		c.hangUp(conn)
		return
	}
	conn.Release()
	c.answered()
}

// hangUp closes a connection.
func (c *Client) hangUp(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(c.last, leaveTime)
	defer cancel()
	_ = conn.Conn().Close(ctx)
	conn.Release()
}

// settle makes a new connection one for session locks: nothing but its end takes a lock away from it.
func (c *Client) settle(first func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	seconds := int((c.opts.SessionLease + time.Second - 1) / time.Second)
	// A silent client's session ends when it has not answered for more than a lease. What this server does not know
	// is left out.
	settings := fmt.Sprintf(`SELECT pg_backend_pid(), count(set_config(s.name, v.value, false))
		FROM (VALUES ('lock_timeout', '0'), ('statement_timeout', '0'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'),
			('tcp_keepalives_idle', '%d'), ('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '3'),
			('tcp_user_timeout', '%d')) v (name, value)
		JOIN pg_settings s ON s.name = v.name`, seconds, (seconds+3)*1000)
	return func(ctx context.Context, conn *pgx.Conn) error {
		if first != nil {
			if err := first(ctx, conn); err != nil {
				return err
			}
		}
		var pid uint32
		var set int
		if err := conn.QueryRow(ctx, settings).Scan(&pid, &set); err != nil {
			return err
		}
		if pid != conn.PgConn().PID() && !c.opts.SessionPooling {
			return ErrPooled
		}
		// So that one that waits is seen to end, too. Not every system can.
		_, err := conn.Exec(ctx, "SELECT set_config(name, '500', false) FROM pg_settings WHERE name = 'client_connection_check_interval'")
		if err != nil && code(err) == "" {
			return err
		}
		if c.opts.SessionPooling {
			return nil // Not every pooler knows of calls without a statement.
		}
		return lookUp(ctx, conn)
	}
}

// passes reports whether an error will pass by itself, so that the same may be tried again.
func passes(err error) bool {
	if errors.Is(err, ErrPooled) || errors.Is(err, ErrSchema) {
		return false
	}
	switch code := code(err); {
	case code == "":
		var parse *pgconn.ParseConfigError
		return !errors.As(err, &parse) // A connection that is not there, or went.
	case strings.HasPrefix(code, "08"), // connection_exception
		strings.HasPrefix(code, "53"),                                      // insufficient_resources: too many connections, above all
		code == "57P01", code == "57P02", code == "57P03", code == "57P05", // it ends, or starts
		code == "57014",                  // query_canceled: somebody else cancelled it
		code == "25P04",                  // transaction_timeout: one that the user has set
		code == "55P03",                  // lock_not_available: a lock_timeout that the user has set
		code == "40001", code == "40P01": // serialization_failure, deadlock_detected
		return true
	}
	return false
}

// refused reports whether an error says that nothing was done. A connection that ends may have done it before.
func refused(err error) bool {
	code := code(err)
	return code != "" && !strings.HasPrefix(code, "08") && code != "57P01" && code != "57P02"
}
