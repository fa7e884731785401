package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/lease"
)

// behind is a server with a proxy before it, which is what stands still.
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
		return enginetest.Client{Close: c.Close, Mutex: func(name string, _ engine.Limits) enginetest.Mutex {
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
