package etcdlock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func TestAnObserverIsToldOfCallsAndHolds(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	o := &kit.Observer{}
	mine := etcdlock.New(dial(t, s, func(x *etcdlock.Options) { x.Observer = o }), "one")
	theirs := etcdlock.New(dial(t, s), "one")
	enginetest.AnObserverIsTold(t, o, "one", mine, theirs, func() error {
		_, err := theirs.ForceRelease(t.Context(), 0)
		return err
	})
}

func TestTheServerIsSeenToGoAndComeBack(t *testing.T) {
	t.Parallel()
	s, o := etcdtest.Own(t), &kit.Requests{}
	c := dial(t, s, lasting(enginetest.Short), func(x *etcdlock.Options) { x.Observer, x.Name = o, "observed" })
	rig(t, s).TheServerIsSeenToGoAndComeBack(t, o, etcdlock.New(c, "one").Lock, "etcd")
}
