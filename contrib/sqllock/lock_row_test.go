package sqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/rowtest"
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
