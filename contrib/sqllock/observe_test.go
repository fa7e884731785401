package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

func TestAnObserverIsToldOfCallsAndHolds(t *testing.T) {
	url, o := ownSchema(t), &kit.Observer{}
	mine, theirs := dial(t, url, func(x *sqllock.Options) { x.Observer = o }), dial(t, url)
	other := sqllock.NewLeased(theirs, "one")
	enginetest.AnObserverIsTold(t, o, "one", sqllock.NewLeased(mine, "one"), other, func() error {
		return kit.Err(other.ForceRelease(t.Context(), 0))
	})
	o = &kit.Observer{}
	mine = dial(t, url, func(x *sqllock.Options) { x.Observer = o })
	enginetest.AnObserverIsTold(t, o, "two", sqllock.NewSession(mine, "two"), sqllock.NewSession(theirs, "two"), nil)
}

func TestTheServerIsSeenToGoAndComeBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	url := s.URL("postgres")
	exec(t, admin(t, url), sqllock.Schema)
	proxy, through := pgtest.Through(t, url)
	for what, lock := range map[string]func(*sqllock.Client) func(context.Context) (*lease.Lease, error){
		"leased": func(c *sqllock.Client) func(context.Context) (*lease.Lease, error) {
			return sqllock.NewLeased(c, "one").Lock
		},
		"session": func(c *sqllock.Client) func(context.Context) (*lease.Lease, error) {
			return sqllock.NewSession(c, "one").Lock
		},
	} {
		t.Run(what, func(t *testing.T) {
			o := &kit.Requests{}
			c := dial(t, through, func(x *sqllock.Options) { x.Observer, x.Name = o, "observed" })
			enginetest.Rig{Server: away{behind{proxy, s}}}.TheServerIsSeenToGoAndComeBack(t, o, lock(c), "postgres")
		})
	}
}

// away is a server that nobody reaches when it is killed.
type away struct{ behind }

func (a away) Kill()      { a.Refuse(); a.Cut() }
func (a away) Run() error { a.Heal(); return nil }

// A grant that is over when it comes is no hold: nobody is told of it.
func TestAGrantThatIsOverWhenItComesIsNotTold(t *testing.T) {
	url := schema(t)
	p, through := pgtest.Through(t, url)
	o := &kit.Observer{}
	const grant = 400 * time.Millisecond
	mine := dial(t, through, func(x *sqllock.Options) { x.Observer, x.GrantLease, x.HeldTooLong = o, grant, time.Minute })
	m := sqllock.NewLeased(mine, "one")
	n := sqllock.NewLeased(dial(t, url, func(x *sqllock.Options) { x.GrantLease = grant }), "one")
	conn := admin(t, url)
	for range 3 { // What the client hears first, the grant or that it is over, is left to chance.
		before := len(o.Of(observe.Granted, observe.Released))
		other, call := hold(t, n), kit.Lock(t.Context(), m.Lock)
		kit.Eventually(t, "the call to wait", func() bool { w, err := n.Waiting(t.Context()); return err == nil && w == 1 })
		kit.Eventually(t, "it to listen", func() bool { return count(t, conn, listeners) > 0 })
		p.Freeze(faults.ToClient)
		kit.Release(t, other)
		kit.Eventually(t, "the end of the grant", func() bool { w, err := n.Waiting(t.Context()); return err == nil && w == 0 })
		<-time.After(grant + 100*time.Millisecond)
		p.Heal()
		l := call.Value(t)
		kit.Release(t, l)
		told := o.Of(observe.Granted, observe.Released)[before:]
		require.Len(t, told, 2)
		for _, x := range told {
			require.Equal(t, l.Token(), x.Token)
		}
	}
}

// A program that dials until its database is there.
func TestADialThatFailsLeavesNoGoroutine(t *testing.T) {
	config := kit.Got(pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable"))(t)
	before := runtime.NumGoroutine()
	for range 50 {
		require.Error(t, kit.Err(sqllock.Dial(t.Context(), sqllock.Options{Config: config, Log: slog.New(slog.DiscardHandler)})))
	}
	kit.Eventually(t, "their end", func() bool { return runtime.NumGoroutine() < before+25 })
}

func TestTimesBelowZeroAreRefused(t *testing.T) {
	config := kit.Got(pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable"))(t)
	for _, o := range []sqllock.Options{{Config: config, HeldTooLong: -1}, {Config: config, WaitedTooLong: -1}} {
		require.ErrorIs(t, kit.Err(sqllock.Dial(t.Context(), o)), lease.ErrInvalid)
	}
}

// Close comes while many calls are about to hold: each of them holds, and loses that, or is told of the end.
func TestAClientThatClosesAsItIsGrantedLocksGivesThemBack(t *testing.T) {
	const calls, rounds = 64, 20
	for kind, lock := range kinds {
		kit.Parallel(t, kind, func(t *testing.T) {
			url := schema(t)
			conn := admin(t, url)
			for round := range rounds {
				c := dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns, o.MaxSessions = 16, 16 })
				first, stop := make(chan struct{}, calls), make(chan struct{})
				var all sync.WaitGroup
				all.Go(func() { c.Contend(stop) })
				for i := range calls {
					m := lock(c, fmt.Sprint(round, "/", i))
					all.Go(func() {
						l, err := m.Lock(t.Context())
						if err != nil {
							if !errors.Is(err, lease.ErrClosed) {
								t.Error(err)
							}
							return
						}
						first <- struct{}{}
						<-l.Context().Done()
						if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrClientClosed) {
							t.Errorf("a hold has ended with its client for the cause %q", cause)
						}
					})
				}
				<-first
				err := c.Shutdown(t.Context())
				close(stop)
				all.Wait()
				require.NoError(t, err)
				require.Zero(t, count(t, conn, granted[kind]))
			}
		})
	}
}

// A slow server has been given much to do: each hold is given back, which takes longer than Close waits for an answer.
func TestCloseGivesAllBackForAsLongAsTheServerAnswers(t *testing.T) {
	t.Parallel()
	const holds, conns, slow = 40, 2, 200 * time.Millisecond
	url := schema(t)
	conn := admin(t, url)
	p, through := pgtest.Through(t, url)
	c := dial(t, through, func(o *sqllock.Options) { o.Config.MaxConns = conns })
	for i := range holds {
		hold(t, lasting("leased", c, fmt.Sprint(i)))
	}
	p.Delay(slow)
	begun := time.Now()
	require.NoError(t, c.Shutdown(t.Context()))
	require.Zero(t, count(t, conn, leftTickets))
	require.Greater(t, time.Since(begun), 6*time.Second, "it was no slow server")
}

// One name is locked by somebody for as long as he likes.
func TestCloseGivesUpWhatTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const holds = 64
	url := schema(t)
	conn := admin(t, url)
	c := dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns = 2 })
	for i := range holds {
		hold(t, lasting("leased", c, fmt.Sprint(i)))
	}
	require.NoError(t, kit.Err(begin(t, admin(t, url)).Exec(t.Context(), "SELECT headwaiter_enter('0')")))
	done := kit.Run(func() error { return c.Shutdown(context.Background()) })
	require.ErrorIs(t, done.Err(t), context.DeadlineExceeded)
	require.Equal(t, 1, count(t, conn, leftTickets), "the others are given back")
}

func TestAServerThatIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	url := s.URL("postgres") + "&synchronous_commit=on" // The servers of tests forget what was committed last.
	exec(t, admin(t, url), sqllock.Schema)
	c, other := dial(t, url), dial(t, url)
	session, kept := hold(t, sqllock.NewSession(c, "a")), hold(t, sqllock.NewLeased(c, "a", sqllock.WithLease(time.Minute)))
	waits := kit.Lock(t.Context(), sqllock.NewSession(other, "a").Lock)
	queued(t, sqllock.NewSession(c, "a"), 1)
	follows := kit.Lock(t.Context(), sqllock.NewLeased(other, "a").Lock)
	queued(t, sqllock.NewLeased(c, "a"), 1)

	begun := time.Now()
	require.NoError(t, s.Restart())
	require.ErrorIs(t, kit.Lost(t, session), lease.ErrForgotten, "all sessions have ended")
	t.Logf("back after %v", time.Since(begun))
	next := waits.Value(t)
	require.Greater(t, next.Token(), session.Token())
	kit.Release(t, next)

	require.NoError(t, kept.Context().Err(), "leases outlast the server")
	require.False(t, follows.Returned())
	require.NoError(t, kept.Release(t.Context()))
	last := follows.Value(t)
	require.Greater(t, last.Token(), next.Token(), "a token came twice")
	kit.Release(t, last)
}

// conforming is what both kinds have, made with the options that change says.
func conforming(url string, change func(*sqllock.Options), offers func(*sqllock.Client) conformance.Client) conformance.Engine {
	return conformance.Engine{
		Dial: func(t testing.TB) conformance.Client {
			w := &enginetest.Wires{}
			c := dial(t, url, change, func(o *sqllock.Options) {
				o.Config.ConnConfig.DialFunc = w.Connect
				if o.Direct != nil {
					o.Direct = o.Direct.Copy()
					o.Direct.DialFunc = w.Connect
				}
			})
			offered := offers(c)
			offered.Close = c.Shutdown
			offered.Cut = func() {
				// Before somebody reads for it a hold is young, and may hear of its loss when others hold.
				reading := w.Reading()
				reading += c.WatchNow()
				kit.Eventually(t, "the watch of what is held", func() bool { return w.Reading() >= reading })
				w.Cut()
			}
			offered.Silence = w.Silence
			return offered
		},
		Fair: true, Fenced: true, Told: true,
		Errors: enginetest.Errors,
	}
}

// missed is what neither kind offers.
var missed = []string{
	"mutex: a holder that asks is told when somebody waits: it is not told when it is Wanted",
	"mutex: a hold is told how the one before it ended: it does not say that it Remembers",
	"mutex: a hold is handed over once, ahead of the queue: the client has no Adopt",
	"mutex: a full queue refuses at once, and nobody who waits: the client has no Limited",
	"mutex: what a client keeps is given back to who wants it: the client has no Kept",
	"mutex: kinds of one name do not meet: nothing else is offered", "reentrant: it is not offered",
	"rwlock: it is not offered", "semaphore: it is not offered", "latch: it is not offered", "barrier: it is not offered",
}

func TestConformanceOfLeasedLocks(t *testing.T) {
	t.Parallel()
	patient := func(o *sqllock.Options) { o.GrantLease = kit.Patience } // A busy machine may be late with a first renewal.
	require.ElementsMatch(t, missed, conformance.Run(t, conforming(schema(t), patient, leases)))
}

// What users get who set no option. It minds the time more than others, so nothing else runs.
func TestConformanceOfLeasedLocksAsDelivered(t *testing.T) {
	require.ElementsMatch(t, missed, conformance.Run(t, conforming(schema(t), nil, leases)))
}

// leases offers leased locks.
func leases(c *sqllock.Client) conformance.Client {
	return conformance.Client{Mutex: func(name string, d time.Duration) conformance.Mutex {
		return leased{sqllock.NewLeased(c, name, sqllock.WithLease(d))}
	}}
}

// pooled leads a client through a pooler, and if that is not nil, some things directly.
func pooled(direct *pgx.ConnConfig) func(*sqllock.Options) {
	return func(o *sqllock.Options) {
		o.Config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // It has no prepared statements.
		o.Direct = direct
	}
}

// With a pooler there is no channel to hear, unless there is another way.
func TestConformanceOfLeasedLocksBehindAPooler(t *testing.T) {
	t.Parallel()
	for name, isDirect := range map[string]bool{"polling": false, "with a direct connection": true} {
		kit.Parallel(t, name, func(t *testing.T) {
			url := schema(t)
			var direct *pgx.ConnConfig
			if isDirect {
				direct = kit.Got(pgx.ParseConfig(url))(t)
			}
			patient := func(o *sqllock.Options) {
				o.GrantLease = kit.Patience
				pooled(direct)(o)
			}
			require.ElementsMatch(t, missed, conformance.Run(t, conforming(pgtest.Bouncer(t, url), patient, leases)))
		})
	}
}

type leased struct{ *sqllock.Leased }

func (m leased) Break(ctx context.Context) error { return kit.Err(m.ForceRelease(ctx, 0)) }

// schema is a database that has what locks need.
func schema(t testing.TB) string {
	t.Helper()
	url := pgtest.URL(t)
	pool := kit.Got(pgxpool.New(t.Context(), url))(t)
	defer pool.Close()
	require.NoError(t, kit.Err(pool.Exec(t.Context(), sqllock.Schema)))
	return url
}

// ownSchema is one for a test that runs in parallel with others.
func ownSchema(t *testing.T) string {
	t.Parallel()
	return schema(t)
}

// dial makes a client, which is closed with the test.
func dial(t testing.TB, url string, changes ...func(*sqllock.Options)) *sqllock.Client {
	t.Helper()
	config := kit.Got(pgxpool.ParseConfig(url))(t)
	o := sqllock.Options{Config: config}
	for _, change := range changes {
		if change != nil {
			change(&o)
		}
	}
	c := kit.Got(sqllock.Dial(t.Context(), o))(t)
	kit.Closing(t, c.Shutdown)
	return c
}
