package zklock

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

// A call that waits for the end of a hold of its own client has asked for a watch on the node of that. The hold's own
// guard joins it, and the connection breaks before the answer. No beat is within the test.
func TestAGuardThatJoinedALostRequestWatchesAnyway(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	relay := zktest.NewRelay(t, server)
	client := func(address string) *Client {
		c, err := Dial(Options{Servers: []string{address}, Prefix: "/" + kit.Name(t), Lease: 8 * kit.Patience})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
		return c
	}
	c := client(relay.Addr())
	l, err := New(c, "one").Lock(t.Context())
	require.NoError(t, err)
	var held *ticket
	c.core.Lock()
	for _, held = range c.core.Tickets {
	}
	c.core.Unlock()

	relay.Freeze()
	waits := kit.Run(func() error { _, err := held.Session.watch(held.path); return err })
	kit.Eventually(t, "a watch to be asked for", func() bool {
		c.core.Lock()
		defer c.core.Unlock()
		return held.Session.watches[held.path] != nil
	})
	guard := kit.Run(func() error { held.guard(); return nil })
	relay.Cut()
	relay.Heal()
	require.ErrorIs(t, waits.Err(t), zk.ErrConnectionClosed)
	require.NoError(t, guard.Err(t))
	_, err = New(client(server.Address()), "one").ForceRelease(t.Context(), l.Token())
	require.NoError(t, err)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
}
