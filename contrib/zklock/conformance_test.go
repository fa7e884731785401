package zklock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestConformance(t *testing.T) {
	s := zktest.Shared(t)
	missed := conformance.Run(t, conformance.Engine{
		Dial: func(t testing.TB) conformance.Client { return conforming(t, s) },
		Fair: true, Fenced: true, Told: true, Lease: enginetest.Short,
		Errors: conformance.Errors{
			Busy: lease.ErrBusy, Closed: lease.ErrClosed, Deadlock: lease.ErrDeadlock,
			Name: lease.ErrInvalid, TooLarge: lease.ErrTooLarge,
		},
	})
	require.Equal(t, notOffered, missed)
}

// notOffered is what zklock does not have.
var notOffered = []string{
	"mutex: a holder that asks is told when somebody waits: it is not told when it is Wanted",
	"mutex: a hold is handed over once, ahead of the queue: the client has no Adopt",
	"mutex: a full queue refuses at once, and nobody who waits: the client has no Limited",
	"mutex: what a client keeps is given back to who wants it: the client has no Kept",
	"mutex: kinds of one name do not meet: nothing else is offered",
	"reentrant: it is not offered",
	"rwlock: it is not offered",
	"semaphore: it is not offered",
	"latch: it is not offered",
	"barrier: it is not offered",
}

func conforming(t testing.TB, s *zktest.Server) conformance.Client {
	t.Helper()
	w := &enginetest.Wires{}
	c, err := zklock.Dial(zklock.Options{Servers: []string{s.Address()}, Lease: enginetest.Short, Name: "conformance", Dialer: w.Connect})
	require.NoError(t, err)
	return conformance.Client{
		Mutex: func(name string, _ time.Duration) conformance.Mutex {
			return enginetest.Conforming{Forcible: zklock.New(c, name)}
		},
		Close: c.Close,
		Cut:   w.Cut, Silence: w.Silence,
	}
}
