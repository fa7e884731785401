// Package rowtest has what LockRow must do on every database.
package rowtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/lease"
)

// patience is far more than anything here takes.
const patience = time.Minute

// A Database is one that LockRow works on.
type Database struct {
	// Is says whose SQL it speaks.
	Is sqllock.Database
	// Open makes an empty database, which ends with the test.
	Open func(t *testing.T) *sql.DB
	// Abort: a statement that fails aborts its transaction.
	Abort bool
	// Limits is a query for the limits of the session, as a text.
	Limits string
	// Waiting is a query for how many calls wait for a row.
	Waiting string
	// Second is the shortest time that the database can wait for.
	Second time.Duration
}

// fixture is a database with accounts.
type fixture struct {
	Database
	*testing.T
	db     *sql.DB
	limits string // of a session, as they were
}

func (d Database) fill(t *testing.T) fixture {
	f := fixture{Database: d, T: t, db: d.Open(t)}
	f.limits = f.text(f.db, d.Limits)
	f.exec("CREATE TABLE accounts (id int PRIMARY KEY, owner varchar(40), cents int NOT NULL)")
	f.exec("INSERT INTO accounts VALUES (1, 'ada', 100), (2, 'ben', 200), (3, 'ada', 300)")
	return f
}

func (f fixture) exec(query string) {
	f.Helper()
	_, err := f.db.ExecContext(f.Context(), query)
	require.NoError(f, err, query)
}

func (f fixture) begin() *sql.Tx {
	f.Helper()
	tx, err := f.db.BeginTx(f.Context(), nil)
	require.NoError(f, err)
	f.Cleanup(func() { _ = tx.Rollback() }) // Most have ended by then.
	return tx
}

// row is an account.
func (f fixture) row(id int) sqllock.Row {
	return sqllock.Row{Database: f.Is, Table: "accounts", Key: map[string]any{"id": id}}
}

// held is a transaction that has an account locked.
func (f fixture) held(id int) *sql.Tx {
	f.Helper()
	tx := f.begin()
	require.NoError(f, sqllock.LockRow(f.Context(), tx, f.row(id)))
	return tx
}

func (f fixture) text(q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, query string,
) (found string) {
	f.Helper()
	require.NoError(f, q.QueryRowContext(f.Context(), query).Scan(&found))
	return found
}

// waiting returns when n calls wait for a row.
func (f fixture) waiting(n int) {
	f.Helper()
	limit := time.Now().Add(patience)
	for f.text(f.db, f.Waiting) != fmt.Sprint(n) {
		require.True(f, time.Now().Before(limit), "not %d calls wait", n)
		time.Sleep(10 * time.Millisecond) // The database tells of no change.
	}
}

// goesOn requires that a transaction can write and commit, that what it wrote before is there, and no limit is left.
func (f fixture) goesOn(tx *sql.Tx) {
	f.Helper()
	require.Equal(f, f.limits, f.text(tx, f.Limits))
	_, err := tx.ExecContext(f.Context(), "INSERT INTO accounts VALUES (8, 'after', 0)")
	require.NoError(f, err)
	require.NoError(f, tx.Commit())
	require.Equal(f, "2", f.text(f.db, "SELECT COUNT(*) FROM accounts WHERE id IN (7, 8)"))
}

// refuses requires that a transaction is aborted, and that it goes on from a savepoint.
func (f fixture) refuses(tx *sql.Tx) {
	f.Helper()
	_, err := tx.ExecContext(f.Context(), "INSERT INTO accounts VALUES (8, 'after', 0)")
	require.Error(f, err)
	_, err = tx.ExecContext(f.Context(), "ROLLBACK TO SAVEPOINT here")
	require.NoError(f, err)
	f.goesOn(tx)
}

// wrote is a transaction that has written something, and a savepoint after that.
func (f fixture) wrote() *sql.Tx {
	f.Helper()
	tx := f.begin()
	for _, query := range []string{"INSERT INTO accounts VALUES (7, 'before', 0)", "SAVEPOINT here"} {
		_, err := tx.ExecContext(f.Context(), query)
		require.NoError(f, err)
	}
	return tx
}

// Run runs all.
func (d Database) Run(t *testing.T) {
	for name, run := range map[string]func(fixture){
		"a row is locked until the transaction ends":     untilTheEnd,
		"what is read is what others have committed":     readsWhatIsThere,
		"no write is lost":                               noWriteIsLost,
		"a key that is none":                             notOneRow,
		"the first that nobody has locked":               firstFree,
		"failures and their transactions":                states,
		"a wait has an end":                              bounded,
		"a context that ends":                            contextEnds,
		"a deadlock":                                     deadlock,
		"names and values are never taken for SQL":       quoted,
		"what cannot be meant is refused before it runs": refused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(d.fill(t))
		})
	}
}

func untilTheEnd(f fixture) {
	first := f.held(1)
	try := f.row(1)
	try.NoWait = true
	err := sqllock.LockRow(f.Context(), f.begin(), try)
	require.ErrorIs(f, err, lease.ErrBusy)
	require.ErrorContains(f, err, `sqllock: lock row "accounts[id=1]": busy`)
	require.NoError(f, sqllock.LockRow(f.Context(), f.begin(), f.row(2)), "another row")
	require.NoError(f, first.Commit())
	require.NoError(f, sqllock.LockRow(f.Context(), f.begin(), try))
}

func readsWhatIsThere(f fixture) {
	first, second := f.held(1), f.begin()
	r := f.row(1)
	r.Columns = []string{"cents", "owner"}
	var cents int
	var owner string
	done := make(chan error, 1)
	go func() { done <- sqllock.LockRow(f.Context(), second, r, &cents, &owner) }()
	f.waiting(1)
	_, err := first.ExecContext(f.Context(), "UPDATE accounts SET cents = 17 WHERE id = 1")
	require.NoError(f, err)
	require.NoError(f, first.Commit())
	require.NoError(f, <-done)
	require.Equal(f, 17, cents)
	require.Equal(f, "ada", owner)

	// What cannot be read is locked all the same.
	third := f.begin()
	r = f.row(2)
	r.Columns, r.MaxWait = []string{"owner"}, f.Second
	require.ErrorContains(f, sqllock.LockRow(f.Context(), third, r, &cents), "it is locked, but cannot be read")
	require.Equal(f, f.limits, f.text(third, f.Limits))
	r = f.row(2)
	r.NoWait = true
	require.ErrorIs(f, sqllock.LockRow(f.Context(), f.begin(), r), lease.ErrBusy)
}

func noWriteIsLost(f fixture) {
	const clients, each = 8, 10
	done := make(chan error, clients)
	for range clients {
		go func() {
			done <- func() error {
				for range each {
					if err := f.add(); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		require.NoError(f, <-done)
	}
	require.Equal(f, fmt.Sprint(100+clients*each), f.text(f.db, "SELECT cents FROM accounts WHERE id = 1"))
}

// add adds a cent, which it reads and then writes.
func (f fixture) add() error {
	tx, err := f.db.BeginTx(f.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // It is committed, or nobody misses it.
	r := f.row(1)
	r.Columns = []string{"cents"}
	var cents int
	if err := sqllock.LockRow(f.Context(), tx, r, &cents); err != nil {
		return err
	}
	if _, err := tx.ExecContext(f.Context(), fmt.Sprintf("UPDATE accounts SET cents = %d WHERE id = 1", cents+1)); err != nil {
		return err
	}
	return tx.Commit()
}

func notOneRow(f fixture) {
	tx := f.wrote()
	err := sqllock.LockRow(f.Context(), tx, f.row(99))
	require.ErrorIs(f, err, sql.ErrNoRows)
	require.ErrorContains(f, err, `lock row "accounts[id=99]": there is no such row`)
	r := f.row(1)
	r.Key = map[string]any{"owner": "ada"}
	require.ErrorIs(f, sqllock.LockRow(f.Context(), tx, r), lease.ErrInvalid)
	r.Key["cents"] = 300
	require.NoError(f, sqllock.LockRow(f.Context(), tx, r))
	f.goesOn(tx)
}

func firstFree(f fixture) {
	r := sqllock.Row{
		Database: f.Is, Table: "accounts", Key: map[string]any{"owner": "ada"},
		Columns: []string{"id"}, SkipLocked: true, OrderBy: []string{"cents"}, MaxWait: f.Second,
	}
	f.exec("CREATE INDEX by_owner ON accounts (owner, cents)")
	var first, second, third int
	a, b, c := f.begin(), f.begin(), f.wrote()
	require.NoError(f, sqllock.LockRow(f.Context(), a, r, &first))
	require.NoError(f, sqllock.LockRow(f.Context(), b, r, &second))
	require.Equal(f, []int{1, 3}, []int{first, second})
	require.ErrorIs(f, sqllock.LockRow(f.Context(), c, r, &third), lease.ErrBusy)
	r.Key["owner"] = "eve"
	require.ErrorIs(f, sqllock.LockRow(f.Context(), c, r, &third), sql.ErrNoRows)
	f.goesOn(c)
}

// states is the table in the documentation, except deadlocks and contexts.
func states(f fixture) {
	f.held(1)
	abort := func(f fixture, tx *sql.Tx) {
		if f.Abort {
			f.refuses(tx)
		} else {
			f.goesOn(tx)
		}
	}
	for name, at := range map[string]struct {
		row   func(r *sqllock.Row)
		is    error
		state func(f fixture, tx *sql.Tx)
	}{
		"busy, NoWait":     {func(r *sqllock.Row) { r.NoWait = true }, lease.ErrBusy, abort},
		"busy, SkipLocked": {func(r *sqllock.Row) { r.SkipLocked = true }, lease.ErrBusy, fixture.goesOn},
		"the wait is over": {func(r *sqllock.Row) { r.MaxWait = f.Second }, lease.ErrWaitTimeout, abort},
		"no such row":      {func(r *sqllock.Row) { r.Key["id"] = 99 }, sql.ErrNoRows, fixture.goesOn},
		"no such column":   {func(r *sqllock.Row) { r.Key = map[string]any{"x": 1} }, nil, abort},
		"invalid":          {func(r *sqllock.Row) { r.Key = nil }, lease.ErrInvalid, fixture.goesOn},
	} {
		f.T.Run(name, func(t *testing.T) {
			f := fixture{f.Database, t, f.db, f.limits}
			tx, r := f.wrote(), f.row(1)
			at.row(&r)
			err := sqllock.LockRow(f.Context(), tx, r)
			require.Error(f, err)
			require.NotErrorIs(f, err, lease.ErrUnavailable, "the database has answered")
			if at.is != nil {
				require.ErrorIs(f, err, at.is)
			}
			at.state(f, tx)
			f.exec("DELETE FROM accounts WHERE id IN (7, 8)")
		})
	}
}

func bounded(f fixture) {
	first, next, third := f.held(1), f.begin(), f.begin()
	took, gaveUp := make(chan error, 1), make(chan error, 1)
	go func() { took <- sqllock.LockRow(f.Context(), next, f.row(1)) }()
	f.waiting(1)
	r := f.row(1)
	r.MaxWait = max(2*time.Second, f.Second)
	go func() { gaveUp <- sqllock.LockRow(f.Context(), third, r) }()
	// It is not waited for anew when the row goes to another.
	handOn := time.AfterFunc(r.MaxWait*9/10, func() { _ = first.Rollback() })
	defer handOn.Stop()
	err := <-gaveUp
	var wait *lease.WaitError
	require.ErrorAs(f, err, &wait)
	require.ErrorIs(f, err, lease.ErrWaitTimeout)
	require.ErrorIs(f, err, context.DeadlineExceeded)
	require.GreaterOrEqual(f, wait.Waited, r.MaxWait)
	require.Less(f, wait.Waited, r.MaxWait*9/5)
	require.Error(f, wait.Last)
	require.NoError(f, <-took)

	// A limit that was not reached is set back, too.
	require.NoError(f, next.Commit())
	tx := f.begin()
	r.MaxWait = patience
	require.NoError(f, sqllock.LockRow(f.Context(), tx, r))
	require.Equal(f, f.limits, f.text(tx, f.Limits))
}

func contextEnds(f fixture) {
	f.held(1)
	tx := f.wrote()
	ctx, leave := context.WithCancelCause(f.Context())
	done := make(chan error, 1)
	go func() { done <- sqllock.LockRow(ctx, tx, f.row(1)) }()
	f.waiting(1)
	because := errors.New("no longer wanted")
	leave(because)
	err := <-done
	var wait *lease.WaitError
	require.ErrorAs(f, err, &wait)
	require.ErrorIs(f, err, context.Canceled)
	require.NotErrorIs(f, err, lease.ErrUnavailable, "the row is locked")
	require.ErrorIs(f, err, because)
	_, err = tx.ExecContext(f.Context(), "INSERT INTO accounts VALUES (8, 'after', 0)")
	require.Error(f, err, "its connection is closed")

	// One that has ended before is told so too.
	err = sqllock.LockRow(ctx, f.begin(), f.row(2))
	require.ErrorAs(f, err, &wait)
	require.ErrorIs(f, err, because)
}

func deadlock(f fixture) {
	a, b := f.wrote(), f.held(2)
	require.NoError(f, sqllock.LockRow(f.Context(), a, f.row(1)))
	other := make(chan error, 1)
	go func() { other <- sqllock.LockRow(f.Context(), b, f.row(1)) }()
	f.waiting(1)
	ends := make(chan error, 1)
	go func() { ends <- sqllock.LockRow(f.Context(), a, f.row(2)) }()
	// Which of the two has to give way is the database's choice. The other gets its lock with that, or with the rollback.
	for range 2 {
		select {
		case err := <-ends:
			if err == nil {
				require.NoError(f, a.Rollback())
				continue
			}
			f.gaveWay(err, a)
			require.NoError(f, a.Rollback())
		case err := <-other:
			if err == nil {
				require.NoError(f, b.Rollback())
				continue
			}
			f.gaveWay(err, b)
			require.NoError(f, b.Rollback())
		}
	}
}

// gaveWay requires that an error is a deadlock's, and nothing is left of its transaction.
func (f fixture) gaveWay(err error, tx *sql.Tx) {
	f.Helper()
	require.ErrorIs(f, err, lease.ErrDeadlock)
	require.ErrorContains(f, err, "deadlock with other transactions")
	if f.Abort {
		_, err := tx.ExecContext(f.Context(), "SELECT 1")
		require.Error(f, err)
		return
	}
	require.Equal(f, "0", f.text(tx, "SELECT COUNT(*) FROM accounts WHERE id = 7"), "it is rolled back")
}

func quoted(f fixture) {
	const table, column = "Odd `\"; DROP TABLE accounts; --", "select \"`a` OR 1=1"
	name := func(s string) string {
		if f.Is == sqllock.Postgres {
			return `"Odd ` + "`" + `""; DROP TABLE accounts; --"`
		}
		return "`Odd ``\"; DROP TABLE accounts; --`"
	}(table)
	key := map[bool]string{true: `"select ""` + "`a`" + ` OR 1=1"`, false: "`select \"``a`` OR 1=1`"}[f.Is == sqllock.Postgres]
	f.exec(fmt.Sprintf("CREATE TABLE %s (%s varchar(40) PRIMARY KEY)", name, key))
	f.exec(fmt.Sprintf("INSERT INTO %s VALUES ('it''s')", name))
	tx := f.wrote()
	r := sqllock.Row{Database: f.Is, Table: table, Key: map[string]any{column: "it's"}, Columns: []string{column}, OrderBy: []string{column}}
	var got string
	require.NoError(f, sqllock.LockRow(f.Context(), tx, r, &got))
	require.Equal(f, "it's", got)
	r.Key[column] = "' OR '1'='1"
	require.ErrorIs(f, sqllock.LockRow(f.Context(), tx, r, &got), sql.ErrNoRows)
	f.goesOn(tx)
}

func refused(f fixture) {
	tx := f.wrote()
	for _, wrong := range []struct {
		says   string
		change func(r *sqllock.Row)
	}{
		{"without a Key", func(r *sqllock.Row) { r.Key = nil }},
		{`"" is no name`, func(r *sqllock.Row) { r.Table = "shop." }},
		{`"a\x00b" is no name`, func(r *sqllock.Row) { r.Table = "a\x00b" }},
		{`"\xff" is no name`, func(r *sqllock.Row) { r.Key = map[string]any{"\xff": 1} }},
		{"nothing equals NULL", func(r *sqllock.Row) { r.Key["id"] = nil }},
		{"1 Columns for 0 destinations", func(r *sqllock.Row) { r.Columns = []string{"id"} }},
		{"NoWait and SkipLocked", func(r *sqllock.Row) { r.NoWait, r.SkipLocked = true, true }},
		{"MaxWait: -1ns must be", func(r *sqllock.Row) { r.MaxWait = -1 }},
		{"MaxWait: 1µs must be", func(r *sqllock.Row) { r.MaxWait = time.Microsecond }},
		{"Database 7", func(r *sqllock.Row) { r.Database = 7 }},
	} {
		r := f.row(1)
		wrong.change(&r)
		err := sqllock.LockRow(f.Context(), tx, r)
		require.ErrorIs(f, err, lease.ErrInvalid)
		require.ErrorContains(f, err, wrong.says)
	}
	require.ErrorIs(f, sqllock.LockRow(f.Context(), nil, f.row(1)), lease.ErrInvalid)
	var none context.Context
	require.Panics(f, func() { _ = sqllock.LockRow(none, tx, f.row(1)) })
	f.goesOn(tx)
}
