package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestAClusterIsReachedAsOne(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	require.Len(t, c.Nodes(), 6)
	require.Equal(t, c.Nodes()[:3], c.Masters())
	for i, m := range c.Masters() {
		require.Equal(t, []*Node{c.Nodes()[3+i]}, c.Replicas(m))
		require.Same(t, m, c.Master((i+1)*slots/3-1), "shares ascend")
	}
	client := mustConnect(t, c.Option())
	want := map[string]int64{}
	for i := range 30 {
		key := "key" + strconv.Itoa(i)
		require.NoError(t, run(t, client, "SET", key, strconv.Itoa(i)).Error())
		require.Equal(t, int64(i), c.Int("GET", key))
		require.Equal(t, int64(Slot(key)), c.Nodes()[0].Int("CLUSTER", "KEYSLOT", key))
		want[key] = int64(i)
	}
	require.Len(t, c.Keys(), len(want))
	for _, m := range c.Masters() {
		require.Greater(t, len(m.Keys()), 2, "all masters have some of thirty")
	}
	require.Equal(t, int64(30), c.CommandStats()["set"])
	require.Zero(t, c.CommandStats()["get"], "those were the test's own")

	// WAIT makes a replica speak to its master.
	master := c.MasterOf("key1")
	direct := mustConnect(t, master.Option())
	require.NoError(t, run(t, direct, "SET", "key1", "1").Error())
	require.NoError(t, run(t, direct, "WAIT", "1", "0").Error())
	require.Positive(t, master.CommandStats()["replconf"])
	require.NotContains(t, c.CommandStats(), "replconf")

	require.ErrorIs(t, must.Err(c.Try("PING")), errKeyless)
	other := c.Master((Slot("key1") + slots/2) % slots)
	require.ErrorContains(t, must.Err(other.Try("GET", "key1")), "MOVED")

	// The client may ask for the slots in between.
	require.NoError(t, until(settleLimit, func() error {
		c.ResetStats()
		if left := c.CommandStats(); len(left) > 0 {
			return fmt.Errorf("commands are counted after a reset: %v", left)
		}
		return nil
	}))
	c.Kill()
	require.Error(t, must.Err(c.Try("GET", "key1")))
	require.Nil(t, c.Master(0))
}

func TestASlotMovesWithItsKeys(t *testing.T) {
	t.Parallel()
	c := ClusterOf(t, 3, 0, WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret"))
	client := mustConnect(t, c.Option())
	slot := Slot("tag")
	var want []string
	for i := range 2*moveKeys + 1 {
		want = append(want, fmt.Sprintf("{tag}%d", i))
		require.NoError(t, run(t, client, "SET", want[i], "1").Error())
	}
	from := c.Master(slot)
	to := c.Masters()[(slices.Index(c.Masters(), from)+1)%3]

	m := c.BeginMove(slot, to)
	require.Same(t, from, m.From)
	require.ElementsMatch(t, want, m.Keys())
	m.Send(want[:2]...)
	require.ElementsMatch(t, want[2:], m.Keys())
	require.Same(t, from, c.Master(slot), "it is not the target's yet")
	require.ErrorContains(t, must.Err(from.Try("GET", want[0])), "ASK")
	require.ErrorContains(t, must.Err(from.Try("MGET", want[0], want[2])), "TRYAGAIN")
	require.Equal(t, "1", c.Text("GET", want[0]), "the cluster knows where it is")
	require.Equal(t, "1", c.Text("GET", want[2]))
	require.NoError(t, run(t, client, "SET", "{tag}new", "1").Error())
	want = append(want, "{tag}new")
	require.NotContains(t, m.Keys(), "{tag}new")

	m.Finish()
	require.Same(t, to, c.Master(slot))
	require.ElementsMatch(t, want, to.Keys())
	require.Empty(t, from.Keys())
	require.NoError(t, run(t, client, "SET", want[0], "2").Error())
	require.Equal(t, "2", to.Text("GET", want[0]))

	c.MoveSlot(slot, from)
	require.ElementsMatch(t, want, from.Keys())
	require.Empty(t, to.Keys())
}

func TestAReplicaTakesThePlaceOfItsMaster(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	slot := Slot("a")
	c.Do("SET", "a", "1")
	old := c.Master(slot)
	replica := c.Replicas(old)[0]

	require.Same(t, replica, c.Failover(old))
	require.Same(t, replica, c.Master(slot))
	require.Equal(t, []*Node{old}, c.Replicas(replica))
	require.Equal(t, "1", c.Text("GET", "a"))
	require.ErrorContains(t, must.Err(old.Try("SET", "a", "2")), "MOVED")

	// The other way round, by force, with the master stopped: it comes back and gives in.
	replica.Stop()
	require.Same(t, old, c.Failover(replica, "FORCE"))
	replica.Cont()
	c.Settle()
	require.Equal(t, []*Node{replica}, c.Replicas(old))

	// And with nobody asked: of three masters two are down, so there is no majority to vote.
	other := c.Master((slot + slots/2) % slots)
	old.Kill()
	other.Kill()
	require.Same(t, replica, c.Failover(old, "TAKEOVER"))
	require.Equal(t, "1", c.Text("GET", "a"))
}

func TestAClusterReplacesADeadMasterByItself(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	c.Do("SET", "a", "1")
	old := c.MasterOf("a")
	replica := c.Replicas(old)[0]
	old.Kill()
	require.Nil(t, c.MasterOf("a"))
	c.Settle()
	require.Same(t, replica, c.MasterOf("a"))
	require.Equal(t, "1", c.Text("GET", "a"))

	old.Restart()
	c.Settle()
	require.Equal(t, []*Node{old}, c.Replicas(replica))
	require.Equal(t, []string{"a"}, old.Keys())
}

func TestOfTwoThatClaimASlotTheLaterHasIt(t *testing.T) {
	t.Parallel()
	before := claim{&Node{ID: "before"}, member{epoch: 4, slots: []span{{0, 5}}}}
	after := claim{&Node{ID: "after"}, member{epoch: 7, slots: []span{{5, 5}}}}
	for _, claims := range [][]claim{{before, after}, {after, before}} {
		owner := granted(claims)
		require.Same(t, before.node, owner[4])
		require.Same(t, after.node, owner[5])
		require.Nil(t, owner[6])
	}
}

func TestWhatNodesSayIsUnderstood(t *testing.T) {
	t.Parallel()
	found, err := members("" +
		"b 127.0.0.1:1@2 slave,fail a 0 1 4 disconnected\n" +
		"a 127.0.0.1:3@4 myself,master - 0 0 7 connected 5 7-9 [10->-b]\n")
	require.NoError(t, err)
	require.Equal(t, []member{
		{"a", []string{"myself", "master"}, "-", 7, "connected", []span{{5, 5}, {7, 9}}},
		{"b", []string{"slave", "fail"}, "a", 4, "disconnected", nil},
	}, found)
	require.Equal(t, "b replica of a []", found[1].layout())
	for _, bad := range []string{"a b c\n", "a b c - 0 0 x connected\n", "a b c - 0 0 1 connected 1-x\n"} {
		require.Error(t, must.Err(members(bad)), bad)
	}
}
