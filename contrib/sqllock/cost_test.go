package sqllock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// What a call costs does not depend on how many others wait, hold, or have been there since the last vacuum.

// reads is how much of the table a transaction has read: how often from end to end, how often by an index, and how many
// rows by that.
func reads(t *testing.T, tx pgx.Tx) (whole, indexed, rows int) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_xact_user_tables
		WHERE relname = 'headwaiter_ticket'`).Scan(&whole, &indexed, &rows))
	return whole, indexed, rows
}

func begin(t *testing.T, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestNoCallReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	conn := admin(t, schema(t))
	exec(t, conn, `INSERT INTO headwaiter_ticket SELECT 't' || i, 'n' || i, 'c', i, '1h', clock_timestamp() + interval '1h', i, true
		FROM generate_series(1, 5) i`)
	exec(t, conn, "ANALYZE headwaiter_ticket") // Postgres would rather read so small a table.
	tx := begin(t, conn)
	for _, call := range []string{
		"headwaiter_ask('a', 'one', 'c', NULL, true, '10s', '15s', '2s')",
		"headwaiter_ask('a', 'two', 'c', NULL, true, '10s', '15s', '2s')",
		"headwaiter_ask('a', 'two', 'c', 2, true, '10s', '15s', '2s')",
		"headwaiter_ask('a', 'three', 'c', NULL, false, '10s', '15s', '2s')",
		"headwaiter_end('a', 'one', NULL, '2s', false)", "headwaiter_look('a', '2s')",
		"headwaiter_end('a', 'two', NULL, '2s', false)",
	} {
		_, err := tx.Exec(t.Context(), "SELECT "+call)
		require.NoError(t, err, call)
		whole, indexed, _ := reads(t, tx)
		require.Zero(t, whole, call)
		require.Positive(t, indexed, call)
	}
}

func TestAHandOffDoesNotReadTheQueue(t *testing.T) {
	t.Parallel()
	const waiting, most = 2000, 30
	conn := admin(t, schema(t))
	exec(t, conn, `INSERT INTO headwaiter_ticket SELECT 't' || i, 'a', 'c', i, '1h', clock_timestamp() + interval '1h',
		CASE WHEN i = 1 THEN 1 END, i = 1 FROM generate_series(1, $1) i`, waiting)
	exec(t, conn, "ANALYZE headwaiter_ticket")
	tx := begin(t, conn)
	before := 0
	for i := 1; i <= 10; i++ { // Postgres plans the first five times for what is asked, and then for anything.
		var granted bool
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT o_granted FROM headwaiter_end('a', 't' || $1::int, NULL, '1h', false)`, i).Scan(&granted))
		require.True(t, granted)
		_, _, rows := reads(t, tx)
		require.Less(t, rows-before, most, "hand-off %d", i)
		before = rows
	}
	var place int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT o_place FROM headwaiter_ask('a', 't1500', 'c', 1500, true, '1h', '1h', '1h')`).Scan(&place))
	require.Equal(t, 20, place, "the count stops there")
	_, _, rows := reads(t, tx)
	require.Less(t, rows-before, most+20)
}

// The first that lives may be locked by somebody: those who died behind it are taken out, up to the next that lives.
func TestTheDeadAreTakenOutAlsoBehindALockedRow(t *testing.T) {
	t.Parallel()
	url := schema(t)
	conn := admin(t, url)
	exec(t, conn, `INSERT INTO headwaiter_ticket SELECT 't' || i, 'a', 'c', i, '1h',
		clock_timestamp() + CASE WHEN i IN (1, 2, 6) THEN interval '1h' ELSE interval '-1h' END,
		CASE WHEN i = 1 THEN 1 END, i = 1 FROM generate_series(1, 8) i`)
	tx := begin(t, admin(t, url))
	_, err := tx.Exec(t.Context(), "SELECT FROM headwaiter_ticket WHERE ticket = 't2' FOR UPDATE")
	require.NoError(t, err)
	exec(t, conn, "SET statement_timeout = '10s'")
	exec(t, conn, "SELECT headwaiter_end('a', 't1', NULL, '1h', false)")
	rows, err := conn.Query(t.Context(), "SELECT ticket || CASE WHEN token IS NULL THEN '' ELSE ' holds' END FROM headwaiter_ticket ORDER BY arrival")
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"t2", "t6 holds", "t7", "t8"}, left)
}
