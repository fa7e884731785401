package sqllock_test

import (
	"context"
	"testing"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
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
