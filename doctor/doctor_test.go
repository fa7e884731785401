package doctor

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/identity"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// reported is what a new client reports of s.
func reported(t *testing.T, s interface{ Option() rueidis.ClientOption }) Report {
	t.Helper()
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: s.Option(), Name: "test"}))(t)
	defer c.Shutdown(context.Background())
	return kit.Got(Diagnose(t.Context(), c))(t)
}

// about are the worst severities of the warnings by what they are about.
func about(r Report) map[string]Severity {
	found := map[string]Severity{}
	for _, w := range slices.Backward(r.Warnings) { // The worst come first.
		found[w.Setting] = w.Severity
	}
	return found
}

func TestAReportSaysAllOfASoundServer(t *testing.T) {
	s := kit.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	r := reported(t, s)
	require.Empty(t, r.Warnings)
	require.False(t, r.Endangered())
	assert.Empty(t, r.Missing)
	assert.Empty(t, r.Notes)
	assert.Equal(t, "single", r.Mode)
	assert.Equal(t, known(int64(3)), r.Protocol)
	assert.Equal(t, known(false), r.Sharded)
	assert.True(t, r.Skips)
	assert.Equal(t, known(false), r.TLS)
	assert.Equal(t, known("default"), r.User)
	assert.Equal(t, known(true), r.Open)

	require.Len(t, r.Servers, 1)
	at := r.Servers[0]
	assert.Empty(t, at.Notes)
	assert.Equal(t, s.Addr(), at.Address)
	assert.True(t, at.Reachable)
	assert.Equal(t, known("master"), at.Role)
	assert.Equal(t, known("standalone"), at.Kind)
	assert.Equal(t, known("redis"), at.Product)
	assert.Contains(t, s.Text("INFO", "server"), "redis_version:"+at.Version.String()+"\r\n")
	assert.Contains(t, s.Text("INFO", "server"), "run_id:"+at.RunID.String()+"\r\n")
	assert.True(t, at.Uptime.Known)
	assert.Greater(t, at.UsedMemory.Value, int64(100_000))
	assert.Equal(t, known(int64(0)), at.EvictedKeys)
	assert.GreaterOrEqual(t, at.Clients.Value, int64(2))
	assert.Equal(t, known(true), at.SaveOK)
	assert.Equal(t, known(true), at.AppendOK)
	assert.Positive(t, at.RoundTrip.Value)
	require.True(t, at.Clock.Known)
	assert.LessOrEqual(t, at.Clock.Value.Low, at.Clock.Value.High)
	assert.LessOrEqual(t, at.Clock.Value.Low, time.Duration(0), "it is the same clock")
	assert.GreaterOrEqual(t, at.Clock.Value.High, time.Duration(0))
	assert.Equal(t, "yes", at.Settings["appendonly"])
	assert.Equal(t, "noeviction", at.Settings["maxmemory-policy"])
	assert.Len(t, at.Settings, len(reportSettings)-1, "busy-reply-threshold has another name as well")
}

func TestASettingThatEndangersLocksIsNamed(t *testing.T) {
	s := kit.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	c := kit.Dial(t, s)
	for _, x := range []struct {
		setting, value string
		about          string // another name, if it is not the setting's own
		severity       Severity
	}{
		{"maxmemory-policy", "allkeys-lru", "", Caution},
		{"maxmemory-policy", "volatile-lru", "", Caution},
		{"maxmemory", "1000000000", "maxmemory-policy", Danger}, // after the one before
		{"maxmemory-policy", "noeviction", "", ""},
		{"maxmemory", "1", "", Danger},
		{"maxmemory", "0", "", ""},
		{"appendfsync", "everysec", "", Notice},
		{"appendfsync", "no", "", Caution},
		{"appendonly", "no", "", Caution},
		{"save", "3600 1", "appendonly", Caution},
		{"save", "", "appendonly", Caution},
		{"appendfsync", "always", "appendonly", Caution}, // which is off
		{"appendonly", "yes", "", ""},
		{"min-replicas-to-write", "1", "", Danger},
		{"min-replicas-to-write", "0", "", ""},
		{"timeout", "2", "", Caution},
		{"timeout", "300", "", Notice},
		{"timeout", "0", "", ""},
		{"maxclients", "17", "", Caution},
		{"maxclients", "10000", "", ""},
		{"client-output-buffer-limit", "pubsub 262144 65536 2", "", Caution},
		{"client-output-buffer-limit", "pubsub 33554432 8388608 60", "", ""},
		{"busy-reply-threshold", "5", "", Caution},
		{"busy-reply-threshold", "5000", "", ""},
	} {
		s.Do("CONFIG", "SET", x.setting, x.value)
		r := kit.Got(Diagnose(t.Context(), c))(t)
		want := map[string]Severity{}
		if x.severity != "" {
			name := x.setting
			if x.about != "" {
				name = x.about
			}
			want[name] = x.severity
		}
		require.Equal(t, want, about(r), "%s %s", x.setting, x.value)
		require.Equal(t, x.severity == Danger, r.Endangered())
	}
}

// rightsAlone are what a client needs, and nothing that a report would like.
var rightsAlone = []string{"~headwaiter:*", "resetchannels", "&headwaiter:*", "+@all", "-info", "-config", "-acl", "-cluster", "-client"}

func rightsOnly() redistest.Option { return redistest.WithUser("headwaiter", "secret", rightsAlone...) }

func TestWithoutInfoAndConfigLessIsKnownAndNothingGuessed(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]redistest.Target{
		"no rights":  redistest.Start(t, rightsOnly()),
		"renamed":    redistest.Start(t, redistest.WithoutCommands("INFO", "CONFIG", "ACL", "CLUSTER", "CLIENT")),
		"RESP2 only": redistest.Start(t, redistest.WithoutCommands("INFO", "CONFIG", "HELLO")),
	} {
		t.Run(name, func(t *testing.T) {
			r := reported(t, s)
			require.Len(t, r.Servers, 1)
			at := r.Servers[0]
			require.Empty(t, at.Settings)
			require.False(t, at.RunID.Known || at.Uptime.Known || at.UsedMemory.Known || at.EvictedKeys.Known)
			require.False(t, at.Clients.Known || at.SaveOK.Known || at.AppendOK.Known)
			require.True(t, at.RoundTrip.Known && at.Clock.Known, "TIME is a right that locks need")
			require.Contains(t, strings.Join(at.Notes, "\n"), "INFO: ")
			require.Contains(t, strings.Join(at.Notes, "\n"), "CONFIG GET: ")
			require.NotContains(t, strings.Join(at.Notes, "\n"), "with args")
			want := map[string]Severity{"maxmemory-policy": Caution, "appendonly": Notice}
			if name == "RESP2 only" {
				want["HELLO"] = Notice
			} else {
				want["CLIENT ID"] = Notice
				require.True(t, at.Version.Known, "HELLO tells it")
				require.Equal(t, known("master"), at.Role)
			}
			require.Equal(t, want, about(r))
			require.False(t, r.Endangered())
		})
	}
	r := reported(t, redistest.Mini(t))
	require.True(t, r.Servers[0].Reachable)
	require.Empty(t, r.Servers[0].Settings)
}

func TestInfoTellsSomeSettingsWhereConfigIsForbidden(t *testing.T) {
	s := kit.Start(t, redistest.WithoutCommands("CONFIG"), redistest.WithArgs("--maxmemory", "1gb", "--maxmemory-policy", "volatile-lru"))
	r := reported(t, s)
	require.Equal(t, map[string]string{
		"maxmemory": "1073741824", "maxmemory-policy": "volatile-lru", "maxclients": "10000", "appendonly": "no",
	}, r.Servers[0].Settings)
	require.Equal(t, map[string]Severity{"maxmemory-policy": Danger, "appendonly": Caution}, about(r))
}

func TestARightThatWasTakenAwayIsMissed(t *testing.T) {
	s := kit.Start(t, rightsOnly())
	c := kit.Dial(t, s)
	r := kit.Got(Diagnose(t.Context(), c))(t)
	require.Empty(t, r.Missing)
	require.Equal(t, known("headwaiter"), r.User)
	require.False(t, r.Open.Known)
	s.Do("ACL", "SETUSER", "headwaiter", "-zrank", "-publish", "+acl|getuser")
	r = kit.Got(Diagnose(t.Context(), c))(t)
	require.Equal(t, []string{"run ZRANK", "PUBLISH on the wake channels"}, r.Missing)
	require.Equal(t, Danger, about(r)["ACL SETUSER"])
	require.Equal(t, known(false), r.Open, "the default user of this server has a password")
	s.Do("ACL", "SETUSER", "headwaiter", "-eval", "-evalsha")
	s.Do("ACL", "SETUSER", "default", "nopass") // The last command of the test: it logs in with a password.
	r = kit.Got(Diagnose(t.Context(), c))(t)
	require.Len(t, r.Missing, 1)
	require.Contains(t, r.Missing[0], "run scripts")
	require.Equal(t, known(true), r.Open)
}

func TestTheRightsThatTheDocsNameTellAll(t *testing.T) {
	t.Parallel()
	page := kit.Got(os.ReadFile("../docs/deploy.md"))(t)
	_, line, found := strings.Cut(string(page), "than locks do. With `")
	require.True(t, found, "docs/deploy.md says it in other words")
	line, _, _ = strings.Cut(line, "`")
	rules := append(slices.Clone(rightsAlone), strings.Fields(line)...)
	r := reported(t, redistest.Start(t, redistest.WithUser("doctor", "secret", rules...)))
	require.Empty(t, r.Notes)
	require.Empty(t, r.Servers[0].Notes)
	require.Len(t, r.Servers[0].Settings, len(reportSettings)-1)
	require.Equal(t, known("doctor"), r.User)
	require.Equal(t, known(false), r.Open)
}

func TestFailingSavesAreFound(t *testing.T) {
	s := kit.Start(t, redistest.WithArgs("--save", "3600 1"))
	c := kit.Dial(t, s)
	require.NoError(t, os.RemoveAll(s.List("CONFIG", "GET", "dir")[1]))
	s.Do("BGSAVE")
	require.Eventually(t, func() bool { return strings.Contains(s.Text("INFO", "persistence"), "rdb_last_bgsave_status:err") }, time.Minute, time.Millisecond)
	r := kit.Got(Diagnose(t.Context(), c))(t)
	require.Equal(t, known(false), r.Servers[0].SaveOK)
	require.Equal(t, Danger, about(r)["stop-writes-on-bgsave-error"])
	s.Do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	r = kit.Got(Diagnose(t.Context(), c))(t)
	require.Equal(t, map[string]Severity{"save": Caution, "appendonly": Caution}, about(r))
}

func TestEvictedKeysAreCounted(t *testing.T) {
	s := kit.Start(t, redistest.WithArgs("--maxmemory-policy", "allkeys-random"))
	s.Do("SET", "junk", strings.Repeat("x", 1000))
	s.Do("CONFIG", "SET", "maxmemory", "1000") // Below what it has, so all goes.
	s.Do("CONFIG", "SET", "maxmemory", "1000000000")
	r := reported(t, s)
	require.Positive(t, r.Servers[0].EvictedKeys.Value)
	require.Equal(t, "maxmemory-policy", r.Warnings[0].Setting)
	require.Contains(t, r.Warnings[0].Why, "keys went this way")
}

func TestAReportOfWhatSentinelsName(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	r := reported(t, s)
	require.Equal(t, "sentinel", r.Mode)
	require.Len(t, r.Servers, 3)
	require.Equal(t, s.Master().Addr(), r.Servers[0].Address)
	require.Equal(t, known("replica"), r.Servers[2].Role)
	require.False(t, r.Endangered())

	r, err := Examine(t.Context(), headwaiter.Options{Redis: s.Sentinels()[0].Option()})
	require.ErrorIs(t, err, lease.ErrUnusable)
	require.Equal(t, known("sentinel"), r.Servers[0].Role)
	require.Equal(t, Danger, about(r)["address"])
	require.Contains(t, r.Warnings[0].Remedy, "master_set")
}

func TestWhatCannotBeUsedIsExaminedAsFarAsItGoes(t *testing.T) {
	s := kit.Start(t, redistest.WithUser("limited", "secret", "~headwaiter:*", "+@all", "-publish", "resetchannels"))
	r, err := Examine(t.Context(), headwaiter.Options{Redis: s.Option()})
	kit.Fails(t, err, lease.ErrUnusable, "may not PUBLISH")
	require.Contains(t, r.Missing, "PUBLISH on the wake channels")
	require.True(t, r.Endangered())
	require.Equal(t, "noeviction", r.Servers[0].Settings["maxmemory-policy"])

	wrong := s.Option()
	wrong.Password = "guess"
	r, err = Examine(t.Context(), headwaiter.Options{Redis: wrong})
	require.ErrorContains(t, err, "check user name and password")
	require.Empty(t, r.Servers)
	s.Kill()
	require.ErrorContains(t, kit.Err(Examine(t.Context(), headwaiter.Options{Redis: s.Option()})), "refused")
	require.ErrorContains(t, kit.Err(Examine(t.Context(), headwaiter.Options{Redis: s.Option(), Prefix: "{"})), "prefix")
	stranger := rueidis.ClientOption{InitAddress: []string{kit.Stranger(t, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")}}
	require.Error(t, kit.Err(Examine(t.Context(), headwaiter.Options{Redis: stranger})))
}

func TestAServerThatDoesNotAnswerEndsTheReport(t *testing.T) {
	s := kit.Start(t)
	c := kit.Dial(t, s)
	s.Stop()
	ctx := kit.Within(t, 50*time.Millisecond)
	require.ErrorIs(t, kit.Err(Diagnose(ctx, c)), context.DeadlineExceeded)
	r, err := Diagnose(t.Context(), c)
	require.Error(t, err)
	require.NotErrorIs(t, err, lease.ErrClosed)
	require.Len(t, r.Servers, 1)
	require.False(t, r.Servers[0].Reachable)
	require.NotEmpty(t, r.Servers[0].Notes)
	s.Cont()
	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorIs(t, kit.Err(Diagnose(t.Context(), c)), lease.ErrClosed)
}

// Of an identity that two take from each other both are named; of one whose owner was restarted in good order nothing is said.
func TestAnIdentityThatTwoHaveIsFound(t *testing.T) {
	for of, start := range map[string]func(*testing.T) redistest.Target{
		"one server": func(t *testing.T) redistest.Target { return redistest.Start(t) },
		"cluster":    func(t *testing.T) redistest.Target { return redistest.Cluster(t) },
	} {
		t.Run(of, func(t *testing.T) {
			s := start(t)
			as := func(of string) *headwaiter.Client {
				c := kit.Dial(t, s, func(o *headwaiter.Options) { o.Identity = of })
				identity.Ours(c.ID(), false) // As if it were of another process.
				return c
			}
			looks := kit.Dial(t, s)
			found := func() []IdentityReport {
				r := kit.Got(Diagnose(t.Context(), looks))(t)
				require.NotContains(t, strings.Join(r.Notes, " "), "identit")
				return r.Identities
			}
			as("calm:names:x@h")
			as("buried@h")
			_, _, err := looks.Bury(t.Context(), "buried@h", "")
			require.NoError(t, err)
			as("buried@h")
			require.Empty(t, found())
			older := as("two@h")
			as("two@h")
			r := found()
			require.Len(t, r, 1)
			require.Equal(t, "two@h", r[0].Identity)
			require.Less(t, r[0].Apart.Value, takenSoon)
			require.False(t, r[0].Twice.Known)
			require.NotEmpty(t, r[0].Who)
			require.Equal(t, r[0].Who, r[0].BeforeWho)
			require.ErrorIs(t, kit.Err(fairlock.New(older, "x").Lock(t.Context())), lease.ErrReplaced)
			r = found()
			require.Len(t, r, 1)
			require.True(t, r[0].Twice.Known)
			require.Equal(t, r[0].Who, r[0].TwiceWho)
		})
	}
}

// Whoever stores reports relies on these names.
func TestAReportKeepsItsNamesInJSON(t *testing.T) {
	r := faultless()
	r.Servers[0].Uptime, r.Servers[0].RoundTrip = known(90*time.Second), known(250*time.Microsecond)
	r.Servers[0].Settings["timeout"] = "60"
	r.Servers[0].Replicas = []ReplicaReport{{"127.0.0.1:6380", known("online"), known(time.Second)}}
	r.Identities = []IdentityReport{{Identity: "unit@h"}}
	r.Warnings = judge(&r)
	text := kit.Got(json.Marshal(r))(t)
	var read map[string]any
	require.NoError(t, json.Unmarshal(text, &read))
	names := func(v any) []string { return slices.Sorted(maps.Keys(v.(map[string]any))) }
	first := func(v any, of string) map[string]any { return v.(map[string]any)[of].([]any)[0].(map[string]any) }
	assert.Equal(t, []string{"connection_numbers", "default_user_open", "identities", "missing", "mode", "notes", "polls", "protocol", "scripts_aside", "servers", "sharded", "skips", "tls", "two_masters", "unfit", "user", "warnings"},
		names(read))
	server := first(read, "servers")
	assert.Equal(t, []string{
		"address", "clients", "clock_offset", "cluster_slots", "cluster_state", "evicted_keys", "good_replicas", "kind", "last_append_ok",
		"last_save_ok", "master", "master_link_up", "notes", "product", "reachable", "replicas", "role", "round_trip_seconds", "run_id",
		"settings", "uptime_seconds", "used_memory_bytes", "version",
	}, names(server))
	assert.Equal(t, []string{"apart_seconds", "before_who", "identity", "taken_seconds_ago", "twice_seconds_ago", "twice_who", "who"}, names(first(read, "identities")))
	assert.Equal(t, []string{"remedy", "servers", "setting", "severity", "value", "why"}, names(first(read, "warnings")))
	assert.Equal(t, 90.0, server["uptime_seconds"])
	assert.Equal(t, 0.00025, server["round_trip_seconds"])
	assert.Equal(t, map[string]any{"low_seconds": -0.001, "high_seconds": 0.001}, server["clock_offset"])
	assert.Equal(t, map[string]any{"address": "127.0.0.1:6380", "state": "online", "lag_seconds": 1.0}, first(server, "replicas"))
	assert.Nil(t, server["run_id"], "what is unknown is null")
	assert.Equal(t, "unknown", Fact[string]{}.String())
}

// A node of a cluster that is being made has no slots yet.
func TestAClusterWithoutSlotsIsNoReport(t *testing.T) {
	s := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
	_, err := Examine(t.Context(), headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{s.Addr()}}})
	require.ErrorContains(t, err, "slots")
}

// A proxy such as twemproxy closes a connection at a command that it does not know: the doctor asks what it may.
func TestBehindAProxyThatKnowsFewCommandsTheDoctorAsksForLess(t *testing.T) {
	s := kit.Start(t)
	m := faults.Imitate(t, s.Addr(), func(words []string) (string, bool) {
		return "", slices.Contains([]string{"AUTH", "PING", "EVAL", "EVALSHA", "HGET"}, words[0])
	})
	o := headwaiter.Options{Redis: s.Option(), WithoutSubscribe: true, WithoutHello: true}
	o.Redis.InitAddress = []string{m.Addr()}
	r := kit.Got(Examine(t.Context(), o))(t)
	require.True(t, r.Servers[0].Reachable)
	require.False(t, r.Endangered())
	require.True(t, r.Protocol.Is(2))
	require.True(t, r.Aside.Is(false))
	require.Contains(t, r.Servers[0].Notes[0], "not asked, because a proxy closes connections")
	_, sent := m.Seen()
	slices.Sort(sent)
	require.Equal(t, []string{"EVAL", "EVALSHA", "PING"}, sent)
}
