package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
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

func TestAnUnlockIsToldAsAReleaseThatWentWell(t *testing.T) {
	s := etcdtest.Shared(t)
	o := &kit.Observer{}
	mine := etcdlock.New(dial(t, s, func(x *etcdlock.Options) { x.Observer = o }), "one")
	locked(t, mine).Unlock()
	kit.Release(t, locked(t, mine)) // Behind the end of the one before.
	all := o.Of(observe.Released)
	require.Len(t, all, 2)
	require.NoError(t, all[0].Err)
}

func TestTimesBelowZeroAreRefused(t *testing.T) {
	etcd := clientv3.Config{Endpoints: []string{etcdtest.Shared(t).Endpoint()}, Logger: quiet}
	for _, o := range []etcdlock.Options{{Etcd: etcd, HeldTooLong: -1}, {Etcd: etcd, WaitedTooLong: -1}} {
		_, err := etcdlock.Dial(o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}
