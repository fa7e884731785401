package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentinelsMakeAnotherServerTheMaster(t *testing.T) {
	t.Parallel()
	r := Sentinel(t)
	require.Len(t, r.Sentinels(), 3)
	old := r.Master()
	client := mustConnect(t, r.Option())
	require.NoError(t, run(t, client, "SET", "a", "1").Error())
	require.Equal(t, "1", r.Text("GET", "a"))
	require.Equal(t, []string{"a"}, old.Keys())

	master := r.Failover()
	require.NotSame(t, old, master)
	require.Same(t, master, r.Master())
	require.Equal(t, "1", r.Text("GET", "a"))
	_, err := old.Try("SET", "a", "2")
	require.ErrorContains(t, err, "READONLY")
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "3").Error())
	require.Equal(t, "3", master.Text("GET", "a"))

	old.Restart()
	its, err := old.replication()
	require.NoError(t, err)
	require.Equal(t, "slave", its["role"], "at once, not when a sentinel comes to see it")

	r.Restart()
	require.Same(t, master, r.Master(), "roles outlive the processes")
	require.Empty(t, r.Keys())
	r.Kill()
	for _, s := range append(r.Servers(), r.Sentinels()...) {
		require.False(t, s.Running())
	}
}

func TestSentinelsReplaceADeadMasterByThemselves(t *testing.T) {
	t.Parallel()
	r := Sentinel(t, WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret"))
	client := mustConnect(t, r.Option())
	require.NoError(t, run(t, client, "SET", "a", "1").Error())
	old := r.Master()
	old.Kill()
	r.Settle()
	require.NotSame(t, old, r.Master())
	require.Equal(t, "1", r.Text("GET", "a"))

	old.Restart()
	r.Sentinels()[0].Kill()
	r.Settle()
	require.Equal(t, []string{"a"}, old.Keys(), "it follows, and has what the new one has")
	require.NotSame(t, old, r.Master(), "two sentinels are enough")
	r.Sentinels()[0].Restart()
	r.Settle()
}
