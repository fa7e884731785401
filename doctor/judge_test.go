package doctor

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// faultlessServer is one that there is nothing to say about.
func faultlessServer(address string) ServerReport {
	s := newServerReport(address)
	s.Reachable, s.Role, s.Kind = true, known("master"), known("standalone")
	s.Product, s.Version = known("redis"), known("7.0.15")
	s.Clock = known(ClockOffset{-time.Millisecond, time.Millisecond})
	s.UsedMemory, s.EvictedKeys, s.Clients = known(int64(500)), known(int64(0)), known(int64(10))
	s.SaveOK, s.AppendOK = known(true), known(true)
	s.Settings = map[string]string{
		"maxmemory": "1000", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always", "save": "",
		"stop-writes-on-bgsave-error": "yes", "min-replicas-to-write": "0", "min-replicas-max-lag": "10",
		"replica-read-only": "yes", "maxclients": "10000", "timeout": "0", "busy-reply-threshold": "5000",
		"client-output-buffer-limit":    "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		"cluster-require-full-coverage": "no",
	}
	return s
}

// faultless is a report with nothing to say: a master, and a replica that its master knows of.
func faultless() Report {
	return Report{
		Mode: "single", Sharded: known(false), Skips: true, Protocol: known(int64(3)), TLS: known(false), Open: known(true),
		Servers: []ServerReport{faultlessServer("127.0.0.1:6379"), faultlessServer("127.0.0.1:6380")},
	}
}

func TestAFaultlessReportHasNoWarnings(t *testing.T) {
	r := faultless()
	require.Empty(t, judge(&r))
	require.NotNil(t, judge(&r), "in JSON an empty list, not null")
	r.Servers[0].Kind, r.Servers[0].ClusterState, r.Servers[0].ClusterSlots = known("cluster"), known("ok"), known(int64(16384))
	r.Mode, r.Sharded = "cluster", known(true)
	require.Empty(t, judge(&r))
}

// aWarning is what a change of the faultless report must lead to, and nothing else.
type aWarning struct {
	name     string
	change   func(r *Report, s *ServerReport)
	severity Severity
	setting  string
	value    string
}

func set(name, value string) func(*Report, *ServerReport) {
	return func(_ *Report, s *ServerReport) { s.Settings[name] = value }
}

func warn(t *testing.T, cases []aWarning) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := faultless()
			c.change(&r, &r.Servers[0])
			found := judge(&r)
			require.Len(t, found, 1)
			assert.Equal(t, []string{string(c.severity), c.setting, c.value},
				[]string{string(found[0].Severity), found[0].Setting, found[0].Value})
			assert.NotEmpty(t, found[0].Why)
			assert.NotEmpty(t, found[0].Remedy)
			r.Warnings = found
			assert.Equal(t, c.severity == Danger, r.Endangered())
		})
	}
}

func TestMemoryIsJudged(t *testing.T) {
	warn(t, []aWarning{
		{"keys are evicted", set("maxmemory-policy", "allkeys-lru"), Danger, "maxmemory-policy", "allkeys-lru"},
		{"keys that expire are evicted", set("maxmemory-policy", "volatile-ttl"), Danger, "maxmemory-policy", "volatile-ttl"},
		{"keys would be evicted, but there is no limit", func(_ *Report, s *ServerReport) {
			s.Settings["maxmemory-policy"], s.Settings["maxmemory"] = "allkeys-random", "0"
		}, Caution, "maxmemory-policy", "allkeys-random"},
		{"keys are evicted, and the limit is unknown", func(_ *Report, s *ServerReport) {
			s.Settings["maxmemory-policy"] = "allkeys-random"
			delete(s.Settings, "maxmemory")
		}, Danger, "maxmemory-policy", "allkeys-random"},
		{"nobody says whether keys are evicted", func(_ *Report, s *ServerReport) { delete(s.Settings, "maxmemory-policy") },
			Caution, "maxmemory-policy", "unknown"},
		{"memory is nearly full", set("maxmemory", "550"), Caution, "maxmemory", "91 % of it used"},
		{"a replica would evict keys", func(r *Report, _ *ServerReport) {
			r.Servers[1].Role, r.Servers[1].Settings["maxmemory-policy"] = known("replica"), "allkeys-lru"
		}, Caution, "maxmemory-policy", "allkeys-lru"},
		{"memory is full", set("maxmemory", "500"), Danger, "maxmemory", "reached"},
	})
}

func TestPersistenceIsJudged(t *testing.T) {
	failed := func(stop string) func(*Report, *ServerReport) {
		return func(_ *Report, s *ServerReport) {
			s.SaveOK, s.Settings["save"], s.Settings["stop-writes-on-bgsave-error"] = known(false), "60 1", stop
		}
	}
	warn(t, []aWarning{
		{"nothing is kept", set("appendonly", "no"), Caution, "appendonly", "no, and no save"},
		{"snapshots only", func(_ *Report, s *ServerReport) { s.Settings["appendonly"], s.Settings["save"] = "no", "60 1" },
			Caution, "appendonly", "no"},
		{"snapshots perhaps", func(_ *Report, s *ServerReport) {
			s.Settings["appendonly"] = "no"
			delete(s.Settings, "save")
		}, Caution, "appendonly", "no"},
		{"nobody says", func(_ *Report, s *ServerReport) { delete(s.Settings, "appendonly") }, Notice, "appendonly", "unknown"},
		{"never synchronized", set("appendfsync", "no"), Caution, "appendfsync", "no"},
		{"synchronized every second", set("appendfsync", "everysec"), Notice, "appendfsync", "everysec"},
		{"the append-only file is not written", func(_ *Report, s *ServerReport) { s.AppendOK = known(false) },
			Danger, "appendonly", "yes, and the last write failed"},
		{"saving fails, and stops writes", failed("yes"), Danger, "stop-writes-on-bgsave-error", "yes, and the last save failed"},
		{"saving fails, and stops nothing", failed("no"), Caution, "save", "the last one failed"},
		{"saving fails, and may stop writes", failed(""), Caution, "save", "the last one failed"},
	})
	r := faultless()
	r.Servers[0].SaveOK = known(false)
	require.Empty(t, judge(&r), "without points to save at, a failed save stops nothing")
	r = faultless()
	r.Servers[1].Role, r.Servers[1].Settings["appendonly"] = known("replica"), "no"
	require.Empty(t, judge(&r), "a replica gets its data from its master")
	r = faultless()
	r.Servers[0].AppendOK, r.Servers[0].Settings["appendonly"] = known(false), "no"
	require.Equal(t, Caution, judge(&r)[0].Severity, "what is not appended to stops no writes")
	require.Len(t, judge(&r), 1)
}

// A replica that cannot write to its disk stops nobody: its master serves.
func TestTheDiskOfAReplicaIsACaution(t *testing.T) {
	replica := func(change func(*Report, *ServerReport)) func(*Report, *ServerReport) {
		return func(r *Report, _ *ServerReport) {
			r.Servers[1].Role = known("replica")
			change(r, &r.Servers[1])
		}
	}
	failed := func(stop string) func(*Report, *ServerReport) {
		return func(_ *Report, s *ServerReport) {
			s.SaveOK, s.Settings["save"], s.Settings["stop-writes-on-bgsave-error"] = known(false), "60 1", stop
		}
	}
	warn(t, []aWarning{
		{"the append-only file is not written", replica(func(_ *Report, s *ServerReport) { s.AppendOK = known(false) }),
			Caution, "appendonly", "yes, and the last write failed"},
		{"saving fails, and stops writes", replica(failed("yes")), Caution, "stop-writes-on-bgsave-error", "yes, and the last save failed"},
		{"saving fails, and stops nothing", replica(failed("no")), Caution, "save", "the last one failed"},
		{"saving fails, and may stop writes", replica(failed("")), Caution, "save", "the last one failed"},
	})
	for _, stop := range []string{"yes", "no", ""} {
		r := faultless()
		replica(failed(stop))(&r, nil)
		require.Contains(t, judge(&r)[0].Why, "takes over")
	}
	r := faultless()
	replica(func(_ *Report, s *ServerReport) { s.AppendOK, s.Settings["appendonly"] = known(false), "no" })(&r, nil)
	require.Empty(t, judge(&r))
}

func TestRolesAndVersionsAreJudged(t *testing.T) {
	replica := func(readOnly string) func(*Report, *ServerReport) {
		return func(_ *Report, s *ServerReport) {
			s.Role, s.Master, s.Settings["replica-read-only"] = known("replica"), known("10.0.0.1:6379"), readOnly
		}
	}
	warn(t, []aWarning{
		{"a replica", replica("yes"), Danger, "address", "a replica"},
		{"a replica that takes writes", replica("no"), Danger, "replica-read-only", "no, on a replica"},
		{"a replica elsewhere that takes writes", func(r *Report, _ *ServerReport) { replica("no")(r, &r.Servers[1]) },
			Caution, "replica-read-only", "no"},
		{"a sentinel", func(_ *Report, s *ServerReport) { s.Role, s.Settings = known("sentinel"), nil }, Danger, "address", "a sentinel"},
		{"a node of a cluster", func(_ *Report, s *ServerReport) { s.Kind = known("cluster") }, Danger, "CLUSTER SLOTS", "not asked"},
		{"an old version", func(_ *Report, s *ServerReport) { s.Version = known("6.0.16") }, Danger, "version", "6.0.16"},
		{"another product", func(_ *Report, s *ServerReport) { s.Product = known("dragonfly") }, Notice, "version", "dragonfly 7.0.15"},
		{"a Valkey that tears messages", func(_ *Report, s *ServerReport) { s.Product, s.Version = known("valkey"), known("9.0.4") }, Notice, "version", "9.0.4"},
		{"the last that does", func(_ *Report, s *ServerReport) { s.Product, s.Version = known("valkey"), known("9.1.1") }, Notice, "version", "9.1.1"},
	})
	r := faultless()
	for _, sound := range []string{"8.1.0", "9.1.2", "9.1.10", "9.2.0"} {
		r.Servers[0].Product, r.Servers[0].Version = known("valkey"), known(sound)
		require.Empty(t, judge(&r))
	}
}

func TestReplicationIsJudged(t *testing.T) {
	seen := func(state string, lag time.Duration) func(*Report, *ServerReport) {
		return func(r *Report, s *ServerReport) {
			s.Replicas = []ReplicaReport{{r.Servers[1].Address, known(state), known(lag)}}
		}
	}
	warn(t, []aWarning{
		{"there are replicas", seen("online", time.Second), Caution, "WithReplicas", "a matter of each lock"},
		{"a master is not reachable", func(_ *Report, s *ServerReport) { s.Reachable = false }, Danger, "reachable", "no"},
		{"a replica is not reachable", func(_ *Report, s *ServerReport) { s.Reachable, s.Role = false, known("replica") },
			Caution, "reachable", "no"},
		{"somebody is not reachable", func(_ *Report, s *ServerReport) { s.Reachable, s.Role = false, Fact[string]{} },
			Caution, "reachable", "no"},
		{"a replica's link is down", func(r *Report, _ *ServerReport) {
			r.Servers[1].Role, r.Servers[1].LinkUp = known("replica"), known(false)
		}, Caution, "master_link_status", "down"},
		{"replicas are asked for and there", func(_ *Report, s *ServerReport) {
			s.Settings["min-replicas-to-write"], s.GoodReplicas = "1", known(int64(1))
		}, Notice, "min-replicas-to-write", "1, and 1 count"},
		{"replicas are asked for and not there", func(_ *Report, s *ServerReport) {
			s.Settings["min-replicas-to-write"], s.GoodReplicas = "2", known(int64(1))
		}, Danger, "min-replicas-to-write", "2, and 1 count"},
		{"replicas are asked for, and nobody says whether they are there", set("min-replicas-to-write", "2"),
			Notice, "min-replicas-to-write", "2, and unknown count"},
	})
	r := faultless()
	seen("wait_bgsave", 0)(&r, &r.Servers[0])
	require.Equal(t, "replica 127.0.0.1:6380", judge(&r)[1].Setting)
	seen("online", 6*time.Second)(&r, &r.Servers[0])
	require.Equal(t, "silent for 6s", judge(&r)[1].Value)
	r.Servers[1].Role, r.Servers[1].LinkUp = known("replica"), known(false)
	require.Len(t, judge(&r), 2, "what the replica says of its link needs no second witness")
}

func TestAClusterIsJudged(t *testing.T) {
	state := func(state string, slots int64, full string) func(*Report, *ServerReport) {
		return func(r *Report, s *ServerReport) {
			r.Mode, r.Sharded = "cluster", known(true)
			s.Kind, s.ClusterState, s.ClusterSlots = known("cluster"), known(state), known(slots)
			s.Settings["cluster-require-full-coverage"] = full
		}
	}
	warn(t, []aWarning{
		{"it is down", state("fail", 16384, "yes"), Danger, "cluster_state", "fail"},
		{"slots are missing", state("ok", 16000, "no"), Danger, "cluster_slots_ok", "16000 of 16384"},
		{"one shard stops all", state("ok", 16384, "yes"), Notice, "cluster-require-full-coverage", "yes"},
		{"it has no sharded channels", func(r *Report, _ *ServerReport) { r.Mode = "cluster" }, Caution, "SSUBSCRIBE, SPUBLISH", "not there"},
	})
	r := faultless()
	r.Mode, r.Sharded = "cluster", Fact[bool]{}
	require.Empty(t, judge(&r), "what is unknown is not guessed")
}

func TestConnectionsAreJudged(t *testing.T) {
	away := func(r *Report) { r.Servers[0].Address = "10.0.0.1:6379" }
	warn(t, []aWarning{
		{"few connections are left", set("maxclients", "20"), Caution, "maxclients", "10 of 20 connected"},
		{"few are left of many", func(_ *Report, s *ServerReport) { s.Clients = known(int64(9500)) },
			Caution, "maxclients", "9500 of 10000 connected"},
		{"idle connections are cut", set("timeout", "60"), Notice, "timeout", "60"},
		{"idle connections are cut at once", set("timeout", "1"), Caution, "timeout", "1"},
		{"scripts are soon too long", set("busy-reply-threshold", "20"), Caution, "busy-reply-threshold", "20"},
		{"scripts are soon too long for an old server", func(_ *Report, s *ServerReport) {
			delete(s.Settings, "busy-reply-threshold")
			s.Settings["lua-time-limit"] = "20"
		}, Caution, "lua-time-limit", "20"},
		{"wake-ups have little room", set("client-output-buffer-limit", "normal 0 0 0 slave 0 0 0 pubsub 65536 0 0"),
			Caution, "client-output-buffer-limit", "pubsub 65536 0 0"},
		{"wake-ups have little room for long", set("client-output-buffer-limit", "pubsub 0 65536 2"),
			Caution, "client-output-buffer-limit", "pubsub 0 65536 2"},
		{"RESP2", func(r *Report, _ *ServerReport) { r.Protocol = known(int64(2)) }, Notice, "HELLO", "RESP2"},
		{"rights are missing", func(r *Report, _ *ServerReport) { r.Missing = []string{"run HGET", "run DEL"} },
			Danger, "ACL SETUSER", "the user may not run HGET, run DEL"},
		{"copies are not found out", func(r *Report, _ *ServerReport) { r.Numbers = known(false) }, Notice, "CLIENT ID", "not answered"},
		{"nothing keeps locks", func(r *Report, _ *ServerReport) { r.Unfit = "it is: why" }, Danger, "server", "keeps no locks"},
		{"scripts lock no keys", func(r *Report, _ *ServerReport) { r.Aside = known(true) }, Danger, "scripts", "two on one key at the same time"},
		{"nothing is subscribed to", func(r *Report, _ *ServerReport) { r.Skips, r.Polls = false, true }, Notice, "SUBSCRIBE", "not used"},
		{"subscribers are not counted", func(r *Report, _ *ServerReport) { r.Skips = false }, Notice, "PUBSUB NUMSUB", "not asked"},
		{"no TLS on a network", func(r *Report, _ *ServerReport) {
			away(r)
			r.Open = known(false)
		}, Notice, "TLS", "off"},
		{"no password on a network", func(r *Report, _ *ServerReport) {
			away(r)
			r.TLS = known(true)
		}, Caution, "requirepass", "none: the default user needs no password"},
	})
	r := faultless()
	r.Servers[0].Settings["client-output-buffer-limit"] = "pubsub 0 0 0"
	require.Empty(t, judge(&r), "no limit is no small one")
}

// Whoever turns the default user off before there is an administrator, or while replicas and sentinels come in by it, is
// locked out.
func TestTheDefaultUserIsNotToBeTurnedOff(t *testing.T) {
	r := faultless()
	r.Servers[0].Address, r.TLS = "10.0.0.1:6379", known(true)
	found := judge(&r)
	require.Len(t, found, 1)
	require.Equal(t, "requirepass", found[0].Setting)
	require.NotContains(t, found[0].Remedy, "off")
	for _, word := range []string{"requirepass", "masterauth", "sentinels", "docs/deploy.md"} {
		require.Contains(t, found[0].Remedy, word)
	}
}

func TestThePageSaysFromWhenOnIdleConnectionsAreCutSoon(t *testing.T) {
	seconds := int(soonCut / time.Second)
	warn(t, []aWarning{
		{"at last", set("timeout", strconv.Itoa(seconds)), Caution, "timeout", strconv.Itoa(seconds)},
		{"later", set("timeout", strconv.Itoa(seconds+1)), Notice, "timeout", strconv.Itoa(seconds + 1)},
	})
	page := kit.Got(os.ReadFile("../docs/deploy.md"))(t)
	require.Contains(t, string(page), fmt.Sprintf("`timeout` of %d s or less", seconds))
}

func TestClocksAreJudgedByWhatIsCertain(t *testing.T) {
	ahead := func(low, high time.Duration) []Warning {
		r := faultless()
		r.Servers[1].Clock = known(ClockOffset{low, high})
		return judge(&r)
	}
	require.Empty(t, ahead(-10*time.Second, 10*time.Second), "a slow way is no proof")
	require.Empty(t, ahead(90*time.Millisecond, 200*time.Millisecond))
	found := ahead(150*time.Millisecond, 160*time.Millisecond)
	require.Len(t, found, 1)
	require.Equal(t, "the clock of 127.0.0.1:6380 is 149ms ahead of the clock of 127.0.0.1:6379", found[0].Value)
	found = ahead(-5*time.Second, -4*time.Second)
	require.Len(t, found, 1)
	require.Equal(t, "the clock of 127.0.0.1:6379 is 3.999s ahead of the clock of 127.0.0.1:6380", found[0].Value)
}

func TestIdentitiesAreJudged(t *testing.T) {
	with := func(i IdentityReport) func(*Report, *ServerReport) {
		i.Identity, i.Who = "unit @h", "a@h#1"
		return func(r *Report, _ *ServerReport) { r.Identities = []IdentityReport{i} }
	}
	soon := IdentityReport{Taken: known(time.Minute), Apart: known(1500 * time.Millisecond), BeforeWho: "b@h#2"}
	twice := IdentityReport{Taken: known(3 * time.Hour), Twice: known(time.Minute), TwiceWho: "c@h#3"}
	once := twice
	once.Twice = known(2 * time.Hour)
	warn(t, []aWarning{
		{"taken soon after", with(soon), Caution, `identity unit\x20@h`, "taken by a@h#1, 1.5s after b@h#2"},
		{"two live", with(twice), Danger, `identity unit\x20@h`, "a@h#1 and c@h#3"},
		{"two lived long ago", with(once), Caution, `identity unit\x20@h`, "a@h#1 and c@h#3"},
	})
	r := faultless()
	soon.Taken = known(2 * time.Hour)
	r.Identities = []IdentityReport{soon}
	require.Empty(t, judge(&r), "it goes well since")
}

func TestOneWarningIsAboutAllThatItHoldsForAndTheWorstComeFirst(t *testing.T) {
	r := faultless()
	for i := range r.Servers {
		r.Servers[i].Settings["timeout"], r.Servers[i].Settings["appendfsync"] = "60", "no"
	}
	r.Servers[1].Settings["maxmemory-policy"] = "allkeys-lfu"
	found := judge(&r)
	require.Len(t, found, 3)
	require.Equal(t, []Severity{Danger, Caution, Notice}, []Severity{found[0].Severity, found[1].Severity, found[2].Severity})
	require.Equal(t, []string{"127.0.0.1:6380"}, found[0].Servers)
	require.Equal(t, []string{"127.0.0.1:6379", "127.0.0.1:6380"}, found[1].Servers)
	require.Equal(t, "appendfsync", found[1].Setting)
}

func TestOnlyThisMachineIsLocal(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:6379": true, "127.8.8.8:1": true, "[::1]:6379": true, "localhost:6379": true, "/run/redis.sock": true, "@redis": true,
		"10.0.0.1:6379": false, "redis.internal:6379": false, "[fe80::1]:6379": false, "": false,
	} {
		assert.Equal(t, want, local(address), address)
	}
}
