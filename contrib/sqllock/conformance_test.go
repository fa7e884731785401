package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

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
			offered.Close = c.Close
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
		Errors: conformance.Errors{
			Busy: lease.ErrBusy, Closed: lease.ErrClosed, Deadlock: lease.ErrDeadlock,
			Name: lease.ErrInvalid, TooLarge: lease.ErrTooLarge,
		},
	}
}

// missed is what neither kind offers.
var missed = []string{
	"mutex: a holder that asks is told when somebody waits: it is not told when it is Wanted",
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

// What users get who set no option. It minds the time more than others, so nothing runs beside it.
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

// Behind a pooler there is no channel to hear, unless there is another way.
func TestConformanceOfLeasedLocksBehindAPooler(t *testing.T) {
	t.Parallel()
	for name, isDirect := range map[string]bool{"polling": false, "with a direct connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schema(t)
			var direct *pgx.ConnConfig
			if isDirect {
				var err error
				direct, err = pgx.ParseConfig(url)
				require.NoError(t, err)
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

func (m leased) Break(ctx context.Context) error {
	_, err := m.ForceRelease(ctx, 0)
	return err
}

// schema is a database that has what locks need.
func schema(t testing.TB) string {
	t.Helper()
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), sqllock.Schema)
	require.NoError(t, err)
	return url
}

// dial makes a client, which is closed with the test.
func dial(t testing.TB, url string, changes ...func(*sqllock.Options)) *sqllock.Client {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	o := sqllock.Options{Config: config}
	for _, change := range changes {
		if change != nil {
			change(&o)
		}
	}
	c, err := sqllock.Dial(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // The server may be gone; a test that wants to know closes by itself.
	})
	return c
}
