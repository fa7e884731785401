package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/rowtest"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// counter is a number in a row, which is written in a transaction.
type counter struct {
	store
	id string
	// How a transaction is checked and a write done. Nil: not at all.
	check func(db fence.DB, id string) fence.Guard
	write func(ctx context.Context, db fence.DB, id string, token uint64, n int64) error
}

func (c counter) Show(ctx context.Context, token uint64) error {
	return c.transact(ctx, func(tx *sql.Tx) error {
		if c.check == nil {
			return nil
		}
		return c.check(tx, c.id).Admit(ctx, token)
	})
}

func (c counter) Read(ctx context.Context) (n int64, err error) {
	err = c.QueryRowContext(ctx, "SELECT n FROM counters WHERE id = $1", c.id).Scan(&n)
	return n, err
}

func (c counter) Write(ctx context.Context, token uint64, n int64) error {
	return c.transact(ctx, func(tx *sql.Tx) error { return c.write(ctx, tx, c.id, token, n) })
}

func plainWrite(ctx context.Context, db fence.DB, id string, _ uint64, n int64) error {
	return kit.Err(db.ExecContext(ctx, "UPDATE counters SET n = $1 WHERE id = $2", n, id))
}

// by are the ways to guard a counter.
var by = map[string]counter{
	"row": {
		check: func(db fence.DB, id string) fence.Guard { return row(db, id) },
		write: func(ctx context.Context, db fence.DB, id string, token uint64, n int64) error {
			return row(db, id).Update(ctx, token, "n = $1", n)
		},
	},
	"table of marks": {
		check: func(db fence.DB, id string) fence.Guard { return mark(db, id) },
		write: func(ctx context.Context, db fence.DB, id string, token uint64, n int64) error {
			if err := mark(db, id).Admit(ctx, token); err != nil {
				return err
			}
			return plainWrite(ctx, db, id, token, n)
		},
	},
	"nothing": {write: plainWrite},
}

func row(db fence.DB, id string) fence.Row {
	return fence.Row{DB: db, Table: "counters", Key: map[string]any{"id": id}}
}

func mark(db fence.DB, id string) fence.SQL { return fence.SQL{DB: db, Name: "counter:" + id} }

// counter makes a new one, guarded by one of the ways.
func (db store) counter(t testing.TB, way, id string) counter {
	t.Helper()
	c := by[way]
	c.store, c.id = db, id
	db.exec(t, "INSERT INTO counters (id) VALUES ($1)", id)
	return c
}

// atEachWay runs a case for a counter with each of the guards.
func atEachWay(t *testing.T, run func(t *testing.T, db store, way string, c counter)) {
	atEach(t, func(t *testing.T, db store) {
		for way := range by {
			if way != "nothing" {
				run(t, db, way, db.counter(t, way, way))
			}
		}
	})
}

func TestSQLLosesNothingToAPausedHolder(t *testing.T) {
	atEach(t, func(t *testing.T, db store) {
		s := redistest.Mini(t)
		short := fairlock.New(kit.Dial(t, s), "n", headwaiter.WithMaxHold(300*time.Millisecond)).Lock
		lock := fairlock.New(kit.Dial(t, s), "n").Lock
		for way := range by {
			count, refused := fenced.PausedHolder(t, short, lock, db.counter(t, way, way))
			if way == "nothing" {
				require.NoError(t, refused)
				require.Equal(t, int64(1), count, "without the check nothing was lost: the test shows nothing")
				continue
			}
			require.ErrorIs(t, refused, fence.ErrStale, way)
			require.Equal(t, int64(2), count, way)
		}
	})
}

func TestSQLGoesByTheHighestTokenInAnyOrder(t *testing.T) {
	t.Parallel()
	const rounds = 10_000
	for _, way := range []string{"row", "table of marks"} {
		kit.Parallel(t, way, func(t *testing.T) {
			db := open(t, sql.LevelReadCommitted)
			db.exec(t, "INSERT INTO counters (id) SELECT i FROM generate_series(0, $1::int) i", rounds)
			c := by[way]
			c.store = db
			fenced.Interleavings(t, rounds, 8, func(round int) fenced.Resource {
				c := c
				c.id = fmt.Sprint(round)
				return alone{c}
			})
		})
	}
}

// alone is a counter that only one writes to, one after the other: it needs no transactions, which take time.
type alone struct{ counter }

func (c alone) Write(ctx context.Context, token uint64, n int64) error {
	return c.write(ctx, c.store, c.id, token, n)
}

// entries is a list of tokens in a table, in the order in which they were put in.
type entries struct {
	store
	check func(ctx context.Context, tx *sql.Tx, token uint64) error
}

func (e entries) Write(ctx context.Context, token uint64) error {
	return e.transact(ctx, func(tx *sql.Tx) error {
		if err := e.check(ctx, tx, token); err != nil {
			return err
		}
		return kit.Err(tx.ExecContext(ctx, "INSERT INTO entries (list, token) VALUES ('a', $1)", int64(token)))
	})
}

func (e entries) Read(ctx context.Context) (all []uint64, err error) {
	rows, err := e.QueryContext(ctx, "SELECT token FROM entries ORDER BY at")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			return nil, err
		}
		all = append(all, uint64(token))
	}
	return all, rows.Err()
}

func TestSQLKeepsACrowdInOrder(t *testing.T) {
	atEach(t, func(t *testing.T, db store) {
		db.exec(t, "INSERT INTO counters (id) VALUES ('n')")
		for way, check := range map[string]func(context.Context, *sql.Tx, uint64) error{
			"row": func(ctx context.Context, tx *sql.Tx, token uint64) error {
				return row(tx, "n").Update(ctx, token, "n = n + 1") // What follows is under the lock of the row.
			},
			"table of marks": func(ctx context.Context, tx *sql.Tx, token uint64) error {
				return mark(tx, "n").Admit(ctx, token)
			},
		} {
			t.Run(way, func(t *testing.T) {
				db.exec(t, "DELETE FROM entries")
				fenced.Crowd(t, 8, 60, entries{db, check})
			})
		}
		require.Equal(t, db.one(t, "SELECT token FROM headwaiter_fence"), db.one(t, "SELECT max(token) FROM entries"))
	})
}

// waiting waits until n transactions wait for a lock.
func (db store) waiting(t testing.TB, n int64) {
	t.Helper()
	kit.Eventually(t, "a transaction to wait", func() bool {
		return db.one(t, "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.datname = current_database() "+
			"JOIN pg_stat_activity a ON a.pid = l.pid AND a.datid = d.oid WHERE NOT l.granted") == n
	})
}

// Between the check and the end of a transaction nobody gets in, however long it takes: what it writes is one with the
// check.
func TestAnAdmittedTransactionKeepsTheNewerTokenWaiting(t *testing.T) {
	atEachWay(t, func(t *testing.T, db store, way string, c counter) {
		old := db.begin(t)
		require.NoError(t, c.check(old, way).Admit(t.Context(), 1)) // And then it is paused.
		newer := kit.Run(func() error { return c.Show(t.Context(), 2) })
		db.waiting(t, 1)
		require.False(t, newer.Returned())
		require.NoError(t, plainWrite(t.Context(), old, way, 1, 10))
		require.NoError(t, old.Commit())
		require.NoError(t, newer.Err(t))
		n := kit.Got(c.Read(t.Context()))(t)
		require.Equal(t, int64(10), n, "the newer holder reads what the older one wrote")
		stale(t, c.Write(t.Context(), 1, 11), 1, 2)
	})
}

func TestWhatIsRolledBackWasNotSeen(t *testing.T) {
	atEachWay(t, func(t *testing.T, db store, way string, c counter) {
		tx := db.begin(t)
		require.NoError(t, c.check(tx, way).Admit(t.Context(), 9))
		require.NoError(t, tx.Rollback())
		require.NoError(t, c.Write(t.Context(), 8, 80))
		require.NoError(t, c.Write(t.Context(), fence.MaxToken, 81))
		stale(t, c.Write(t.Context(), fence.MaxToken-1, 82), fence.MaxToken-1, fence.MaxToken)
		require.Equal(t, int64(81), db.one(t, "SELECT n FROM counters WHERE id = $1", way))
	})
}

// From REPEATABLE READ on a transaction that began before a newer token was seen fails as any that others have
// overtaken, not as a stale one; when it is begun again, it is refused.
func TestATransactionThatWasOvertakenFailsAsItsLevelHasIt(t *testing.T) {
	atEachWay(t, func(t *testing.T, db store, way string, c counter) {
		require.NoError(t, c.Show(t.Context(), 1))
		tx := db.begin(t)
		require.NoError(t, kit.Err(tx.ExecContext(t.Context(), "SELECT 1 FROM counters")))
		require.NoError(t, c.Show(t.Context(), 9))
		err := c.check(tx, way).Admit(t.Context(), 5)
		if db.level == sql.LevelReadCommitted {
			stale(t, err, 5, 9)
		} else {
			require.True(t, isSerialization(err), "%v", err)
			require.NotErrorIs(t, err, fence.ErrStale)
		}
		require.NoError(t, tx.Rollback())
		stale(t, c.Write(t.Context(), 5, 50), 5, 9)
	})
}

// A paused holder that comes back again and again does no harm to the transactions of the one that holds.
func TestStaleTokensDoNotMakeOthersFail(t *testing.T) {
	atEachWay(t, func(t *testing.T, db store, way string, c counter) {
		require.NoError(t, c.Show(t.Context(), 9))
		tx := db.begin(t)
		require.NoError(t, kit.Err(tx.ExecContext(t.Context(), "SELECT 1 FROM counters")))
		// Without a transaction of its own, so that whatever it did is committed.
		stale(t, c.check(db, way).Admit(t.Context(), 5), 5, 9)
		require.NoError(t, c.check(tx, way).Admit(t.Context(), 9))
		require.NoError(t, tx.Commit())
	})
}

func TestARowIsFoundByItsKeyAlone(t *testing.T) {
	atEach(t, func(t *testing.T, db store) {
		db.exec(t, `CREATE SCHEMA shop`)
		db.exec(t, `CREATE TABLE shop."order lines" (order_id int, line int, n int NOT NULL, token bigint, PRIMARY KEY (order_id, line))`)
		db.exec(t, `INSERT INTO shop."order lines" VALUES (1, 1, 0), (1, 2, 0), (2, 1, 0)`)
		line := func(order, line int) fence.Row {
			return fence.Row{DB: db, Table: `shop."order lines"`, Key: map[string]any{"order_id": order, "line": line}, Column: "token"}
		}
		require.NoError(t, line(1, 2).Update(t.Context(), 5, "n = n + $1 -- and a remark", 7), "a mark that is NULL")
		require.Equal(t, int64(7), db.one(t, `SELECT sum(n) FROM shop."order lines"`))
		require.Equal(t, int64(1), db.one(t, `SELECT count(*) FROM shop."order lines" WHERE token IS NOT NULL`))
		stale(t, line(1, 2).Update(t.Context(), 4, "n = $1", 9), 4, 5)
		require.NoError(t, line(1, 1).Admit(t.Context(), 4), "rows are not apart")

		err := line(3, 1).Update(t.Context(), 5, "n = $1", 9)
		require.ErrorIs(t, err, sql.ErrNoRows)
		require.NotErrorIs(t, err, fence.ErrStale)
		require.Equal(t, int64(7), db.one(t, `SELECT sum(n) FROM shop."order lines"`))

		// Not a key: what was done is done, unless it was in a transaction.
		many := fence.Row{DB: db, Table: `shop."order lines"`, Key: map[string]any{"order_id": 1}, Column: "token"}
		require.ErrorContains(t, many.Update(t.Context(), 6, "n = 0"), "2 rows were changed")
	})
}

func TestAMarkIsOfOneNameAndTable(t *testing.T) {
	atEach(t, func(t *testing.T, db store) {
		db.exec(t, fence.Schema) // It is there already, which is no error.
		db.exec(t, `CREATE TABLE "other marks" (name text PRIMARY KEY, token bigint NOT NULL)`)
		require.NoError(t, fence.SQL{DB: db, Name: "a"}.Admit(t.Context(), 5))
		require.NoError(t, fence.SQL{DB: db, Name: "b"}.Admit(t.Context(), 4))
		require.NoError(t, fence.SQL{DB: db, Name: "a", Table: `"other marks"`}.Admit(t.Context(), 3))
		stale(t, fence.SQL{DB: db, Name: "a"}.Admit(t.Context(), 4), 4, 5)
		require.NoError(t, fence.SQL{DB: db, Name: "a"}.Admit(t.Context(), 5))
		require.Equal(t, int64(2), db.one(t, "SELECT count(*) FROM headwaiter_fence"))
	})
}

// Where check and write are not one transaction, the write may come after a newer holder's.
func TestAWriteApartFromItsCheckComesLateAllTheSame(t *testing.T) {
	t.Parallel()
	db := open(t, sql.LevelReadCommitted)
	c := db.counter(t, "table of marks", "n")
	require.NoError(t, mark(db, "n").Admit(t.Context(), 1)) // Then it is paused, and only then it writes.
	require.NoError(t, c.Write(t.Context(), 2, 20))
	require.NoError(t, plainWrite(t.Context(), db, "n", 1, 10))
	require.Equal(t, int64(10), db.one(t, "SELECT n FROM counters"))
}

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
	config := kit.Got(pgx.ParseConfig(pgtest.URL(t)))(t)
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: kit.Patience}
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	require.NoError(t, kit.Err(db.ExecContext(t.Context(), "CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1)")))
	row := sqllock.Row{Table: "one", Key: map[string]any{"id": 1}}
	first := kit.Got(db.BeginTx(t.Context(), nil))(t)
	require.NoError(t, sqllock.LockRow(t.Context(), first, row))
	second := kit.Got(db.BeginTx(t.Context(), nil))(t)
	ctx := kit.Within(t, 200*time.Millisecond)
	err := sqllock.LockRow(ctx, second, row)
	require.ErrorContains(t, err, "57014", "that shows nothing")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, new(*lease.WaitError))
	require.NoError(t, errors.Join(first.Rollback(), second.Rollback()))
}
