package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestReplicasAreAskedToo(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 2)
	r := reported(t, s.Master())
	require.Len(t, r.Servers, 3)
	require.Equal(t, s.Master().Addr(), r.Servers[0].Address)
	require.Len(t, r.Servers[0].Replicas, 2)
	for _, at := range r.Servers[1:] {
		assert.Equal(t, known("replica"), at.Role)
		assert.Equal(t, known(s.Master().Addr()), at.Master)
		assert.Equal(t, known(true), at.LinkUp)
		assert.True(t, at.Clock.Known && at.RoundTrip.Known)
		assert.Equal(t, "yes", at.Settings["replica-read-only"])
	}
	require.Equal(t, map[string]Severity{"WithReplicas": Caution, "appendonly": Caution}, about(r))

	writable, gone := s.Replicas()[0], s.Replicas()[1]
	writable.Do("CONFIG", "SET", "replica-read-only", "no")
	gone.Stop() // Its master still counts it.
	r = reported(t, s.Master())
	gone.Cont()
	require.Equal(t, Caution, about(r)["replica-read-only"])
	require.Equal(t, Caution, about(r)["reachable"])
	i := slices.IndexFunc(r.Servers, func(s ServerReport) bool { return s.Address == gone.Addr() })
	require.False(t, r.Servers[i].Reachable)
	require.Contains(t, strings.Join(r.Servers[i].Notes, ""), "connection: ")

	// And as if such a replica were the server of the locks.
	r = reported(t, writable)
	require.Equal(t, Danger, about(r)["replica-read-only"])
	require.Contains(t, r.Warnings[0].Remedy, s.Master().Addr())
	s.Cut(s.Replicas()[1])
	r, err := Examine(t.Context(), headwaiter.Options{Redis: s.Replicas()[1].Option()})
	require.NotErrorIs(t, err, lease.ErrUnusable, "it may become a master")
	require.ErrorContains(t, err, "this is a replica")
	require.Equal(t, Danger, about(r)["address"])
	require.Equal(t, Caution, about(r)["master_link_status"])
}

func TestTheConnectionsOfACallerAreUsedForNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	rc := kit.Got(rueidis.NewClient(s.Option()))(t)
	defer rc.Close()
	c := kit.Got(headwaiter.New(rc, headwaiter.Options{}))(t)
	defer c.Shutdown(context.Background())
	r := kit.Got(Diagnose(t.Context(), c))(t)
	require.Len(t, r.Servers, 1)
	require.Len(t, r.Servers[0].Replicas, 1)
	require.Equal(t, []string{"replicas: " + errNotOwn.Error()}, r.Servers[0].Notes)
	require.False(t, r.TLS.Known)
	require.Equal(t, known("default"), r.User)
	require.Equal(t, known(true), r.Open)
}

func TestATunnelToTheMasterIsNotTakenForAReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", s.Master().Addr())
	}
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: o}))(t)
	defer c.Shutdown(context.Background())
	r := kit.Got(Diagnose(t.Context(), c))(t)
	require.Len(t, r.Servers, 2)
	require.False(t, r.Servers[1].Reachable)
	require.Equal(t, s.Replicas()[0].Addr(), r.Servers[1].Address)
	require.Contains(t, r.Servers[1].Notes[0], "leads to the master")
}

func TestAReportThatWasCutShortSaysSoAndHasWhatWasFound(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if address != s.Master().Addr() {
			cancel(enough)
		}
		return d.DialContext(ctx, "tcp", address)
	}
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: o}))(t)
	defer c.Shutdown(context.Background())
	r, err := Diagnose(ctx, c)
	kit.Fails(t, err, enough, context.Canceled)
	require.True(t, r.Servers[0].Reachable)
	require.Len(t, r.Servers, 2)
}

func TestWhatTheNodesOfAClusterSayOfOthersIsAdded(t *testing.T) {
	nodes := parseClusterNodes("1a 10.0.0.1:6379@1 myself,master - 0 0 1 connected 0-16383\n" +
		"2b 10.0.0.2:6379@1 slave,fail 1a 0 0 1 disconnected\n" +
		"3c 10.0.0.3:6379@1 slave 1a 0 0 1 connected\n" +
		"4d 10.0.0.4:6379@1,four.internal slave 1a 0 0 1 connected\n" +
		"5e 10.0.0.5:6379@1 master - 0 0 1 connected\n" +
		"6f 10.0.0.6:6379@1 master,fail - 0 0 1 disconnected 16383\n")
	listed := []ServerReport{newServerReport("10.0.0.1:6379"), newServerReport("four.internal:6379")}
	listed[0].Reachable, listed[0].Role = true, known("master")
	var found []string
	for _, s := range askUnlisted(t.Context(), waitqueue.Wiring{}, listed, nodes) {
		found = append(found, strings.Join(append([]string{s.Address, s.Role.String(), s.Master.String()}, s.Notes...), " "))
	}
	require.Equal(t, []string{
		"10.0.0.1:6379 master unknown",
		"four.internal:6379 replica 10.0.0.1:6379",
		"10.0.0.2:6379 replica 10.0.0.1:6379 connection: not tried, because the cluster says that it has failed",
		"10.0.0.3:6379 replica 10.0.0.1:6379 connection: " + errNotOwn.Error(),
		"10.0.0.6:6379 master unknown connection: not tried, because the cluster says that it has failed",
	}, found)
}

// When a failover is over the old master has no slots any more: nobody waits for it, however long it stays away.
func TestAnOldMasterOfAClusterIsNoDanger(t *testing.T) {
	said := func(slots string, listed ...ServerReport) []string {
		nodes := parseClusterNodes("1a 10.0.0.1:6379@1 myself,master - 0 0 2 connected 0-16383\n" +
			"6f 10.0.0.6:6379@1 master,fail - 0 0 1 disconnected" + slots + "\n")
		r := Report{Mode: "cluster", Servers: askUnlisted(t.Context(), waitqueue.Wiring{}, listed, nodes)}
		var found []string
		for _, w := range judge(&r) {
			if w.Setting == "reachable" {
				found = append(found, string(w.Severity)+" of "+strings.Join(w.Servers, ", ")+": "+w.Why)
			}
		}
		return found
	}
	const old = "caution of 10.0.0.6:6379: It is an old master: its slots have another one now, and there is a replica less."
	here := faultlessServer("10.0.0.1:6379")
	require.Equal(t, []string{old}, said("", here))
	require.Equal(t, []string{old}, said("", here, newServerReport("10.0.0.6:6379")), "a client that has not heard yet")
	require.Equal(t, []string{"danger of 10.0.0.6:6379: Nobody gets a lock there, and holders lose theirs."}, said(" 16383", here))
}

func TestClocksThatAreApartAreFound(t *testing.T) {
	t.Parallel()
	clock, master := redistest.NewClock(t), redistest.Start(t)
	replica := redistest.Start(t, redistest.WithClock(clock))
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica.Do("REPLICAOF", "127.0.0.1", port)
	require.Eventually(t, func() bool { return strings.Contains(master.Text("INFO", "replication"), "slave0:") }, time.Minute, time.Millisecond)
	require.NotContains(t, about(reported(t, master)), "clock")
	clock.Shift(-3 * time.Second)
	r := reported(t, master)
	require.Equal(t, Caution, about(r)["clock"])
	require.InDelta(t, -3, r.Servers[1].Clock.Value.High.Seconds(), 0.1)
	i := slices.IndexFunc(r.Warnings, func(w Warning) bool { return w.Setting == "clock" })
	require.Contains(t, r.Warnings[i].Value, "ahead of the clock of "+replica.Addr())
}

func TestScriptsThatRanAtTheSameTimeOverlap(t *testing.T) {
	t.Parallel()
	some := []span{{10, 20}, {30, 40}}
	require.True(t, overlap(some, []span{{0, 5}, {39, 50}}))
	require.True(t, overlap(some, []span{{12, 13}}))
	require.False(t, overlap(some, []span{{20, 30}, {40, 41}}))
	require.False(t, overlap([]span{{15, 15}}, []span{{15, 15}}), "time that stands still in a script shows nothing")
}

// A Redis runs one script after the other, and the spans of a real one are as long as they were asked for.
func TestARedisRunsOneScriptAfterTheOther(t *testing.T) {
	s := kit.Start(t)
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: s.Option()}))(t)
	require.Equal(t, known(false), kit.Got(Diagnose(t.Context(), c))(t).Aside)
	require.NoError(t, c.Shutdown(t.Context()))
}

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

// After the state of a node's link its slots are listed, with marks for the moving ones.
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
