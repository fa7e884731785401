package zklock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// childMutex is the lock of a process that holds.
func childMutex(address, prefix string) (enginetest.Mutex, error) {
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}, Prefix: prefix, Lease: enginetest.Short})
	if err != nil {
		return nil, err
	}
	return zklock.New(c, "one"), nil
}

func TestAProcessThatWasStoppedKnowsThatItLost(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	rig(t, s).AProcessThatWasStoppedKnowsThatItLost(t, s.Address(), prefix(t))
}
