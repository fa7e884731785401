package waitqueue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// rueidis takes an embedded server for a cluster where it is not told otherwise. It has one node, so those who
// subscribe there are all, and dead waiters are skipped.
func TestTheSubscribersOfAClusterOfOneNodeAreCounted(t *testing.T) {
	o := redistest.Mini(t).Option()
	o.ForceSingleClient = false
	c, err := Dial(Options{Redis: o})
	require.NoError(t, err)
	require.True(t, c.servers.Clustered(), "it is not taken for a cluster: shows nothing")
	require.Equal(t, "1", c.servers.Counted())
	require.NoError(t, c.Close(t.Context()))
}
