package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// listeners is how many connections of a database hear a channel of a client.
const listeners = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN headwaiter%'`

func TestAHandOffNeedsNoPollingWhereThereIsAChannel(t *testing.T) {
	url := ownSchema(t)
	conn := admin(t, url)
	direct := kit.Got(pgx.ParseConfig(url))(t)
	bouncer := pgtest.Bouncer(t, url)
	for name, c := range map[string]*sqllock.Client{
		"direct":                    dial(t, url),
		"pooler and direct":         dial(t, bouncer, pooled(direct)),
		"pooler, polling":           dial(t, bouncer, pooled(nil)),
		"a pool that is one direct": dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns = 1 }),
	} {
		before := count(t, conn, listeners)
		l := hold(t, sqllock.NewLeased(dial(t, url), name))
		m := sqllock.NewLeased(c, name, sqllock.WithLease(time.Minute))
		call := kit.Lock(t.Context(), m.Lock)
		queued(t, m, 1)
		want := before + 1
		if name == "pooler, polling" {
			want = before
		}
		kit.Eventually(t, "the listener of "+name, func() bool { return count(t, conn, listeners) == want })
		kit.PassOn(t, l, call)
	}
}

// Whether it hears or polls, a call that waits is served in far less than a lease.
func TestARestartedListenerMissesNothing(t *testing.T) {
	url := ownSchema(t)
	conn, c := admin(t, url), dial(t, url)
	for range 5 {
		l := hold(t, sqllock.NewLeased(dial(t, url), "a", sqllock.WithLease(time.Minute)))
		m := sqllock.NewLeased(c, "a")
		call := kit.Lock(t.Context(), m.Lock)
		queued(t, m, 1)
		kit.Eventually(t, "the listener", func() bool { return count(t, conn, listeners) == 1 })
		exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN headwaiter%'`)
		kit.PassOn(t, l, call)
	}
}

func TestADeadHolderLosesTheLockWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	const lasts = time.Second
	url := schema(t)
	p, through := pgtest.Through(t, url)
	l := hold(t, sqllock.NewLeased(dial(t, through), "a", sqllock.WithLease(lasts)))
	m := sqllock.NewLeased(dial(t, url), "a")
	call := kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	p.Freeze()
	next := call.Value(t)
	require.Error(t, l.Context().Err(), "the next holds, and the one before does not know")
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrExpired)
	require.Greater(t, next.Token(), l.Token())
	p.Heal()
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
	require.NoError(t, next.Context().Err())
	kit.Release(t, next)
}

func TestDeadWaitersOfAClientCostOneGrantLease(t *testing.T) {
	t.Parallel()
	const dead, grant = 20, 500 * time.Millisecond
	url := schema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	short := func(o *sqllock.Options) { o.GrantLease = grant }
	holder := sqllock.NewLeased(dial(t, url, short), "a")
	l, gone := hold(t, holder), sqllock.NewLeased(dial(t, through, short), "a")
	ctx, cancel := context.WithCancel(t.Context())
	calls := make([]*kit.Call[*lease.Lease], dead)
	for i := range calls {
		calls[i] = kit.Lock(ctx, gone.Lock)
	}
	queued(t, holder, dead)
	next := kit.Lock(t.Context(), sqllock.NewLeased(dial(t, url), "a").Lock)
	queued(t, holder, dead+1)
	p.Freeze()
	kit.Release(t, l)
	begun := time.Now()
	kit.Release(t, next.Value(t))
	require.Less(t, time.Since(begun), dead*grant/4, "each of them cost a grant lease, or nobody looked")
	t.Logf("the next held %v after the release", time.Since(begun))
	cancel()
	p.Heal()
	for _, call := range calls {
		require.ErrorIs(t, call.Err(t), context.Canceled)
	}
	kit.Eventually(t, "the last to leave", func() bool { return count(t, conn, leftTickets) == 0 })
}

// What the machine slept before the grant is not taken off it: the call asks how long it lasts.
func TestAGrantBehindASleepIsAskedFor(t *testing.T) {
	t.Parallel()
	const lasts = 10 * time.Second
	c := dial(t, schema(t), func(o *sqllock.Options) { o.GrantLease = lasts })
	m := sqllock.NewLeased(c, "a", sqllock.WithLease(lasts))
	for _, slept := range []time.Duration{5 * time.Second, 9800 * time.Millisecond, time.Hour} {
		require.Nil(t, m.Hear(t.Context(), slept), slept)
	}
	l := m.Hear(t.Context(), 0)
	require.NotNil(t, l)
	l.Unlock()
}

// The server has granted, and nobody heard: the same call asks again and gets the same grant.
func TestALostReplyLosesNoGrant(t *testing.T) {
	url := ownSchema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	c := dial(t, through)
	m := sqllock.NewLeased(c, "a")
	kit.Release(t, hold(t, m))
	p.Drop(faults.ToClient)
	call := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "a grant", func() bool { return count(t, conn, leftTickets+" WHERE token IS NOT NULL") == 1 })
	token := count(t, conn, "SELECT token FROM headwaiter_ticket")
	p.Heal()
	p.Cut()
	l := call.Value(t)
	require.Equal(t, uint64(token), l.Token())
	kit.Release(t, hold(t, sqllock.NewLeased(c, "b"))) // Its connection has prepared all statements.
	p.Drop(faults.ToClient)
	release := kit.Run(func() error { return l.Release(context.Background()) })
	kit.Eventually(t, "the release", func() bool { return count(t, conn, leftTickets) == 0 })
	p.Heal()
	p.Cut()
	require.NoError(t, release.Err(t), "a release that was done, and repeated, is one")
}

func TestACallThatLeavesBehindASilentNetworkIsForgotten(t *testing.T) {
	url := ownSchema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	stalls := kit.WatchStalls(t)
	c, l := dial(t, through), hold(t, sqllock.NewLeased(dial(t, url), "a"))
	ctx, cancel := context.WithCancel(t.Context())
	call := kit.Lock(ctx, sqllock.NewLeased(c, "a").Lock)
	queued(t, sqllock.NewLeased(dial(t, url), "a"), 1)
	p.Freeze()
	cancel()
	begun := time.Now()
	require.ErrorIs(t, call.Err(t), context.Canceled)
	now := time.Now()
	require.Less(t, now.Sub(begun)-stalls.Within(begun, now), time.Second, "to leave waits for nobody")
	p.Heal()
	kit.Eventually(t, "it to leave", func() bool { return count(t, conn, leftTickets) == 1 })
	kit.Release(t, l)

	p.Freeze()
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun = time.Now()
	_ = c.Shutdown(ctx)
	require.Less(t, time.Since(begun), 5*time.Second, "Close has a limit")
}

func TestALossByForceIsToldAtOnce(t *testing.T) {
	url := ownSchema(t)
	m := sqllock.NewLeased(dial(t, url), "a", sqllock.WithLease(time.Minute))
	other := sqllock.NewLeased(dial(t, url), "a")
	// It hears since it has waited once.
	l := hold(t, other)
	call := kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	kit.Eventually(t, "the listener", func() bool { return count(t, admin(t, url), listeners) == 1 })
	l = kit.Next(t, l, call)
	require.ErrorIs(t, kit.Err(other.ForceRelease(t.Context(), l.Token()+1)), lease.ErrOtherToken)
	require.NoError(t, l.Context().Err(), "what is held with another token stays")
	require.Equal(t, l.Token(), kit.Got(other.ForceRelease(t.Context(), l.Token()))(t).Token)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced)
	require.ErrorIs(t, kit.Err(other.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
	kit.Release(t, hold(t, other))
}

func TestLeasedLocksWantReadCommitted(t *testing.T) {
	url := ownSchema(t)
	strict := func(o *sqllock.Options) {
		o.Config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	}
	require.ErrorContains(t, kit.Err(sqllock.NewLeased(dial(t, url, strict), "a").Lock(t.Context())), "READ COMMITTED")
}

// What an operator's session has locked holds up nobody but the calls whose rows they are.
func TestALockedRowIsPassedOver(t *testing.T) {
	url := ownSchema(t)
	c := dial(t, url)
	l := hold(t, sqllock.NewLeased(c, "a"))
	first := kit.Lock(t.Context(), sqllock.NewLeased(dial(t, url), "a").Lock)
	queued(t, sqllock.NewLeased(c, "a"), 1)
	second := kit.Lock(t.Context(), sqllock.NewLeased(dial(t, url), "a").Lock)
	queued(t, sqllock.NewLeased(c, "a"), 2)
	tx := kit.Got(admin(t, url).Begin(t.Context()))(t)
	require.NoError(t, kit.Err(tx.Exec(t.Context(), "SELECT FROM headwaiter_ticket WHERE token IS NULL ORDER BY arrival LIMIT 1 FOR UPDATE")))
	l = kit.Next(t, l, second)
	require.False(t, first.Returned())
	require.NoError(t, tx.Rollback(t.Context()))
	kit.PassOn(t, l, first)
}

// What was refused has not run, so the answer to the repetition says what has become of the hold.
func TestAReleaseThatWasRefusedTellsWhatBecameOfTheHoldMeanwhile(t *testing.T) {
	url := ownSchema(t)
	conn, l := admin(t, url), hold(t, sqllock.NewLeased(dial(t, url), "a"))
	exec(t, conn, "CREATE SEQUENCE refusals")
	exec(t, conn, `CREATE OR REPLACE FUNCTION headwaiter_end(p_name text, p_ticket text, p_token bigint, p_grant interval, p_force boolean,
		OUT o_was integer, OUT o_granted boolean) LANGUAGE plpgsql AS $$
		BEGIN PERFORM nextval('refusals'); RAISE EXCEPTION 'not now' USING ERRCODE = '55P03'; END $$`)
	released := kit.Run(func() error { return l.Release(context.Background()) })
	kit.Eventually(t, "a release to be refused", func() bool { return count(t, conn, "SELECT is_called::int FROM refusals") == 1 })
	exec(t, conn, "DELETE FROM headwaiter_ticket") // As somebody does who releases it by force.
	exec(t, conn, sqllock.Schema)
	require.ErrorIs(t, released.Err(t), lease.ErrForgotten)
}

func TestOddOptionsAreRefused(t *testing.T) {
	t.Parallel()
	c := dial(t, schema(t))
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 2 * lease.MaxLease} {
		require.ErrorIs(t, kit.Err(sqllock.NewLeased(c, "a", sqllock.WithLease(d)).Lock(t.Context())), lease.ErrInvalid)
	}
}

// A release by force that was given up reaches the server when its own client holds the lock anew.
func TestAForceThatWasGivenUpFreesNoLaterHold(t *testing.T) {
	url := schema(t)
	p, through := pgtest.Through(t, url)
	m := sqllock.NewLeased(dial(t, through), "a")
	kit.Release(t, hold(t, m)) // It has a connection.
	for range 5 {              // Which knows the statement.
		require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
	}
	p.Stall()
	require.ErrorIs(t, kit.Err(m.ForceRelease(kit.Within(t, 300*time.Millisecond), 0)), context.DeadlineExceeded)
	l := hold(t, m) // On another connection.
	require.True(t, p.Holds())
	p.Heal()
	other := sqllock.NewLeased(dial(t, url), "a")
	next := kit.Lock(t.Context(), other.Lock)
	queued(t, other, 1)
	kit.Release(t, l)
	kit.Release(t, next.Value(t))
}

func TestAClosedClientSaysSo(t *testing.T) {
	c := dial(t, schema(t))
	require.NoError(t, c.Close())
	require.ErrorIs(t, kit.Err(sqllock.NewLeased(c, "a").ForceRelease(t.Context(), 0)), lease.ErrClosed)
	require.ErrorIs(t, kit.Err(sqllock.NewLeased(c, "a").Waiting(t.Context())), lease.ErrClosed)
	require.ErrorIs(t, kit.Err(sqllock.NewSession(c, "a").Waiting(t.Context())), lease.ErrClosed)
}
