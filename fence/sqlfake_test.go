package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeSQL stands in for Postgres where the test is about the statements and the errors: it understands what the
// guards send, and nothing else. The guards on a real Postgres are tested in contrib/sqllock.
type fakeSQL struct {
	mu      sync.Mutex // guards the fields below
	marks   map[string]*int64
	sent    []string // statements with their arguments
	err     error    // answered to everything
	changed *int64   // answered in place of the rows that a statement changed, if it is set
}

// openFake returns a database with rows that have no mark yet.
func openFake(rows ...string) (*sql.DB, *fakeSQL) {
	f := &fakeSQL{marks: map[string]*int64{}}
	for _, row := range rows {
		f.marks[row] = nil
	}
	return sql.OpenDB(f), f
}

// fake is openFake for a test, which closes it.
func fake(t testing.TB, rows ...string) (*sql.DB, *fakeSQL) {
	db, f := openFake(rows...)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, f
}

func (f *fakeSQL) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }
func (f *fakeSQL) Driver() driver.Driver                        { return nil }

// run answers how many rows were changed, or what was read.
func (f *fakeSQL) run(query string, args []driver.NamedValue) (changed int64, read *fakeRows, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	f.sent = append(f.sent, fmt.Sprint(query, values))
	if f.err != nil {
		return 0, nil, f.err
	}
	last := fmt.Sprint(values[len(values)-1])
	switch {
	case strings.HasPrefix(query, "INSERT INTO "):
		name, token := fmt.Sprint(values[0]), values[1].(int64)
		changed = f.raise(name, token)
	case strings.HasPrefix(query, "UPDATE "):
		if _, ok := f.marks[last]; ok {
			changed = f.raise(last, values[len(values)-2].(int64))
		}
	case strings.HasPrefix(query, "SELECT "):
		mark, ok := f.marks[last]
		return 0, &fakeRows{mark: mark, none: !ok}, nil
	default:
		return 0, nil, errors.New("a statement that no guard sends")
	}
	if f.changed != nil {
		changed = *f.changed
	}
	return changed, nil, nil
}

func (f *fakeSQL) raise(name string, token int64) (changed int64) {
	if old := f.marks[name]; old != nil && *old > token {
		return 0
	}
	f.marks[name] = &token
	return 1
}

type fakeConn struct{ *fakeSQL }

func (c fakeConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	changed, _, err := c.run(query, args)
	return driver.RowsAffected(changed), err
}

func (c fakeConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	_, rows, err := c.run(query, args)
	return rows, err
}

func (c fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c fakeConn) Begin() (driver.Tx, error)           { return fakeTx{}, nil }
func (c fakeConn) Close() error                        { return nil }

type fakeTx struct{}

func (fakeTx) Commit() error   { return nil }
func (fakeTx) Rollback() error { return nil }

// fakeRows is one row with one column, or none.
type fakeRows struct {
	mark *int64
	none bool
}

func (r *fakeRows) Columns() []string { return []string{"mark"} }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if r.none {
		return io.EOF
	}
	r.none = true
	if dest[0] = nil; r.mark != nil {
		dest[0] = *r.mark
	}
	return nil
}
