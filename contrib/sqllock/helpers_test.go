package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/fence"
)

// levels are the isolation levels that Postgres has.
var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// atEach runs a case at each isolation level, with a database of its own that has the tables of the tests.
func atEach(t *testing.T, run func(t *testing.T, db store)) {
	t.Parallel()
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			run(t, open(t, level))
		})
	}
}

// store is a database whose transactions have an isolation level.
type store struct {
	*sql.DB
	level sql.IsolationLevel
}

func open(t testing.TB, level sql.IsolationLevel) store {
	t.Helper()
	db := store{pgtest.Open(t), level}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	db.exec(t, fence.Schema)
	db.exec(t, `CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, fence bigint)`)
	db.exec(t, `CREATE TABLE entries (at bigserial, list text NOT NULL, token bigint NOT NULL)`)
	return db
}

func (db store) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), query, args...)
	require.NoError(t, err)
}

// one reads a number.
func (db store) one(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

func (db store) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: db.level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // Most have ended by then.
	return tx
}

// transact runs f in a transaction, and again if Postgres says that it came in between others: that is what its
// levels above READ COMMITTED ask for.
func (db store) transact(ctx context.Context, f func(*sql.Tx) error) error {
	for {
		err := db.try(ctx, f)
		if !isSerialization(err) {
			return err
		}
	}
}

func (db store) try(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: db.level})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// isSerialization reports whether err is serialization_failure.
func isSerialization(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "40001"
}

// stale requires that an error is a refusal for these numbers.
func stale(t testing.TB, err error, token, highest uint64) {
	t.Helper()
	var e *fence.StaleError
	require.ErrorAs(t, err, &e)
	require.Equal(t, fence.StaleError{Token: token, Highest: highest}, *e)
}
