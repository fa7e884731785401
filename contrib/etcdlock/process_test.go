package etcdlock_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
)

// childMutex is the lock of a process that holds.
func childMutex(endpoint, prefix string) (enginetest.Mutex, error) {
	c, err := etcdlock.Dial(etcdlock.Options{
		Etcd:   clientv3.Config{Endpoints: []string{endpoint}, Logger: quiet},
		Prefix: prefix, Lease: enginetest.Short,
	})
	if err != nil {
		return nil, err
	}
	return etcdlock.New(c, "one"), nil
}

func TestAProcessThatWasStoppedKnowsThatItLost(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	rig(t, s).AProcessThatWasStoppedKnowsThatItLost(t, s.Endpoint(), prefix(t))
}
