package sqllock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// told is how soon a holder must know that its connection is gone.
const told = 2 * time.Second

// admin is a connection that has nothing to do with the locks.
func admin(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn := kit.Got(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // The server may be gone.
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	require.NoError(t, kit.Err(conn.Exec(t.Context(), query, args...)))
}

func count(t testing.TB, conn *pgx.Conn, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(context.Background(), query, args...).Scan(&n))
	return n
}

// A mutex is what both kinds are.
type mutex interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
	Do(ctx context.Context, f func(context.Context) error) error
	Waiting(ctx context.Context) (int, error)
	Name() string
}

func hold(t testing.TB, m mutex) *lease.Lease {
	t.Helper()
	return kit.Got(m.Lock(kit.Within(t, kit.Patience)))(t)
}

// queued waits until n calls wait.
func queued(t testing.TB, m mutex, n int) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d calls to wait", n), func() bool {
		return kit.Got(m.Waiting(context.Background()))(t) == n
	})
}

func TestKeysOfNamesStay(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int64{
		"orders": 3306133991489877568, "orders:42": -8929871410941076193, "ä": 4217629869424702057,
	} {
		require.Equal(t, key, sqllock.Key(name), name)
	}
}

// Others may take the same lock by its key.
func TestASessionLockIsTheAdvisoryLockOfItsKey(t *testing.T) {
	url := ownSchema(t)
	conn, m := admin(t, url), sqllock.NewSession(dial(t, url), "orders")
	exec(t, conn, "SELECT pg_advisory_lock($1)", sqllock.Key("orders"))
	_, err := m.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.EqualError(t, err, `sqllock: try lock "orders": busy`)
	exec(t, conn, "SELECT pg_advisory_unlock_all()")
	kit.Release(t, hold(t, m))
}

// endSessions ends those that hold a lock.
const endSessions = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func TestAHolderIsToldThatItsConnectionIsGone(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, p *faults.Proxy, url string){
		"ended by Postgres": func(t *testing.T, _ *faults.Proxy, url string) { exec(t, admin(t, url), endSessions) },
		"cut":               func(_ *testing.T, p *faults.Proxy, _ string) { p.Cut() },
		"silent":            func(_ *testing.T, p *faults.Proxy, _ string) { p.Freeze() },
	} {
		kit.Parallel(t, name, func(t *testing.T) {
			url := schema(t)
			p, through := pgtest.Through(t, url)
			l := hold(t, sqllock.NewSession(dial(t, through), "a"))
			begun := time.Now()
			lose(t, p, url)
			gone := time.Now()
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
			t.Logf("told after %v: %v", time.Since(begun), context.Cause(l.Context()))
			if name == "silent" { // Told by the clock, however late a busy machine wakes this test.
				require.LessOrEqual(t, l.Deadline().Sub(gone), told)
				require.Less(t, time.Since(begun), 2*told)
			} else {
				require.Less(t, time.Since(begun), told)
			}
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
			if name != "silent" {
				require.Greater(t, hold(t, sqllock.NewSession(dial(t, url), "a")).Token(), l.Token())
			}
		})
	}
}

// Between the end of a session and the word of it to the holder there is a moment in which the holder may release.
func TestAReleaseOfASessionThatHasEndedIsALoss(t *testing.T) {
	url := ownSchema(t)
	c, conn := dial(t, url), admin(t, url)
	ends := map[string]func(){
		"here":          c.EndSessions,
		"at the server": func() { exec(t, conn, endSessions) },
	}
	for where, end := range ends {
		t.Run(where, func(t *testing.T) {
			for range 20 {
				l := hold(t, sqllock.NewSession(c, "orders"))
				end()
				require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
				require.NoError(t, hold(t, sqllock.NewSession(c, "orders")).Release(t.Context()))
			}
		})
	}
}

// Postgres takes the lock of a session back when that ends, and not when a statement fails. Here the statement fails
// after the lock was granted: the token is not to be had, for a while or at all.
func TestALockThatWasGrantedAfterAllIsGivenBack(t *testing.T) {
	for name, fail := range map[string]struct {
		setup string
		limit time.Duration
		want  string
	}{
		"cancelled":     {limit: 200 * time.Millisecond, want: "context deadline exceeded"},
		"lock_timeout":  {setup: "ALTER ROLE holder SET lock_timeout = 50", limit: time.Second, want: "context deadline exceeded"},
		"not permitted": {setup: "REVOKE ALL ON SEQUENCE headwaiter_token FROM holder", limit: kit.Patience, want: "permission denied"},
	} {
		kit.Parallel(t, name, func(t *testing.T) {
			url := schema(t)
			conn := admin(t, url)
			exec(t, conn, "DO $$ BEGIN CREATE ROLE holder LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
			exec(t, conn, "GRANT USAGE ON SEQUENCE headwaiter_token TO holder")
			as := func(o *sqllock.Options) { o.Config.ConnConfig.User = "holder" }
			if fail.setup != "" {
				exec(t, conn, fail.setup)
			}
			m, other := sqllock.NewSession(dial(t, url, as), "a"), sqllock.NewSession(dial(t, url), "a")
			tx := kit.Got(conn.Begin(t.Context()))(t)
			if name != "not permitted" {
				// Whoever wants a token waits for the end of this.
				require.NoError(t, kit.Err(tx.Exec(t.Context(), "ALTER SEQUENCE headwaiter_token MAXVALUE 9000000000000000000")))
			}
			require.ErrorContains(t, kit.Err(m.Lock(kit.Within(t, fail.limit))), fail.want)
			require.NoError(t, tx.Rollback(t.Context()))
			l, err := other.TryLock(t.Context())
			require.NoError(t, err, "what the failed call was granted is still held")
			kit.Release(t, l)
		})
	}
}

func TestACancelledWaitOfASessionKeepsItsConnection(t *testing.T) {
	url := ownSchema(t)
	conn, c := admin(t, url), dial(t, url)
	l, m := hold(t, sqllock.NewSession(dial(t, url), "a")), sqllock.NewSession(c, "a")
	pids := map[int]bool{}
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		call := kit.Lock(ctx, m.Lock)
		queued(t, m, 1)
		pids[count(t, conn, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)] = true
		kit.Cancel(t, cancel, call)
		queued(t, m, 0)
	}
	require.Len(t, pids, 1, "a cancelled wait cost its connection")
	kit.Release(t, l)
}

func TestACallBehindASilentNetworkEndsSoonAfterItsContext(t *testing.T) {
	url := ownSchema(t)
	p, through := pgtest.Through(t, url)
	l := hold(t, sqllock.NewSession(dial(t, url), "a"))
	m := sqllock.NewSession(dial(t, through), "a")
	ctx, cancel := context.WithCancel(t.Context())
	call := kit.Lock(ctx, m.Lock)
	queued(t, sqllock.NewSession(dial(t, url), "a"), 1)
	p.Freeze()
	cancel()
	begun := time.Now()
	require.ErrorIs(t, call.Err(t), context.Canceled)
	require.Less(t, time.Since(begun), 5*time.Second)
	kit.Release(t, l)
	p.Heal()
	// What came through late was a cancel request and a good-bye.
	kit.Release(t, hold(t, sqllock.NewSession(dial(t, url), "a")))
}

func TestASessionLockRefusesAPooler(t *testing.T) {
	url := ownSchema(t)
	bouncer := pgtest.Bouncer(t, url)
	c := dial(t, bouncer, pooled(nil))
	require.ErrorIs(t, kit.Err(sqllock.NewSession(c, "a").Lock(t.Context())), sqllock.ErrPooled)
	direct := kit.Got(pgx.ParseConfig(url))(t)
	kit.Release(t, hold(t, sqllock.NewSession(dial(t, bouncer, pooled(direct)), "a")))
}

func TestDialTellsThatTheSchemaIsMissing(t *testing.T) {
	t.Parallel()
	config := kit.Got(pgxpool.ParseConfig(pgtest.URL(t)))(t)
	require.ErrorIs(t, kit.Err(sqllock.Dial(t.Context(), sqllock.Options{Config: config})), sqllock.ErrSchema)
	require.ErrorContains(t, kit.Err(sqllock.Dial(t.Context(), sqllock.Options{})), "Options.Config")
	pool := kit.Got(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer pool.Close()
	for range 2 { // To run it again is no error.
		require.NoError(t, kit.Err(pool.Exec(t.Context(), sqllock.Schema)))
	}
	kit.Release(t, hold(t, sqllock.NewLeased(dial(t, config.ConnString()), "a")))
}

// kinds are both, as a client sees them.
var kinds = map[string]func(c *sqllock.Client, name string) mutex{
	"session": func(c *sqllock.Client, name string) mutex { return sqllock.NewSession(c, name) },
	"leased":  func(c *sqllock.Client, name string) mutex { return sqllock.NewLeased(c, name) },
}

// leftTickets and leftLocks are what calls and holds leave while they last.
const (
	leftTickets = "SELECT count(*) FROM headwaiter_ticket"
	leftLocks   = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	leftSessions = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
)

func TestAThousandCyclesWithCancelsLeaveNothing(t *testing.T) {
	for kind, lock := range kinds {
		kit.Parallel(t, kind, func(t *testing.T) {
			const workers, each = 8, 125
			url := schema(t)
			conn := admin(t, url)
			clients := []*sqllock.Client{dial(t, url), dial(t, url)}
			var all sync.WaitGroup
			var turns atomic.Int64
			for w := range workers {
				m := lock(clients[w%2], "a")
				all.Go(func() {
					for i := range each {
						turns.Add(1)
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%7)*time.Millisecond)
						if l, err := m.Lock(ctx); err == nil {
							_ = l.Release(ctx) // Where it is too late for an answer, it goes on.
						}
						cancel()
					}
				})
			}
			kit.AllMoving(t, &all, turns.Load)
			kit.Release(t, hold(t, lock(clients[0], "a")))
			kit.Eventually(t, "the last to leave", func() bool { return count(t, conn, leftTickets) == 0 && count(t, conn, leftLocks) == 0 })
			for _, c := range clients {
				require.NoError(t, c.Shutdown(t.Context()))
			}
			kit.Eventually(t, "the connections to end", func() bool { return count(t, conn, leftSessions) == 0 })
		})
	}
}

func TestACodeThatIsNoneEndsNothing(t *testing.T) {
	for code, passes := range map[string]bool{"X": false, "0": false, "08006": true, "53300": true, "25P04": true, "42P01": false} {
		require.Equal(t, passes, sqllock.Passes(code), code)
	}
}
