package conn

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestIdleConnectionsAreProbedByTheKernelUnlessTheUserSaysHow(t *testing.T) {
	t.Parallel()
	o := commandOption(rueidis.ClientOption{}, newSockets())
	require.Equal(t, pingEvery, o.Dialer.KeepAlive)
	require.True(t, o.Dialer.KeepAliveConfig.Enable)
	require.Equal(t, probeEvery, o.Dialer.KeepAliveConfig.Idle)

	var asked rueidis.ClientOption
	asked.Dialer.KeepAlive = time.Minute
	o = commandOption(asked, newSockets())
	require.Equal(t, time.Minute, o.Dialer.KeepAlive)
	require.False(t, o.Dialer.KeepAliveConfig.Enable)
	require.Equal(t, pingEvery, sideOption(asked, newSockets()).Dialer.KeepAlive)
}
