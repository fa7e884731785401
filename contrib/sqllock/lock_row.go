package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
)

// A Row is a row of the caller's own table, as [LockRow] locks it.
type Row struct {
	// Database says whose SQL it is: Postgres, which is the default, or MySQL.
	Database Database
	// Table is its name as the database keeps it, capitals and all, or "schema.table". Names are quoted.
	Table string
	// Key has the columns that name the row, with their values, which are sent as parameters. Without an index on these
	// columns MySQL locks every row that it looks at.
	Key map[string]any
	// Columns are what is read of the row once it is locked.
	Columns []string

	// NoWait: a row that somebody else has locked is [lease.ErrBusy] at once.
	NoWait bool
	// SkipLocked: the same, and on Postgres the transaction can go on. The Key may name several rows here: the first
	// of them that nobody has locked is taken, by the OrderBy columns, and all of them locked is ErrBusy.
	SkipLocked bool
	OrderBy    []string
	// MaxWait bounds the wait, also that for a table which is being altered, where NoWait and SkipLocked wait too. MySQL
	// counts in whole seconds, so there it is rounded up. The default is what the session has set, and ctx.
	MaxWait time.Duration
}

// A Database is one whose SQL [LockRow] speaks.
type Database int

const (
	Postgres Database = iota
	MySQL             // MariaDB too
)

// dialects are what the databases do not say alike.
var dialects = [...]struct {
	quote       string
	placeholder func(n int) string
	unit        time.Duration // of the limit
	limit       string        // the statement that bounds the next one
	unlimit     string        // the statement that sets what there was before
	lasting     bool          // the limit outlasts a statement that fails
}{
	Postgres: {
		`"`, func(n int) string { return "$" + strconv.Itoa(n) },
		// Of the whole statement: a lock_timeout begins anew with each transaction that is waited for.
		time.Millisecond, `SELECT set_config('headwaiter.statement_timeout', current_setting('statement_timeout'), true), ` +
			`set_config('statement_timeout', '%d', true)`,
		`SELECT set_config('statement_timeout', current_setting('headwaiter.statement_timeout'), true)`, false,
	},
	MySQL: {
		"`", func(int) string { return "?" },
		time.Second, `SET @headwaiter_row = @@SESSION.innodb_lock_wait_timeout, @headwaiter_table = @@SESSION.lock_wait_timeout, ` +
			`SESSION innodb_lock_wait_timeout = %[1]d, SESSION lock_wait_timeout = %[1]d`,
		`SET SESSION innodb_lock_wait_timeout = @headwaiter_row, SESSION lock_wait_timeout = @headwaiter_table`, true,
	},
}

// What databases answer: the SQLSTATE of Postgres, the number of MySQL.
const (
	pgNotAvailable = "55P03" // NOWAIT, or the session's lock_timeout
	pgCanceled     = "57014" // the limit, or somebody
	pgDeadlock     = "40P01"
	myWaitTimeout  = "1205" // also MariaDB's answer to NOWAIT
	myNoWait       = "3572"
	myDeadlock     = "1213"
)

// LockRow locks a row until tx ends: SELECT … FOR UPDATE, in the caller's own transaction, through any driver of
// database/sql that tells the database's code (pgx, lib/pq, go-sql-driver/mysql). It scans the Columns into dest.
//
// It is the database's lock and no more. There is no lease: the lock ends with tx, and nobody else ends it. There is no
// token, and none is needed for what is written in tx itself: it is written under the lock or not at all. For
// everything outside of the database (a file, an API, another database) the lock proves nothing, since the database may
// end the transaction while its client is still at work, and only the next statement tells. Order is the database's:
// roughly by arrival, and a NoWait may come in between.
//
// Without SkipLocked it is an error if the key names more than one row. What Columns read is the row as it is now.
// On MySQL at REPEATABLE READ, its default, a plain SELECT may show an older one.
//
// Errors, and what has become of tx:
//
//	                                        Postgres     MySQL
//	[lease.ErrInvalid], nothing is sent     goes on      goes on
//	[sql.ErrNoRows], no such row            goes on      goes on; the gap may be locked
//	[lease.ErrBusy] with SkipLocked         goes on      goes on
//	[lease.ErrBusy] with NoWait             aborted      goes on
//	[lease.ErrWaitTimeout], a WaitError     aborted      goes on
//	[lease.ErrDeadlock], by the database    aborted      rolled back
//	ctx has ended, a WaitError              is lost      is lost
//	others, of the database                 aborted      mostly goes on
//
// One that is aborted refuses every statement but a rollback, of all or to a savepoint that was set before: SAVEPOINT a,
// LockRow, ROLLBACK TO SAVEPOINT a. It keeps what it has locked until then. One that MySQL has rolled back is none any
// more: what runs in tx from then on is committed at once, so end it. One that is lost went with its connection. MySQL
// does not see that before the row would be its own, and waits on; with a MaxWait that ends. After a deadlock, and
// after SQLSTATE 40001 of Postgres (the row has changed since the transaction began, from REPEATABLE READ on), begin the
// transaction again.
//
// It costs one statement, with a MaxWait three. On MySQL a MaxWait is set for the session and set back after the
// statement; if the context that tx was begun with ends just in between, the pool keeps a connection with that limit.
func LockRow(ctx context.Context, tx *sql.Tx, r Row, dest ...any) error {
	calls.Given(ctx)
	if err := r.lock(ctx, tx, dest); err != nil {
		return fmt.Errorf("sqllock: lock row %q: %w", r.label(), err)
	}
	return nil
}

// label is what errors call the row.
func (r *Row) label() string {
	var b strings.Builder
	for _, c := range slices.Sorted(maps.Keys(r.Key)) {
		fmt.Fprintf(&b, ", %s=%v", c, r.Key[c])
	}
	return names.Label(r.Table + "[" + strings.TrimPrefix(b.String(), ", ") + "]")
}

func (r *Row) lock(ctx context.Context, tx *sql.Tx, dest []any) (err error) {
	from, args, err := r.from(tx, len(dest))
	if err != nil {
		return err
	}
	d, begun, aborted := dialects[r.Database], time.Now(), false
	if r.MaxWait > 0 {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(d.limit, (r.MaxWait+d.unit-1)/d.unit)); err != nil {
			return r.failed(ctx, begun, err, 0)
		}
		defer func() {
			if aborted && !d.lasting {
				return // It goes on from a savepoint, if at all, and that has what there was before.
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			if _, failed := tx.ExecContext(ctx, d.unlimit); failed != nil && err == nil {
				err = failed
			}
		}()
	}
	columns := "1"
	if len(r.Columns) > 0 {
		columns = r.quoted(r.Columns, ", ")
	}
	order, most, policy, limit := "", 2, "", lease.MaxLease
	if len(r.OrderBy) > 0 {
		order = " ORDER BY " + r.quoted(r.OrderBy, ", ")
	}
	switch {
	case r.SkipLocked:
		most, policy, limit = 1, " SKIP LOCKED", 0
	case r.NoWait:
		policy, limit = " NOWAIT", 0
	case r.MaxWait > 0:
		limit = r.MaxWait + d.unit
	}
	rows, err := read(ctx, tx, fmt.Sprintf("SELECT %s %s%s LIMIT %d FOR UPDATE%s", columns, from, order, most, policy), args, dest)
	if rows == 0 && err == nil && r.SkipLocked {
		if rows, err = read(ctx, tx, "SELECT 1 "+from+" LIMIT 1", args, nil); rows > 0 && err == nil {
			return lease.ErrBusy
		}
	}
	switch {
	case err != nil:
		aborted = reason(err) != ""
		return r.failed(ctx, begun, err, limit)
	case rows == 0:
		return fmt.Errorf("there is no such row: %w", sql.ErrNoRows)
	case rows > 1:
		return fmt.Errorf("%w: more than one row is locked: the key must name one", lease.ErrInvalid)
	}
	return nil
}

// read scans the first row, and returns how many there are.
func read(ctx context.Context, tx *sql.Tx, query string, args, dest []any) (n int, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		if n > 0 || len(dest) == 0 {
			continue
		}
		if err := rows.Scan(dest...); err != nil {
			return 0, fmt.Errorf("it is locked, but cannot be read: %w", err)
		}
	}
	return n, rows.Err()
}

// from is the part of the statement that says which row, with its parameters, or why there can be none.
func (r *Row) from(tx *sql.Tx, dest int) (clause string, args []any, err error) {
	switch {
	case tx == nil:
		return "", nil, fmt.Errorf("%w: there is no transaction", lease.ErrInvalid)
	case r.Database != Postgres && r.Database != MySQL:
		return "", nil, fmt.Errorf("%w: Database %d is neither Postgres nor MySQL", lease.ErrInvalid, r.Database)
	case len(r.Key) == 0:
		return "", nil, fmt.Errorf("%w: without a Key that would be every row", lease.ErrInvalid)
	case dest != len(r.Columns):
		return "", nil, fmt.Errorf("%w: %d Columns for %d destinations", lease.ErrInvalid, len(r.Columns), dest)
	case r.NoWait && r.SkipLocked:
		return "", nil, fmt.Errorf("%w: NoWait and SkipLocked: one of them", lease.ErrInvalid)
	case r.MaxWait != 0 && (r.MaxWait < time.Millisecond || r.MaxWait > lease.MaxLease):
		return "", nil, fmt.Errorf("%w: MaxWait: %v must be from 1ms to 365 days, or 0", lease.ErrInvalid, r.MaxWait)
	}
	table, columns := strings.Split(r.Table, "."), slices.Sorted(maps.Keys(r.Key))
	for _, name := range slices.Concat(table, columns, r.Columns, r.OrderBy) {
		if name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return "", nil, fmt.Errorf("%w: %q is no name of a table or column", lease.ErrInvalid, name)
		}
	}
	var where strings.Builder
	for i, c := range columns {
		if r.Key[c] == nil {
			return "", nil, fmt.Errorf("%w: %q is nil, and nothing equals NULL", lease.ErrInvalid, c)
		}
		where.WriteString(" AND " + r.quoted([]string{c}, "") + " = " + dialects[r.Database].placeholder(i+1))
		args = append(args, r.Key[c])
	}
	return "FROM " + r.quoted(table, ".") + " WHERE " + strings.TrimPrefix(where.String(), " AND "), args, nil
}

// quoted are names as the database reads them.
func (r *Row) quoted(names []string, separator string) string {
	q := dialects[r.Database].quote
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = q + strings.ReplaceAll(name, q, q+q) + q
	}
	return strings.Join(all, separator)
}

// failed is the error of a call that the database, or ctx, has ended. most is how long the database lets the statement wait
// for others before it answers.
func (r *Row) failed(ctx context.Context, begun time.Time, err error, most time.Duration) error {
	waited := time.Since(begun)
	code := reason(err)
	if why := calls.WhyEnded(ctx); why != nil && (code == "" || code == pgCanceled) {
		return &lease.WaitError{
			Place: -1, Waited: waited, Last: err, Err: why,
			Unanswered: code == "" && (most == 0 || waited > most+calls.SlowAnswer),
		}
	}
	switch code {
	case pgDeadlock, myDeadlock:
		return rowDeadlock{err}
	case pgNotAvailable, myWaitTimeout, myNoWait:
		if r.NoWait {
			return fmt.Errorf("%w: %w", lease.ErrBusy, err)
		}
	case pgCanceled:
		if r.MaxWait == 0 || waited < r.MaxWait {
			return err
		}
	default:
		return err
	}
	return &lease.WaitError{Place: -1, Waited: waited, Last: err, Err: lease.ErrWaitTimeout}
}

// A rowDeadlock is one that the database has ended by the failure of this call.
type rowDeadlock struct{ err error }

func (e rowDeadlock) Error() string { return "deadlock with other transactions: " + e.err.Error() }

func (e rowDeadlock) Unwrap() []error { return []error{lease.ErrDeadlock, e.err} }

// reason is the code that the database gave an error, by any of the drivers. MySQL's is a field of a type of the
// driver, which is read by its name so that only its users download it.
func reason(err error) string {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		return postgres.SQLState()
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if e := reflect.Indirect(reflect.ValueOf(err)); e.Kind() == reflect.Struct {
			if number := e.FieldByName("Number"); number.IsValid() && number.CanUint() {
				return strconv.FormatUint(number.Uint(), 10)
			}
		}
	}
	return ""
}
