package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestTheDoctorVisitsAllNodesOfACluster(t *testing.T) {
	t.Parallel()
	s := redistest.ClusterOf(t, 3, 1)
	url := "redis://" + s.Nodes()[0].Addr()
	d, code, _ := consult(t, url)
	require.Zero(t, code)
	require.Equal(t, "cluster", d.Report.Mode)
	require.Equal(t, true, *d.Report.Sharded)
	require.Len(t, d.Report.Servers, 6)
	for i, at := range d.Report.Servers {
		require.True(t, at.Reachable)
		require.Equal(t, "cluster", *at.Kind)
		require.Equal(t, "ok", *at.State)
		require.Equal(t, int64(16384), *at.Slots)
		if i%2 == 1 {
			require.Equal(t, "replica", *at.Role)
			require.Equal(t, d.Report.Servers[i-1].Address, *at.Master)
		} else {
			require.Equal(t, "master", *at.Role)
		}
	}
	require.Equal(t, "caution", d.about()["WithReplicas"])
	require.NotContains(t, d.about(), "reachable")

	doomed := s.Masters()[0]
	s.Replicas(doomed)[0].Kill()
	d, code, _ = consult(t, "redis://"+s.Masters()[1].Addr())
	require.Zero(t, code)
	require.Len(t, d.Report.Servers, 6, "also the one that is away")
	require.Equal(t, "caution", d.about()["reachable"])

	rest := "redis://" + s.Masters()[1].Addr()
	doomed.Kill()
	d, code, _ = consult(t, rest)
	require.NotZero(t, code)
	require.True(t, d.Endangered)
	require.Equal(t, "danger", d.about()["reachable"])
	i := slices.IndexFunc(d.Report.Servers, func(s aServer) bool { return s.Address == doomed.Addr() })
	require.False(t, d.Report.Servers[i].Reachable)
	require.Equal(t, "master", *d.Report.Servers[i].Role)
}

// The cluster goes on without the old master: what is left of it endangers nothing.
func TestTheDoctorSeesThatAClusterHasFailedOver(t *testing.T) {
	t.Parallel()
	s := redistest.ClusterOf(t, 3, 1)
	old, rest := s.Masters()[0], "redis://"+s.Masters()[1].Addr()
	replica := s.Replicas(old)[0]
	old.Kill()
	require.Equal(t, replica.Addr(), s.Failover(old, "TAKEOVER").Addr())
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(s.Masters(), func(n *redistest.Node) bool { return !strings.Contains(n.Text("CLUSTER", "NODES"), "master,fail ") })
	}, time.Minute, 10*time.Millisecond)
	d, code, _ := consult(t, rest)
	require.Zero(t, code)
	require.False(t, d.Endangered)
	require.Equal(t, "caution", d.about()["reachable"])
	i := slices.IndexFunc(d.Report.Servers, func(s aServer) bool { return s.Address == old.Addr() })
	require.False(t, d.Report.Servers[i].Reachable)
}

func TestTheDoctorMissesShardedChannelsAndTheRightToFindOutAboutACluster(t *testing.T) {
	t.Parallel()
	s := redistest.ClusterOf(t, 3, 0, redistest.WithoutShardedChannels())
	node := s.Nodes()[0]
	d, code, _ := consult(t, "redis://"+node.Addr())
	require.Zero(t, code)
	require.Equal(t, false, *d.Report.Sharded)
	require.False(t, d.Report.Skips)
	require.Equal(t, "caution", d.about()["SSUBSCRIBE, SPUBLISH"])

	for _, n := range s.Nodes() {
		n.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-cluster")
		n.Do("ACL", "SETUSER", "unranked", "on", ">secret", "~*", "&*", "+@all", "-zrank")
	}
	d, code, _ = consult(t, "redis://unranked:secret@"+node.Addr())
	require.Equal(t, exitUnavailable, code)
	require.Equal(t, "danger", d.about()["ACL SETUSER"])
	require.NotNil(t, d.Report.Sharded, "that much can be found out of what Dial refuses")
	require.Equal(t, false, *d.Report.Sharded)
	d, code, _ = consult(t, "redis://limited:secret@"+node.Addr())
	require.NotZero(t, code, "who may not ask for the slots can use one node's names at the most")
	require.Equal(t, "danger", d.about()["CLUSTER SLOTS"])
	require.Equal(t, node.Addr(), d.Report.Servers[0].Address)
}
