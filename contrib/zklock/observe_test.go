package zklock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

func TestAnObserverIsToldOfCallsAndHolds(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	o := &kit.Observer{}
	mine := zklock.New(dial(t, s, func(x *zklock.Options) { x.Observer = o }), "one")
	theirs := zklock.New(dial(t, s), "one")
	enginetest.AnObserverIsTold(t, o, "one", mine, theirs, func() error {
		_, err := theirs.ForceRelease(t.Context(), 0)
		return err
	})
}

func TestTheServerIsSeenToGoAndComeBack(t *testing.T) {
	t.Parallel()
	s, o := zktest.Own(t), &kit.Requests{}
	c := dial(t, s, lasting(enginetest.Short), func(x *zklock.Options) { x.Observer, x.Name = o, "observed" })
	rig(t, s).TheServerIsSeenToGoAndComeBack(t, o, zklock.New(c, "one").Lock, "zookeeper")
}
