package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/lease"
)

// granted counts what is held of a kind, whether he who holds knows or not.
var granted = map[string]string{
	"session": leftLocks + " AND granted AND objsubid = 1",
	"leased":  leftTickets + " WHERE token IS NOT NULL",
}

// lasting is a lock whose lease does not end by itself in a test.
func lasting(kind string, c *sqllock.Client, name string) mutex {
	if kind == "leased" {
		return sqllock.NewLeased(c, name, sqllock.WithLease(time.Hour))
	}
	return sqllock.NewSession(c, name)
}

func TestACancelledCallGivesBackWhatALateReplyTells(t *testing.T) {
	for kind, query := range granted {
		kit.Parallel(t, kind, func(t *testing.T) {
			url := schema(t)
			conn := admin(t, url)
			p, through := pgtest.Through(t, url)
			m := lasting(kind, dial(t, through), "a")
			kit.Release(t, hold(t, m)) // It has a connection.
			p.Freeze(faults.ToClient)
			ctx, cancel := context.WithCancel(t.Context())
			call := kit.Lock(ctx, m.Lock)
			kit.Eventually(t, "a grant that nobody hears of", func() bool { return count(t, conn, query) == 1 })
			kit.Cancel(t, cancel, call)
			p.Heal()
			kit.Release(t, hold(t, lasting(kind, dial(t, url), "a")))
			kit.Eventually(t, "nothing to be left", func() bool { return count(t, conn, query) == 0 })
			kit.Release(t, hold(t, m))
		})
	}
}

// The request comes to Postgres when its call has given up, and after all that the call has sent by other ways.
func TestACancelledCallGivesBackWhatALateRequestIsGranted(t *testing.T) {
	for kind, query := range granted {
		kit.Parallel(t, kind, func(t *testing.T) {
			const tokens = "SELECT last_value FROM headwaiter_token"
			url := schema(t)
			conn := admin(t, url)
			p, through := pgtest.Through(t, url)
			c := dial(t, through)
			m, other := lasting(kind, c, "a"), lasting(kind, c, "b")
			kit.Release(t, hold(t, m)) // It has a connection.
			p.Stall()
			ctx, cancel := context.WithCancel(t.Context())
			call := kit.Lock(ctx, m.Lock)
			kit.Eventually(t, "the request to be under way", p.Holds)
			kit.Cancel(t, cancel, call)
			for range 20 { // New connections work: a farewell that does not wait has had its time.
				kit.Release(t, hold(t, other))
			}
			before := count(t, conn, tokens)
			p.Heal()
			kit.Eventually(t, "the request to be granted", func() bool { return count(t, conn, tokens) > before })
			kit.Eventually(t, "the grant to be given back", func() bool { return count(t, conn, query) == 0 })
			kit.Release(t, hold(t, m))
		})
	}
}

// A session whose reply is lost is granted a lock that nobody knows. The call asks again on another connection, and
// the first one's lock goes with its connection.
func TestALostReplyToASessionKeepsNothing(t *testing.T) {
	url := ownSchema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	m := sqllock.NewSession(dial(t, through), "a")
	first := hold(t, m)
	kit.Release(t, first)
	p.Drop(faults.ToClient)
	call := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "a grant that nobody hears of", func() bool { return count(t, conn, granted["session"]) == 1 })
	p.Heal()
	p.Cut()
	l := call.Value(t)
	require.Greater(t, l.Token(), first.Token()+1, "the lost grant had a token of its own")

	p.Drop(faults.ToClient)
	release := kit.Run(func() error { return l.Release(context.Background()) })
	kit.Eventually(t, "the release", func() bool { return count(t, conn, granted["session"]) == 0 })
	p.Heal()
	p.Cut()
	require.Error(t, release.Err(t), "nobody has confirmed that")
	kit.Release(t, hold(t, m))
}

// Idle connections that have ended cost a call nothing but a new one.
func TestConnectionsThatEndedWhileIdleAreReplaced(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *faults.Proxy, url string){
		"terminated": func(t *testing.T, _ *faults.Proxy, url string) {
			exec(t, admin(t, url), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		},
		"cut": func(_ *testing.T, p *faults.Proxy, _ string) { p.Cut() },
	} {
		kit.Parallel(t, name, func(t *testing.T) {
			url := schema(t)
			p, through := pgtest.Through(t, url)
			c := dial(t, through)
			for _, try := range []func(m *sqllock.Session) error{
				func(m *sqllock.Session) error { return m.Do(t.Context(), func(context.Context) error { return nil }) },
				func(m *sqllock.Session) error {
					l, err := m.TryLock(t.Context())
					if err == nil {
						err = l.Release(t.Context())
					}
					return err
				},
			} {
				one, two := hold(t, sqllock.NewSession(c, "a")), hold(t, sqllock.NewSession(c, "b"))
				kit.Release(t, one, two)
				end(t, p, url)
				require.NoError(t, try(sqllock.NewSession(c, "a")))
			}
		})
	}
}

// A migration may make the functions anew, which gives them other numbers.
func TestFunctionsThatWereMadeAnewAreFound(t *testing.T) {
	url := ownSchema(t)
	conn, m := admin(t, url), sqllock.NewSession(dial(t, url), "a")
	kit.Release(t, hold(t, m))
	exec(t, conn, "DROP FUNCTION headwaiter_lock(bigint), headwaiter_try_lock(bigint)")
	require.ErrorIs(t, kit.Err(m.Lock(t.Context())), sqllock.ErrSchema)
	exec(t, conn, sqllock.Schema)
	kit.Release(t, hold(t, m))
	exec(t, conn, "DROP FUNCTION headwaiter_lock(bigint), headwaiter_try_lock(bigint)")
	exec(t, conn, sqllock.Schema)
	kit.Release(t, kit.Got(m.TryLock(t.Context()))(t))
}

// A hold outlasts connections that fall silent while new ones work: a renewal takes half of what it has left at the most.
func TestAHoldOutlastsConnectionsThatFallSilent(t *testing.T) {
	t.Parallel()
	p, through := pgtest.Through(t, schema(t))
	l := hold(t, sqllock.NewLeased(dial(t, through), "a", sqllock.WithLease(4*time.Second)))
	p.Stall()
	select {
	case <-l.Context().Done():
		require.NoError(t, context.Cause(l.Context()))
	case <-time.After(10 * time.Second): // Two leases and a half: that is what it is about.
	}
	p.Heal()
	kit.Release(t, l)
}

// The grant of a call that waited is short: the loss counts from it.
func TestALossBeforeTheFirstRenewalSaysForHowLongNothingWasAnswered(t *testing.T) {
	url := ownSchema(t)
	p, through := pgtest.Through(t, url)
	first := hold(t, lasting("leased", dial(t, url), "a"))
	m := lasting("leased", dial(t, through, func(o *sqllock.Options) { o.GrantLease = time.Second }), "a")
	wait := kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	l := kit.Next(t, first, wait)
	p.Freeze()
	cause := kit.Lost(t, l)
	require.ErrorIs(t, cause, lease.ErrExpired)
	require.Contains(t, cause.Error(), "no renewal was answered for ")
	require.NotRegexp(t, `answered for \d+h`, cause.Error())
	p.Heal()
}

// levels are the isolation levels that Postgres has.
var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// atEach runs a case at each isolation level, with a database of its own that has the tables of the tests.
func atEach(t *testing.T, run func(t *testing.T, db store)) {
	t.Parallel()
	for _, level := range levels {
		kit.Parallel(t, level.String(), func(t *testing.T) { run(t, open(t, level)) })
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
	require.NoError(t, kit.Err(db.ExecContext(context.Background(), query, args...)))
}

// one reads a number.
func (db store) one(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

func (db store) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx := kit.Got(db.BeginTx(context.Background(), &sql.TxOptions{Isolation: db.level}))(t)
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
	e := kit.As[*fence.StaleError](t, err)
	require.Equal(t, fence.StaleError{Token: token, Highest: highest}, *e)
}

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	pgtest.Main(m)
}

// childMutex is the lock of a process that holds.
func childMutex(url, _ string) (enginetest.Mutex, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c, err := sqllock.Dial(context.Background(), sqllock.Options{Config: config})
	if err != nil {
		return nil, err
	}
	return inspected{sqllock.NewLeased(c, "one", sqllock.WithLease(enginetest.Short))}, nil
}

func TestAHolderThatIsStoppedPastItsLeaseKnowsAtItsFirstLook(t *testing.T) {
	url := ownSchema(t)
	enginetest.Rig{Dial: leasing(url)}.AProcessThatWasStoppedKnowsThatItLost(t, url, "")
}

// behind is a server with a proxy in front; the proxy is what stands still.
type behind struct {
	*faults.Proxy
	server *postgres.Server
}

func (b behind) Kill()         { b.Cut() }
func (b behind) Run() error    { return b.server.Restart() }
func (b behind) Wipe() error   { panic("no test of this rig wants it") }
func (b behind) Freeze() error { b.Proxy.Freeze(); return nil }
func (b behind) Thaw() error   { b.Heal(); return nil }

// inspected is a lock that tells how many wait as those of other engines do, and no more.
type inspected struct{ *sqllock.Leased }

func (m inspected) Inspect(ctx context.Context) (lease.Info, error) {
	n, err := m.Waiting(ctx)
	return lease.Info{Waiting: n}, err
}

// leasing returns what makes clients for the rig.
func leasing(url string) func(testing.TB, time.Duration) enginetest.Client {
	return func(t testing.TB, lasts time.Duration) enginetest.Client {
		c := dial(t, url, func(o *sqllock.Options) { o.GrantLease = lasts })
		return enginetest.Client{Close: c.Shutdown, Mutex: func(name string, _ engine.Limits) enginetest.Mutex {
			return inspected{sqllock.NewLeased(c, name, sqllock.WithLease(lasts))}
		}}
	}
}

func TestAHistoryInTroubleIsLinearizable(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	url := s.URL("postgres") + "&synchronous_commit=on" // The servers of tests forget what was committed last.
	exec(t, admin(t, url), sqllock.Schema)
	proxy, through := pgtest.Through(t, url)
	enginetest.Rig{
		Server: behind{proxy, s},
		Dial:   leasing(through),
		Empty: func(t testing.TB) {
			l, err := sqllock.NewLeased(dial(t, url), "one").TryLock(t.Context())
			require.NoError(t, err, "somebody holds, or waits")
			require.NoError(t, l.Release(t.Context()))
		},
	}.AHistoryInTrouble(t)
}
