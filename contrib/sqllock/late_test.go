package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schema(t)
			conn := admin(t, url)
			p, through := pgtest.Through(t, url)
			m := lasting(kind, dial(t, through), "a")
			kit.Release(t, hold(t, m)) // It has a connection.
			p.Freeze(faults.ToClient)
			ctx, cancel := context.WithCancel(t.Context())
			call := kit.Lock(ctx, m.Lock)
			kit.Eventually(t, "a grant that nobody hears of", func() bool { return count(t, conn, query) == 1 })
			cancel()
			require.ErrorIs(t, call.Err(t), context.Canceled)
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
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
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
			cancel()
			require.ErrorIs(t, call.Err(t), context.Canceled)
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

// A session whose reply is lost is granted a lock of which nobody knows. The call asks again on another connection, and
// the first one's lock goes with its connection.
func TestALostReplyToASessionKeepsNothing(t *testing.T) {
	t.Parallel()
	url := schema(t)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				kit.Release(t, one)
				kit.Release(t, two)
				end(t, p, url)
				require.NoError(t, try(sqllock.NewSession(c, "a")))
			}
		})
	}
}

// A migration may make the functions anew, which gives them other numbers.
func TestFunctionsThatWereMadeAnewAreFound(t *testing.T) {
	t.Parallel()
	url := schema(t)
	conn := admin(t, url)
	m := sqllock.NewSession(dial(t, url), "a")
	kit.Release(t, hold(t, m))
	exec(t, conn, "DROP FUNCTION headwaiter_lock(bigint), headwaiter_try_lock(bigint)")
	_, err := m.Lock(t.Context())
	require.ErrorIs(t, err, sqllock.ErrSchema)
	exec(t, conn, sqllock.Schema)
	kit.Release(t, hold(t, m))
	exec(t, conn, "DROP FUNCTION headwaiter_lock(bigint), headwaiter_try_lock(bigint)")
	exec(t, conn, sqllock.Schema)
	l, err := m.TryLock(t.Context())
	require.NoError(t, err)
	kit.Release(t, l)
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
	t.Parallel()
	url := schema(t)
	p, through := pgtest.Through(t, url)
	first := hold(t, lasting("leased", dial(t, url), "a"))
	m := lasting("leased", dial(t, through, func(o *sqllock.Options) { o.GrantLease = time.Second }), "a")
	wait := kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	kit.Release(t, first)
	l := wait.Value(t)
	p.Freeze()
	cause := kit.Lost(t, l)
	require.ErrorIs(t, cause, lease.ErrExpired)
	require.Contains(t, cause.Error(), "no renewal was answered for ")
	require.NotRegexp(t, `answered for \d+h`, cause.Error())
	p.Heal()
}
