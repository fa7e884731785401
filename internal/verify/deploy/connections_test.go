package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// connectionsOf are those that a client of this name has at a server: all of them, and those that subscribe.
func connectionsOf(n *redistest.Node, name string) (all, subscribe int) {
	for line := range strings.Lines(n.Text("CLIENT", "LIST")) {
		if strings.Contains(line, " name="+name+" ") {
			all++
			if strings.Contains(line, " ssub=") && !strings.Contains(line, " ssub=0 ") {
				subscribe++
			}
		}
	}
	return all, subscribe
}

// However many locks a client holds and waits for, it has three connections to each master: one for commands, one for
// renewals, one that subscribes.
func TestAThousandLocksOfAClusterNeedThreeConnectionsANode(t *testing.T) {
	t.Parallel()
	const locks = 1000
	s := redistest.Cluster(t)
	holder := kit.Dial(t, s)
	waiter := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.ClientName = "waiter" })
	var held [locks]*lease.Lease
	var waits [locks]*kit.Call[*lease.Lease]
	for i := range locks {
		name := fmt.Sprint("lock:", i)
		l, err := fairlock.New(holder, name, headwaiter.WithLease(time.Minute)).Lock(t.Context())
		require.NoError(t, err)
		held[i] = l
		waits[i] = kit.Lock(t.Context(), fairlock.New(waiter, name, headwaiter.WithLease(10*time.Second)).Lock)
	}
	kit.Waiting(t, 1, fairlock.New(holder, fmt.Sprint("lock:", locks-1)).Inspect)
	kit.Eventually(t, "all subscriptions", func() bool { return waiter.Stats().Subscribes >= locks })
	count := func() {
		t.Helper()
		for _, n := range s.Masters() {
			all, subscribe := connectionsOf(n, "waiter")
			require.LessOrEqual(t, all, 3)
			require.True(t, subscribe == 1 || redistest.Before7(), "it has names there, and nobody listens") // Plain channels are heard at any node.
		}
	}
	count()
	for i := range locks {
		kit.Release(t, held[i])
		held[i] = waits[i].Value(t)
	}
	// As many as there are holds: each master has had its part of them.
	kit.Eventually(t, "renewals of all", func() bool { return waiter.Stats().Renewals >= locks })
	count()
	for _, n := range s.Nodes() {
		all, _ := connectionsOf(n, "waiter")
		require.LessOrEqual(t, all, 3, "connections to a replica, which has nothing to do but to be asked for the slots")
	}
	for _, l := range held {
		kit.Release(t, l)
	}
}
