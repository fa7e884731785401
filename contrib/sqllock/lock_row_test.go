package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/rowtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func TestLockRowOnPostgres(t *testing.T) {
	t.Parallel()
	rowtest.Database{
		Is: sqllock.Postgres, Abort: true, Second: 500 * time.Millisecond,
		Open:    func(t *testing.T) *sql.DB { return pgtest.Open(t) },
		Limits:  "SELECT current_setting('statement_timeout') || current_setting('lock_timeout')",
		Waiting: "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
	}.Run(t)
}

// Where the driver ends a statement by a request to the server, the server's answer is what the call gets.
func TestARowWhoseContextEndsIsToldAsThatByAnyDriver(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: kit.Patience}
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1)")
	require.NoError(t, err)
	row := sqllock.Row{Table: "one", Key: map[string]any{"id": 1}}
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sqllock.LockRow(t.Context(), first, row))
	second, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = sqllock.LockRow(ctx, second, row)
	require.ErrorContains(t, err, "57014", "that shows nothing")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, new(*lease.WaitError))
	require.NoError(t, errors.Join(first.Rollback(), second.Rollback()))
}
