package sqllock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// A verb is what a session is asked for: a function of one key, and a number or nothing as its answer.
type verb int

const (
	verbLock verb = iota
	verbTry
	verbUnlock // 1 if it had the lock
)

// statements are the verbs where a pooler may want to understand what it passes on.
var statements = [...]string{
	verbLock:   `SELECT headwaiter_lock($1)`,
	verbTry:    `SELECT headwaiter_try_lock($1)`,
	verbUnlock: `SELECT pg_advisory_unlock($1)::int::bigint`,
}

// A directory is what a connection knows of the functions: their numbers. It also has room for one request, since a
// connection has one at a time.
type directory struct {
	numbers  [len(statements)]uint32
	argument [8]byte
	request  pgproto3.FunctionCall
}

// directoryKey is where a connection has its directory, if it calls by number.
const directoryKey = "headwaiter/sqllock"

// binaryFormat is the format of the argument and the answer.
const binaryFormat = 1

// lookUp finds the functions, which also tells whether they are there.
func lookUp(ctx context.Context, conn *pgx.Conn) error {
	d := &directory{}
	n := &d.numbers
	err := conn.QueryRow(ctx, `SELECT 'headwaiter_lock(bigint)'::regprocedure::oid,
		'headwaiter_try_lock(bigint)'::regprocedure::oid, 'pg_catalog.pg_advisory_unlock(bigint)'::regprocedure::oid`).
		Scan(&n[verbLock], &n[verbTry], &n[verbUnlock])
	if code(err) == codeNoFunction {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	d.request = pgproto3.FunctionCall{
		ArgFormatCodes: []uint16{binaryFormat}, Arguments: [][]byte{d.argument[:]}, ResultFormatCode: binaryFormat,
	}
	conn.PgConn().CustomData()[directoryKey] = d
	return err
}

// call asks a session for something, and waits until it is answered or the connection ends.
//
// It sends the function's number and the key, so Postgres has no statement to bind and to run: a lock and its release
// take a fifth less by that.
func call(conn *pgx.Conn, v verb, key int64) (answer int64, ok bool, err error) {
	pg := conn.PgConn()
	d, is := pg.CustomData()[directoryKey].(*directory)
	if !is {
		var found *int64
		if err := conn.QueryRow(context.Background(), statements[v], key).Scan(&found); err != nil || found == nil {
			return 0, false, err
		}
		return *found, true, nil
	}
	if pg.IsClosed() {
		return 0, false, errClosedConn
	}
	d.request.Function = d.numbers[v]
	binary.BigEndian.PutUint64(d.argument[:], uint64(key))
	front := pg.Frontend()
	front.Send(&d.request)
	if err := front.Flush(); err != nil {
		return 0, false, err
	}
	for {
		// The messages of one answer come together.
		m, received := pg.ReceiveMessage(context.Background())
		if received != nil {
			return 0, false, received
		}
		switch m := m.(type) {
		case *pgproto3.FunctionCallResponse:
			answer, ok = decode(m.Result)
		case *pgproto3.ErrorResponse:
			err = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return answer, ok && err == nil, err
		}
	}
}

// leaveTime is how long a call that is cancelled waits for Postgres to say so, before it cuts the connection.
const leaveTime = 500 * time.Millisecond

// A sessionCall is one call for a session lock. It also is the context of its wait, which ends when the caller's does or
// when the client is closed.
type sessionCall struct {
	context.Context // the caller's
	client          *Client
	done            chan struct{} // closed when the wait is to end

	mu       sync.Mutex    // guards the fields below
	err      error         // why it is to end
	conn     *pgx.Conn     // asked, and not answered yet
	answered chan struct{} // closed when it is, if somebody wants to know
	over     chan struct{} // closed when nobody uses the connection but the call
}

func (w *sessionCall) Done() <-chan struct{} { return w.done }

func (w *sessionCall) Deadline() (time.Time, bool) { return w.Context.Deadline() }

func (w *sessionCall) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// close ends the wait. If the call has asked, it asks Postgres to cancel that, and waits for the answer for as long as
// that may take; then it cuts the connection.
func (w *sessionCall) close() {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	if w.err = calls.WhyEnded(w.Context); w.err == nil {
		w.err = lease.ErrClosed
	}
	close(w.done)
	conn := w.conn
	if conn == nil {
		w.mu.Unlock()
		return
	}
	answered, over := make(chan struct{}), make(chan struct{})
	w.answered, w.over = answered, over
	w.mu.Unlock()

	defer close(over)
	limit, cancel := context.WithTimeout(w.client.last, leaveTime)
	defer cancel()
	_ = conn.PgConn().CancelRequest(limit) // If it does not arrive, the cut does.
	select {
	case <-answered:
	case <-limit.Done():
		_ = conn.PgConn().Conn().Close()
	}
}

// patiently runs a request that may wait, on a connection.
func (w *sessionCall) patiently(conn *pgx.Conn, run func() error) error {
	w.mu.Lock()
	err := w.err
	w.conn = conn
	w.mu.Unlock()
	if err != nil {
		return err
	}
	err = run()
	w.mu.Lock()
	w.conn = nil
	over := w.over
	w.mu.Unlock()
	if over != nil {
		close(w.answered)
		<-over
	}
	return err
}

var errClosedConn = errors.New("the connection is closed")

// decode is the number, or the truth, that Postgres sends in its binary form. Nothing stands for NULL.
func decode(result []byte) (answer int64, ok bool) {
	switch len(result) {
	case 8:
		return int64(binary.BigEndian.Uint64(result)), true
	case 1:
		return int64(result[0]), true
	}
	return 0, false
}
