package sqllock_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

func TestAnObserverIsToldOfCallsAndHolds(t *testing.T) {
	t.Parallel()
	url := schema(t)
	o := &kit.Observer{}
	mine, theirs := dial(t, url, func(x *sqllock.Options) { x.Observer = o }), dial(t, url)
	other := sqllock.NewLeased(theirs, "one")
	enginetest.AnObserverIsTold(t, o, "one", sqllock.NewLeased(mine, "one"), other, func() error {
		_, err := other.ForceRelease(t.Context(), 0)
		return err
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
	other := hold(t, n)
	call := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "the call to wait", func() bool { w, err := n.Waiting(t.Context()); return err == nil && w == 1 })
	conn := admin(t, url)
	kit.Eventually(t, "it to listen", func() bool { return count(t, conn, listeners) > 0 })
	p.Freeze(faults.ToClient)
	kit.Release(t, other)
	kit.Eventually(t, "the end of the grant", func() bool { w, err := n.Waiting(t.Context()); return err == nil && w == 0 })
	passed := time.After(grant + 100*time.Millisecond)
	<-passed
	p.Heal()
	l := call.Value(t)
	kit.Release(t, l)
	told := o.Of(observe.Granted, observe.Released)
	require.Len(t, told, 2)
	for _, x := range told {
		require.Equal(t, l.Token(), x.Token)
	}
}

// A program that dials until its database is there.
func TestADialThatFailsLeavesNoGoroutine(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	for range 50 {
		_, err := sqllock.Dial(t.Context(), sqllock.Options{Config: config, Log: slog.New(slog.DiscardHandler)})
		require.Error(t, err)
	}
	kit.Eventually(t, "their end", func() bool { return runtime.NumGoroutine() < before+25 })
}

func TestTimesBelowZeroAreRefused(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	require.NoError(t, err)
	for _, o := range []sqllock.Options{{Config: config, HeldTooLong: -1}, {Config: config, WaitedTooLong: -1}} {
		_, err := sqllock.Dial(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}
