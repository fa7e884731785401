package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const masterInfo = "# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:926de3e2\r\nuptime_in_seconds:93784\r\n" +
	"executable:/usr/bin/redis-server\r\nconfig_file:\r\n\r\n" +
	"# Memory\r\nused_memory:916880\r\nused_memory_human:895.39K\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\r\n" +
	"# Persistence\r\nrdb_last_bgsave_status:ok\r\nrdb_last_bgsave_time_sec:-1\r\naof_last_write_status:err\r\n\r\n" +
	"# Replication\r\nrole:master\r\nconnected_slaves:2\r\n" +
	"slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n" +
	"slave1:ip=fe80::2,port=6380,state=wait_bgsave,offset=0,lag=17\r\n"

func TestWhatInfoTellsIsRead(t *testing.T) {
	i := parseInfo(masterInfo)
	assert.Equal(t, known("7.0.15"), i.text("redis_version"))
	assert.Equal(t, known(26*time.Hour+3*time.Minute+4*time.Second), i.seconds("uptime_in_seconds"))
	assert.Equal(t, known(int64(916880)), i.number("used_memory"))
	assert.Equal(t, known("master"), i.role())
	assert.Equal(t, known(true), i.is("rdb_last_bgsave_status", "ok"))
	assert.Equal(t, known(false), i.is("aof_last_write_status", "ok"))
	assert.Equal(t, "/usr/bin/redis-server", i["executable"])
	assert.Equal(t, []ReplicaReport{
		{"10.0.0.2:6379", known("online"), known(time.Duration(0))},
		{"[fe80::2]:6380", known("wait_bgsave"), known(17 * time.Second)},
	}, i.replicas())
	product, version := i.product()
	assert.Equal(t, []Fact[string]{known("redis"), known("7.0.15")}, []Fact[string]{product, version})
}

func TestWhatInfoDoesNotTellIsUnknown(t *testing.T) {
	for _, text := range []string{
		"", "\r\n", "# Server", ":", "::", "redis_version", "redis_version:", ":7.0.15", "#redis_version:7.0.15\r\n",
		"used_memory:\nuptime_in_seconds:\nslave0:\n", "used_memory:-1\nuptime_in_seconds:-1\n",
		"used_memory:1.5\nuptime_in_seconds:99999999999999\n", "role:leader\nmaster_host:here\nslave1:ip=a,port=1\n",
	} {
		i := parseInfo(text)
		assert.False(t, i.text("redis_version").Known, text)
		assert.False(t, i.number("used_memory").Known, text)
		assert.False(t, i.seconds("uptime_in_seconds").Known, text)
		assert.False(t, i.role().Known, text)
		assert.False(t, i.is("rdb_last_bgsave_status", "ok").Known, text)
		assert.False(t, i.address("master_host", "master_port").Known, text)
		product, version := i.product()
		assert.False(t, product.Known || version.Known, text)
		for _, r := range i.replicas() {
			assert.Equal(t, ReplicaReport{}, r, text)
		}
	}
	assert.Equal(t, "first", parseInfo("a:first\na:second\n")["a"])
}

func TestServersAreCalledByTheirNames(t *testing.T) {
	for text, want := range map[string]string{
		"redis_version:7.2.4\nserver_name:valkey\nvalkey_version:8.1.0": "valkey 8.1.0",
		"redis_version:7.2.0\ndragonfly_version:df-v1.2":                "dragonfly df-v1.2",
		"redis_version:6.2.7":                       "redis 6.2.7",
		"redis_version:7.4.0\nserver_name:somebody": "somebody 7.4.0",
		"role:slave": "unknown unknown",
	} {
		product, version := parseInfo(text).product()
		assert.Equal(t, want, product.String()+" "+version.String())
	}
	assert.Equal(t, known("sentinel"), parseInfo("redis_mode:sentinel").role())
	assert.Equal(t, known("replica"), parseInfo("role:slave").role())
}

func TestTheNodesOfAClusterAreRead(t *testing.T) {
	text := "1a 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\n" +
		"2b 10.0.0.2:6379@16379,two.internal,shard-id=x slave 1a 0 0 1 connected\n" +
		"3c fe80::3:6379@16379,,tls-port=0 master,fail - 0 0 3 disconnected 5461-10922\n" +
		"4d :0@0 slave,fail?,noaddr 3c 0 0 3 disconnected\n" +
		"5e 10.0.0.5:6379 handshake\n"
	assert.Equal(t, []clusterNode{
		{"1a", "10.0.0.1:6379", "", true, false, true, "-"},
		{"2b", "10.0.0.2:6379", "two.internal:6379", false, false, false, "1a"},
		{"3c", "[fe80::3]:6379", "", true, true, true, "-"},
		{"4d", ":0", "", false, true, false, "3c"},
	}, parseClusterNodes(text))
}

// Behind the state of a node's link stand its slots, and among these marks of those that move.
func TestTheSlotsOfANodeAreRead(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, " 0-5460": true, " 7": true, " [93-<-1a] 7": true,
		" [93-<-1a]": false, " [77->-1a]": false, " 77 [77->-1a]": true, " [93-<-1a] [94-<-1a]": false,
	} {
		nodes := parseClusterNodes("5e 10.0.0.5:6379@16379 myself,master - 0 0 1 connected" + text + "\n")
		require.Len(t, nodes, 1)
		assert.Equal(t, want, nodes[0].slots, text)
	}
}

func TestTheLimitOfBuffersIsRead(t *testing.T) {
	const setting = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
	limit, ok := parseBufferLimit(setting, "pubsub")
	require.True(t, ok)
	assert.Equal(t, bufferLimit{33554432, 8388608, time.Minute}, limit)
	for _, broken := range []string{"", "pubsub", "pubsub 1 2", "pubsub a 2 3", "normal x 0 0 pubsub 1 2 3"} {
		_, ok := parseBufferLimit(broken, "pubsub")
		assert.False(t, ok, broken)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for version, want := range map[string][2]bool{ // before 6.2, before 7.0
		"5.0.14": {true, true}, "6.0.16": {true, true}, "6.1.9": {true, true}, "6.2.0": {false, true}, "6.10": {false, true}, "7.0.15": {false, false},
		"7.0-rc1": {false, false}, "255.255.255": {false, false}, "7": {false, false}, "": {false, false}, "six.two": {false, false},
	} {
		assert.Equal(t, want, [2]bool{older(known(version), 6, 2), older(known(version), 7, 0)}, version)
	}
	assert.False(t, older(Fact[string]{}, 6, 2))
}

func TestATimeIsRead(t *testing.T) {
	at, ok := parseTime([]string{"1795284009", "948718"})
	require.True(t, ok)
	assert.Equal(t, int64(1795284009948718), at.UnixMicro())
	for _, broken := range [][]string{nil, {"1"}, {"1", ""}, {"", "1"}, {"1", "2", "3"}} {
		_, ok := parseTime(broken)
		assert.False(t, ok, "%q", broken)
	}
}

// FuzzServerText reads any text in every way: what comes of it must be what was in it.
func FuzzServerText(f *testing.F) {
	f.Add(masterInfo)
	f.Add("cluster_state:ok\r\ncluster_slots_ok:16384\r\n")
	f.Add("2b 10.0.0.2:6379@16379,two.internal slave,fail? 1a 0 0 1 connected\n")
	f.Add("pubsub 33554432 8388608 60")
	f.Fuzz(func(t *testing.T, text string) {
		i := parseInfo(text)
		var again strings.Builder
		for _, key := range slices.Sorted(maps.Keys(i)) {
			require.NotEmpty(t, key)
			require.NotContains(t, key, ":")
			require.Contains(t, text, key+":"+i[key])
			fmt.Fprintf(&again, "%s:%s\r\n", key, i[key])
			if n := i.number(key); n.Known {
				require.GreaterOrEqual(t, n.Value, int64(0))
			}
			if d := i.seconds(key); d.Known {
				require.GreaterOrEqual(t, d.Value, time.Duration(0))
			}
		}
		require.Equal(t, i, parseInfo(again.String()))
		require.LessOrEqual(t, len(i.replicas()), len(i))
		i.role()
		i.product()
		for _, n := range parseClusterNodes(text) {
			require.Contains(t, text, n.id)
			require.Contains(t, text, n.of)
		}
		if limit, ok := parseBufferLimit(text, "pubsub"); ok {
			require.Contains(t, text, "pubsub")
			require.LessOrEqual(t, limit.after, longestTime)
		}
	})
}
