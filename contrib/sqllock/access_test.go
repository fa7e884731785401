package sqllock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func as(user, password string) func(*sqllock.Options) {
	return func(o *sqllock.Options) { o.Config.ConnConfig.User, o.Config.ConnConfig.Password = user, password }
}

func TestAWrongPasswordIsToldAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	address := s.URL("postgres")
	conn := admin(t, address)
	exec(t, conn, sqllock.Schema)
	exec(t, conn, "CREATE ROLE careful LOGIN SUPERUSER PASSWORD 'right'")
	var rules string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&rules))
	exec(t, conn, fmt.Sprintf("COPY (VALUES ('host all careful 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '%s'", rules))
	exec(t, conn, "SELECT pg_reload_conf()")
	config, err := pgxpool.ParseConfig(address)
	require.NoError(t, err)
	kit.Eventually(t, "the server to want passwords", func() bool {
		o := sqllock.Options{Config: config.Copy()}
		as("careful", "wrong")(&o)
		c, err := sqllock.Dial(t.Context(), o)
		if err == nil {
			require.NoError(t, c.Close(t.Context()))
			return false
		}
		require.ErrorContains(t, err, `password authentication failed for user "careful"`)
		return true
	})

	c := dial(t, address, as("careful", "right"), one)
	session, row := hold(t, sqllock.NewSession(c, "a")), hold(t, sqllock.NewLeased(c, "a"))
	exec(t, conn, "ALTER ROLE careful PASSWORD 'other'")
	begun := time.Now()
	_, err = sqllock.NewSession(c, "b").Lock(t.Context()) // It wants a connection more.
	require.ErrorContains(t, err, "password authentication failed")
	require.Less(t, time.Since(begun), kit.Patience, "it was tried for long")
	require.NoError(t, session.Context().Err())
	require.NoError(t, row.Context().Err())
	kit.Release(t, session)
	kit.Release(t, row)
}

func TestRightsThatAreMissingAreToldAndLoseNothing(t *testing.T) {
	t.Parallel()
	address := schema(t)
	conn := admin(t, address)
	exec(t, conn, "DO $$ BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
	c, other := dial(t, address, as("poor", "")), dial(t, address)
	for kind, lock := range kinds {
		m := lock(c, "a")
		for name, try := range map[string]func(context.Context) error{
			"lock":     func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
			"try lock": func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
			defer cancel()
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
	err := l.Release(t.Context())
	require.ErrorContains(t, err, "permission denied for ")
	require.Equal(t, 1, count(t, conn, leftTickets), "an error has released it")
}

// Where a pooler gives each client a session, the locks work as they do directly.
func TestASessionLockTrustsAPoolerThatPoolsSessions(t *testing.T) {
	t.Parallel()
	address := schema(t)
	trusting := func(o *sqllock.Options) {
		o.SessionPooling = true
		o.MaxSessions = 1
		o.Config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		o.Config.MaxConns = 1
	}
	m, direct := sqllock.NewSession(dial(t, pgtest.SessionBouncer(t, address), trusting), "a"), sqllock.NewSession(dial(t, address), "a")
	l := hold(t, m)
	_, err := direct.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	next := kit.Lock(t.Context(), direct.Lock)
	queued(t, direct, 1)
	kit.Release(t, l)
	second := next.Value(t)
	require.Greater(t, second.Token(), l.Token())
	_, err = m.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	kit.Release(t, second)
	kit.Release(t, hold(t, m))
}
