package sqllock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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
