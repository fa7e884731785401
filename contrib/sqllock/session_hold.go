package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A sessionHold is the hold of a session lock, and its connection. The connection is the watch's until the watch has
// ended, then it belongs to whoever ends the hold.
type sessionHold struct {
	client   *Client
	conn     *pgxpool.Conn
	key      int64
	keeper   *keeper.Keeper
	begun    time.Time
	doubtful bool // the way to Postgres may be silent: the watch begins with a question

	mu       sync.Mutex      // guards the fields below
	over     bool            // somebody ends the hold
	watching context.Context // ends when nobody wants to know any more; nil without a watch
	unwatch  context.CancelFunc
	watched  chan struct{} // closed when the watch has ended
}

// begin begins the watch, unless the hold has ended.
func (h *sessionHold) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	h.watching, h.unwatch = context.WithCancel(context.Background())
	h.watched = make(chan struct{})
	go h.watch(h.doubtful)
}

// watch tells the holder when the connection is gone. It reads, which tells at once when the connection is closed, and
// asks for an answer now and then, because a network that swallows everything closes nothing.
func (h *sessionHold) watch(ask bool) {
	defer close(h.watched)
	lasts := h.client.opts.SessionLease
	for {
		if !ask {
			if err := h.listen(lasts / 4); err != nil {
				h.lose(err)
				return
			}
		}
		ask = false
		if h.watching.Err() != nil {
			return
		}
		sent, slept := time.Now(), keeper.Slept()
		err := h.ping()
		h.client.watch.Request(h.client.last, sent, err, passes)
		if err != nil {
			h.lose(err)
			return
		}
		if !h.keeper.Extend(until(sent, lasts, slept)) {
			if cause := context.Cause(h.keeper.Context()); !errors.Is(cause, lease.ErrReleased) {
				h.lose(context.DeadlineExceeded)
			}
			return
		}
	}
}

// listen reads for some time, or until the watch is to end.
func (h *sessionHold) listen(d time.Duration) error {
	pg := h.conn.Conn().PgConn()
	ctx, cancel := context.WithTimeout(h.watching, d)
	defer cancel()
	for ctx.Err() == nil {
		if err := pg.WaitForNotification(ctx); err != nil && pg.IsClosed() {
			return err
		}
	}
	return nil
}

// ping asks Postgres for an answer, until the deadline of the hold. Any answer will do, an error too.
func (h *sessionHold) ping() error {
	ctx, cancel := context.WithDeadline(context.Background(), h.keeper.Deadline())
	defer cancel()
	pg := h.conn.Conn().PgConn()
	err := pg.Exec(ctx, "-- ping").Close()
	var answer *pgconn.PgError
	if errors.As(err, &answer) && !pg.IsClosed() {
		return nil
	}
	return err
}

// lose tells the holder that the session is gone, or silent.
func (h *sessionHold) lose(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		h.keeper.Lose(fmt.Errorf("%w: Postgres does not answer", lease.ErrExpired))
	} else {
		h.keeper.Lose(fmt.Errorf("%w: the session has ended: %w", lease.ErrForgotten, err))
	}
	// What the server may still have of it is in nobody's hand. The holder may never call Release.
	if h.client.enter() != nil {
		return // Close ends it.
	}
	go func() {
		defer h.client.work.Done()
		if h.take() {
			h.client.hangUp(h.conn)
		}
	}()
}

// claim makes the caller the one that ends the hold, unless there is one. The connection is the caller's when the watch
// has ended too, which settle waits for.
func (h *sessionHold) claim() bool {
	h.mu.Lock()
	was, unwatch := h.over, h.unwatch
	h.over = true
	h.mu.Unlock()
	if was {
		return false
	}
	fresh.remove(h)
	if unwatch != nil {
		unwatch()
	}
	return true
}

// settle waits for the end of the watch: for a question that it may have asked, until the deadline of the hold.
func (h *sessionHold) settle() {
	if h.watched != nil { // After claim it does not change.
		<-h.watched
	}
	h.client.forget(h)
}

// take is claim and settle.
func (h *sessionHold) take() bool {
	if !h.claim() {
		return false
	}
	h.settle()
	return true
}

// release is what Release of the lease does, once. It does not wait for longer than the hold would have lasted: then the
// connection is closed, which frees the lock as soon as Postgres sees it.
func (h *sessionHold) release(ctx context.Context) error {
	c := h.client
	if err := c.enter(); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, lease.ErrClosed)
	}
	if !h.claim() {
		c.work.Done()
		return fmt.Errorf("%w: the session has ended", lease.ErrForgotten)
	}
	if ctx.Err() != nil {
		// Nobody can wait for the answer, which is no reason to keep the lock.
		go func() {
			defer c.work.Done()
			h.settle()
			c.clean(h.conn)
		}()
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, calls.WhyEnded(ctx))
	}
	defer c.work.Done()
	limit, cancel := context.WithDeadlineCause(ctx, h.keeper.Deadline(), errNoAnswer)
	defer cancel()
	return h.unlock(limit)
}

// unlock gives the lock back, and the connection.
func (h *sessionHold) unlock(ctx context.Context) error {
	c, conn := h.client, h.conn.Conn()
	stop := context.AfterFunc(ctx, func() { _ = conn.PgConn().Conn().Close() })
	h.settle()
	sent := c.watch.Sending()
	had, _, err := call(conn, verbUnlock, h.key)
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), errNoAnswer) { // Otherwise the caller had no time for an answer.
		c.watch.Request(c.last, sent, err, passes)
	}
	cut := !stop()
	switch {
	case err != nil && ctx.Err() != nil:
		c.hangUp(h.conn)
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, calls.WhyEnded(ctx))
	case sessionEnded(err): // Before the lock was given back, and the watch had not told of it yet.
		c.hangUp(h.conn)
		return fmt.Errorf("%w: the session has ended", lease.ErrForgotten)
	case code(err) == "57014": // The request to cancel the wait came late, and hit this.
		c.clean(h.conn)
		return nil
	case err != nil:
		c.hangUp(h.conn)
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, err)
	case had != 1:
		c.hangUp(h.conn)
		return fmt.Errorf("%w: the session did not have the lock any more", lease.ErrForgotten)
	case cut:
		c.hangUp(h.conn)
		return nil
	}
	h.conn.Release()
	return nil
}

// sessionEnded tells whether a request was not run because its session had ended: the connection was closed here before it
// was sent, or Postgres ends the session in place of an answer.
func sessionEnded(err error) bool {
	var answer *pgconn.PgError
	return errors.Is(err, errClosedConn) || errors.As(err, &answer) && answer.SeverityUnlocalized == "FATAL"
}

// close ends the hold with its client.
func (h *sessionHold) close() {
	h.keeper.Lose(lease.ErrClientClosed)
	if h.take() {
		h.client.clean(h.conn)
	}
}
