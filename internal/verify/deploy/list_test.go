package deploy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// listed is what a client finds, by name.
func listed(t *testing.T, c *headwaiter.Client, pattern string) (names []string) {
	t.Helper()
	for n, err := range inspect.List(t.Context(), c, pattern) {
		require.NoError(t, err)
		require.NoError(t, n.Err)
		require.True(t, n.Info.Held)
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// All masters are walked over, and what is found at two of them, as its slot has moved, is told once.
func TestAListOfACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := kit.Dial(t, s)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint("name", i))
		// No renewal is to find out before the list does that a node has moved.
		_, err := fairlock.New(c, names[i], headwaiter.WithLease(time.Hour)).Lock(t.Context())
		require.NoError(t, err)
	}
	slices.Sort(names)
	require.Equal(t, names, listed(t, c, "*"))
	var found []string
	for n, err := range inspect.List(t.Context(), c, "*") {
		require.NoError(t, err)
		if len(found) == 0 { // It moves to the master that comes last, and is met there again.
			s.MoveSlot(redistest.Slot(lua.Fairlock.Keys("headwaiter", n.Name).Lock), s.Master(lua.Slots-1))
		}
		found = append(found, n.Name)
	}
	slices.Sort(found)
	require.Equal(t, names, found)
	require.Equal(t, names, listed(t, c, "*"))
	require.Equal(t, []string{"name7"}, listed(t, c, "name7"))
	s.Failover(s.Masters()[0])
	require.Equal(t, names, listed(t, c, "*"))
}

func TestADeadlockInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	names := []string{"a", "b", "c"} // They are at three masters.
	clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)}
	for i, c := range clients {
		_, err := fairlock.New(c, names[i]).Lock(t.Context())
		require.NoError(t, err)
	}
	for i, c := range clients {
		m := fairlock.New(c, names[(i+1)%3])
		kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
	}
	g, err := inspect.Deadlocks(t.Context(), kit.Dial(t, s), 0)
	require.NoError(t, err)
	require.Len(t, g.Cycles, 1)
	require.Len(t, g.Cycles[0], 3)
}
