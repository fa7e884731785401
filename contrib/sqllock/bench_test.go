package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// What an UPDATE costs with a check and without, on a server that does not wait for the disk: there the check is
// the largest part of it that it can be.
func BenchmarkUpdate(b *testing.B) {
	db := open(b, sql.LevelReadCommitted)
	db.exec(b, "INSERT INTO counters (id) VALUES ('n')")
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, f())
			}
		})
	}
	ctx := b.Context()
	run("unguarded", func() error { return plainWrite(ctx, db, "n", 0, 1) })
	run("Row.Update", func() error { return row(db, "n").Update(ctx, 5, "n = $1", 1) })
	run("Row.Update stale", func() error {
		if row(db, "n").Update(ctx, 4, "n = $1", 1) == nil {
			return errors.New("a stale token was admitted")
		}
		return nil
	})
	run("SQL.Admit", func() error { return mark(db, "n").Admit(ctx, 5) })
	run("transaction unguarded", func() error {
		return db.transact(ctx, func(tx *sql.Tx) error { return plainWrite(ctx, tx, "n", 0, 1) })
	})
	run("transaction with SQL.Admit", func() error {
		return db.transact(ctx, func(tx *sql.Tx) error {
			if err := mark(tx, "n").Admit(ctx, 5); err != nil {
				return err
			}
			return plainWrite(ctx, tx, "n", 0, 1)
		})
	})
}

// cycle takes a lock and gives it back.
type cycle func(ctx context.Context) error

// A rival is one way to lock: what makes a client of it, with connections of its own.
type rival struct {
	name string
	dial func(b *testing.B) cycle
}

// plain is what pg_advisory_lock costs by itself, on a connection that is kept.
func plain(url, lock string) func(*testing.B) cycle {
	return func(b *testing.B) cycle {
		conn := kit.Got(pgx.Connect(b.Context(), url))(b)
		b.Cleanup(func() { _ = conn.Close(context.Background()) })
		return func(ctx context.Context) error {
			if _, err := conn.Exec(ctx, lock, 1); err != nil {
				return err
			}
			return kit.Err(conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", 1))
		}
	}
}

func of(m mutex) cycle {
	return func(ctx context.Context) error {
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
}

// one lets a client have one connection for statements, as a plain lock has.
func one(o *sqllock.Options) { o.Config.MaxConns = 1 }

// A slice is this many cycles of one kind, or sliceEach for each client, before it is another's turn.
const (
	slice     = 128
	sliceEach = 16
)

// compare lets slices of all rivals take turns, so that what else the machine does hits them alike, and reports for each
// the median time of a cycle, and the median of how much longer that is than the first rival's.
func compare(b *testing.B, clients int, rivals []rival) {
	runs, spans := make([][]cycle, len(rivals)), make([][]float64, len(rivals))
	for i, r := range rivals {
		for range clients {
			run := r.dial(b)
			require.NoError(b, run(b.Context()))
			runs[i] = append(runs[i], run)
		}
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(rivals)) {
			spans[i] = append(spans[i], micros(b, runs[i]))
		}
	}
	for i, r := range rivals {
		b.ReportMetric(median(spans[i]), r.name+"-µs")
		if i > 0 {
			ratios := make([]float64, len(spans[i]))
			for n, span := range spans[i] {
				ratios[n] = span / spans[0][n]
			}
			b.ReportMetric(median(ratios), r.name+"-×")
		}
	}
	b.ReportMetric(0, "ns/op") // Of all together: it says nothing.
}

// micros runs a slice of cycles, shared between clients, and returns the µs of each.
func micros(b *testing.B, runs []cycle) float64 {
	each := max(slice/len(runs), sliceEach)
	var all sync.WaitGroup
	begun := time.Now()
	for _, run := range runs {
		all.Go(func() {
			for range each {
				if err := run(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(time.Since(begun).Nanoseconds()) / 1000 / float64(each*len(runs))
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// crowds are how many clients want one lock as fast as they can; one contends with nobody.
var crowds = []int{1, 2, 8, 32}

// BenchmarkSession compares session locks with plain ones: go test -run xxx -bench Session -benchtime 301x.
func BenchmarkSession(b *testing.B) {
	for _, clients := range crowds {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			url := schema(b)
			compare(b, clients, []rival{
				{"plain", plain(url, "SELECT pg_advisory_lock($1)")},
				{"session", func(b *testing.B) cycle { return of(sqllock.NewSession(dial(b, url, one), "a")) }},
				{"token", plain(url, "SELECT headwaiter_lock($1)")},
			})
		})
	}
}

// BenchmarkLeased compares leased locks with plain ones.
func BenchmarkLeased(b *testing.B) {
	for _, clients := range crowds[:3] {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			url := schema(b)
			bouncer := pgtest.Bouncer(b, url)
			compare(b, clients, []rival{
				{"plain", plain(url, "SELECT pg_advisory_lock($1)")},
				{"leased", func(b *testing.B) cycle { return of(sqllock.NewLeased(dial(b, url, one), "a")) }},
				{"polling", func(b *testing.B) cycle { return of(sqllock.NewLeased(dial(b, bouncer, pooled(nil)), "a")) }},
			})
		})
	}
}

// BenchmarkNotify is the floor of a hand-off by a message: two connections notify each other by turns, with nothing else in
// their transactions, while others listen to channels of their own. It grows with those, as Postgres (15, where it was
// measured) wakes all who listen in a database.
func BenchmarkNotify(b *testing.B) {
	for _, listen := range crowds[1:] {
		b.Run(fmt.Sprintf("listen=%d", listen), func(b *testing.B) {
			url := schema(b)
			ctx, stop := context.WithCancel(b.Context())
			var all sync.WaitGroup
			b.Cleanup(all.Wait)
			b.Cleanup(stop)
			conns := make([]*pgx.Conn, listen)
			for i := range conns {
				conn := kit.Got(pgx.Connect(ctx, url))(b)
				b.Cleanup(func() { _ = conn.Close(context.Background()) })
				require.NoError(b, kit.Err(conn.Exec(ctx, fmt.Sprintf("LISTEN c%d", i))))
				if conns[i] = conn; i > 1 {
					all.Go(func() { _, _ = conn.WaitForNotification(ctx) }) // None comes.
				}
			}
			all.Go(func() {
				for {
					if _, err := conns[1].WaitForNotification(ctx); err != nil {
						return
					}
					if _, err := conns[1].Exec(ctx, "SELECT pg_notify('c0', '')"); err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
				}
			})
			for b.Loop() {
				require.NoError(b, kit.Err(conns[0].Exec(ctx, "SELECT pg_notify('c1', '')")))
				require.NoError(b, kit.Err(conns[0].WaitForNotification(ctx)))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/2, "µs/message")
			b.ReportMetric(0, "ns/op")
		})
	}
}

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
	tx := kit.Got(conn.Begin(t.Context()))(t)
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
		require.NoError(t, kit.Err(tx.Exec(t.Context(), "SELECT "+call)), call)
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

// The first that lives may be locked by somebody: the dead after it are taken out, up to the next that lives.
func TestTheDeadAreTakenOutAlsoBehindALockedRow(t *testing.T) {
	url := ownSchema(t)
	conn := admin(t, url)
	exec(t, conn, `INSERT INTO headwaiter_ticket SELECT 't' || i, 'a', 'c', i, '1h',
		clock_timestamp() + CASE WHEN i IN (1, 2, 6) THEN interval '1h' ELSE interval '-1h' END,
		CASE WHEN i = 1 THEN 1 END, i = 1 FROM generate_series(1, 8) i`)
	tx := begin(t, admin(t, url))
	require.NoError(t, kit.Err(tx.Exec(t.Context(), "SELECT FROM headwaiter_ticket WHERE ticket = 't2' FOR UPDATE")))
	exec(t, conn, "SET statement_timeout = '10s'")
	exec(t, conn, "SELECT headwaiter_end('a', 't1', NULL, '1h', false)")
	rows, err := conn.Query(t.Context(), "SELECT ticket || CASE WHEN token IS NULL THEN '' ELSE ' holds' END FROM headwaiter_ticket ORDER BY arrival")
	require.NoError(t, err)
	left := kit.Got(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	require.Equal(t, []string{"t2", "t6 holds", "t7", "t8"}, left)
}
