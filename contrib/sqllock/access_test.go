package sqllock_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func as(user, password string) func(*sqllock.Options) {
	return func(o *sqllock.Options) { o.Config.ConnConfig.User, o.Config.ConnConfig.Password = user, password }
}

func TestAWrongPasswordIsToldAndLosesNothing(t *testing.T) {
	t.Parallel()
	address := pgtest.Own(t).URL("postgres")
	conn := admin(t, address)
	exec(t, conn, sqllock.Schema)
	exec(t, conn, "CREATE ROLE careful LOGIN SUPERUSER PASSWORD 'right'")
	var rules string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&rules))
	exec(t, conn, fmt.Sprintf("COPY (VALUES ('host all careful 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '%s'", rules))
	exec(t, conn, "SELECT pg_reload_conf()")
	config := kit.Got(pgxpool.ParseConfig(address))(t)
	kit.Eventually(t, "the server to want passwords", func() bool {
		o := sqllock.Options{Config: config.Copy()}
		as("careful", "wrong")(&o)
		c, err := sqllock.Dial(t.Context(), o)
		if err == nil {
			require.NoError(t, c.Shutdown(t.Context()))
			return false
		}
		require.ErrorContains(t, err, `password authentication failed for user "careful"`)
		return true
	})

	c := dial(t, address, as("careful", "right"), one)
	session, row := hold(t, sqllock.NewSession(c, "a")), hold(t, sqllock.NewLeased(c, "a"))
	exec(t, conn, "ALTER ROLE careful PASSWORD 'other'")
	begun := time.Now()
	require.ErrorContains(t, kit.Err(sqllock.NewSession(c, "b").Lock(t.Context())), "password authentication failed") // It wants a connection more.
	require.Less(t, time.Since(begun), kit.Patience, "it was tried for long")
	require.NoError(t, session.Context().Err())
	require.NoError(t, row.Context().Err())
	kit.Release(t, session, row)
}

func TestRightsThatAreMissingAreToldAndLoseNothing(t *testing.T) {
	address := ownSchema(t)
	conn := admin(t, address)
	exec(t, conn, "DO $$ BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
	c, other := dial(t, address, as("poor", "")), dial(t, address)
	for kind, lock := range kinds {
		m := lock(c, "a")
		for name, try := range map[string]func(context.Context) error{
			"lock":     func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
			"try lock": func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
		} {
			ctx := kit.Within(t, kit.Patience)
			err := try(ctx)
			require.ErrorContains(t, err, fmt.Sprintf("sqllock: %s %q: ", name, "a"), kind)
			require.ErrorContains(t, err, "permission denied for ", kind)
			require.NotErrorIs(t, err, lease.ErrBusy)
		}
		kit.Release(t, hold(t, lock(other, "a")))
	}
	exec(t, conn, "GRANT USAGE ON SEQUENCE headwaiter_token, headwaiter_arrival TO poor")
	exec(t, conn, "GRANT SELECT, INSERT, UPDATE, DELETE ON headwaiter_ticket TO poor")
	for _, lock := range kinds {
		kit.Release(t, hold(t, lock(c, "a"))) // What the schema names is enough.
	}
	l := hold(t, sqllock.NewLeased(c, "a"))
	exec(t, conn, "REVOKE DELETE ON headwaiter_ticket FROM poor")
	require.ErrorContains(t, l.Release(t.Context()), "permission denied for ")
	require.Equal(t, 1, count(t, conn, leftTickets), "an error has released it")
}

// Where a pooler gives each client a session, the locks work as they do directly.
func TestASessionLockTrustsAPoolerThatPoolsSessions(t *testing.T) {
	address := ownSchema(t)
	trusting := func(o *sqllock.Options) {
		o.SessionPooling = true
		o.MaxSessions = 1
		o.Config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		o.Config.MaxConns = 1
	}
	m, direct := sqllock.NewSession(dial(t, pgtest.SessionBouncer(t, address), trusting), "a"), sqllock.NewSession(dial(t, address), "a")
	l := hold(t, m)
	require.ErrorIs(t, kit.Err(direct.TryLock(t.Context())), lease.ErrBusy)
	next := kit.Lock(t.Context(), direct.Lock)
	queued(t, direct, 1)
	second := kit.Next(t, l, next)
	require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
	kit.Release(t, second)
	kit.Release(t, hold(t, m))
}

// A forger may connect to the database, which is enough to notify, and read the table.
type forger struct {
	*pgx.Conn
	channel string // of the client that it deceives
}

// deceive makes a client that waits for b, which another holds until free is called, and a forger.
func deceive(t *testing.T, url string, c *sqllock.Client) (f forger, free func(), waits *kit.Call[*lease.Lease]) {
	t.Helper()
	l := hold(t, sqllock.NewLeased(dial(t, url), "b", sqllock.WithLease(time.Hour)))
	m := sqllock.NewLeased(c, "b")
	waits = kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	f.Conn = admin(t, url)
	kit.Eventually(t, "the listener", func() bool { return count(t, f.Conn, listeners) == 1 })
	require.NoError(t, f.QueryRow(t.Context(), `SELECT client FROM headwaiter_ticket WHERE token IS NULL`).Scan(&f.channel))
	return f, func() { kit.Release(t, l) }, waits
}

// say notifies the client of a ticket that holds.
func (f forger) say(t *testing.T, what, name string) {
	t.Helper()
	exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', format('%s %%s %%s 0 0 %s', ticket, token))
		FROM headwaiter_ticket WHERE name = '%s' AND token IS NOT NULL`, f.channel, what, name, name))
}

func TestAForgedGrantEndsNoHoldOfAnother(t *testing.T) {
	url := ownSchema(t)
	l := hold(t, sqllock.NewLeased(dial(t, url), "a", sqllock.WithLease(time.Hour)))
	f, free, waits := deceive(t, url, dial(t, url))
	f.say(t, "grant", "a")
	// An unknown grant to the client is given back; it comes after the other.
	exec(t, f.Conn, fmt.Sprintf(`INSERT INTO headwaiter_ticket VALUES ('left', 'c', '%s', 1, '1 hour', now() + '1 hour', 1)`, f.channel))
	f.say(t, "grant", "c")
	kit.Eventually(t, "the grant to be given back", func() bool {
		return count(t, f.Conn, leftTickets+" WHERE name = 'c'") == 0
	})
	require.Equal(t, 1, count(t, f.Conn, leftTickets+" WHERE name = 'a'"), "another's hold has ended")
	kit.Release(t, l)
	free()
	kit.Release(t, waits.Value(t))
}

// It is believed until the first renewal, which is due by the client's own terms, whatever the message says.
func TestAForgedGrantIsFoundOutByTheFirstRenewal(t *testing.T) {
	t.Parallel()
	const grant = time.Second
	url := schema(t)
	f, free, waits := deceive(t, url, dial(t, url, func(o *sqllock.Options) { o.GrantLease = grant }))
	defer free()
	exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', format('grant %%s 1000000 %%s %%s b', ticket,
		(extract(epoch FROM now()) * 1000000)::bigint, (extract(epoch FROM now() + '1 day') * 1000000)::bigint))
		FROM headwaiter_ticket WHERE token IS NULL`, f.channel))
	l := waits.Value(t)
	require.Less(t, time.Until(l.Deadline()), grant)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
}

// What is said of a hold is looked into.
func TestAForgedNoticeOfForceEndsNoHold(t *testing.T) {
	url := ownSchema(t)
	c := dial(t, url)
	f, free, waits := deceive(t, url, c)
	l := hold(t, sqllock.NewLeased(c, "a", sqllock.WithLease(time.Hour)))
	renewed := fmt.Sprintf(`SELECT count(*) FROM headwaiter_ticket WHERE name = 'a' AND until > '%s'`, until(t, f.Conn, "a"))
	f.say(t, "forced", "a")
	kit.Eventually(t, "a renewal", func() bool { return count(t, f.Conn, renewed) == 1 })
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	free()
	kit.Release(t, waits.Value(t))
}

// until is the end of a hold, as the server has it.
func until(t *testing.T, conn *pgx.Conn, name string) (end string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT until::text FROM headwaiter_ticket WHERE name = $1`, name).Scan(&end))
	return end
}

// It counts all goroutines, so nothing else may run.
func TestForgedMessagesCostAClientLittle(t *testing.T) {
	const messages, most = 20_000, 100
	url := schema(t)
	f, free, waits := deceive(t, url, dial(t, url))
	before := runtime.NumGoroutine()
	for _, forged := range []string{"'grant nobody ' || n || ' 0 0 a'", "'forced nobody ' || n || ' 0 0 a'", "'x' || n"} {
		exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', %s) FROM generate_series(1, %d) n`, f.channel, forged, messages))
	}
	free()
	l := waits.Value(t) // What tells of it comes last.
	require.Less(t, runtime.NumGoroutine(), before+most)
	kit.Release(t, l)
}

// cancels counts the requests to cancel among what is sent.
type cancels struct {
	net.Conn
	seen *atomic.Int64
}

func (c cancels) Write(p []byte) (int, error) {
	const code = 80877102
	if len(p) >= 8 && binary.BigEndian.Uint32(p[4:]) == code {
		c.seen.Add(1)
	}
	return c.Conn.Write(p)
}

// A poll that is under way is answered, though its call has left: a pooler need not cancel it for that.
func TestACallThatLeavesCancelsNoPoll(t *testing.T) {
	url := ownSchema(t)
	p, through := pgtest.Through(t, url)
	var seen atomic.Int64
	nowhere := kit.Got(pgx.ParseConfig("postgres://postgres@127.0.0.1:1/postgres"))(t)
	c := dial(t, through, func(o *sqllock.Options) {
		o.Direct = nowhere // So it polls.
		o.Config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return cancels{conn, &seen}, err
		}
	})
	other := sqllock.NewLeased(dial(t, url), "a")
	l := hold(t, other)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := kit.Lock(ctx, sqllock.NewLeased(c, "a").Lock)
	queued(t, other, 1)
	p.Freeze(faults.ToClient)
	kit.Eventually(t, "the answer to a poll", p.Holds)
	kit.Cancel(t, cancel, call)
	p.Heal()
	kit.Release(t, l)
	kit.Release(t, hold(t, sqllock.NewLeased(c, "a")))
	require.NoError(t, c.Shutdown(t.Context()))
	require.Zero(t, seen.Load())
}

// What is here wants a server with several hundred connections.

func TestConformanceOfSessionLocks(t *testing.T) {
	url := ownSchema(t)
	lasts := func(o *sqllock.Options) { o.SessionLease = conformanceLease; o.MaxSessions = 200 }
	e := conforming(url, lasts, func(c *sqllock.Client) conformance.Client {
		return conformance.Client{Mutex: func(name string, _ time.Duration) conformance.Mutex {
			return session{sqllock.NewSession(c, name), url}
		}}
	})
	e.Lease = conformanceLease
	require.ElementsMatch(t, missed, conformance.Run(t, e))
}

// conformanceLease is how long the sessions of a client are certain that shares the machine with many.
const conformanceLease = 5 * time.Second

type session struct {
	*sqllock.Session
	url string
}

// Break ends the sessions that hold the lock, as an operator would.
func (m session) Break(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, m.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint << 32 | objid::bigint = $1::bigint`, sqllock.Key(m.Name()))
	return err
}

func TestManyClientsAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	const clients = 32
	for kind, lock := range kinds {
		kit.Parallel(t, kind, func(t *testing.T) {
			url := schema(t)
			few := func(o *sqllock.Options) { o.Config.MaxConns = 1 }
			first := lock(dial(t, url, few), "a")
			l := hold(t, first)
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range clients {
				m := lock(dial(t, url, few), "a")
				all.Go(func() {
					l, err := m.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
				queued(t, first, i+1)
			}
			kit.Release(t, l)
			kit.All(t, &all)
			require.IsIncreasing(t, order)
			require.Len(t, order, clients)
		})
	}
}
