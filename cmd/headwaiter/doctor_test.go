package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// aDiagnosis is what a user of --json reads.
type aDiagnosis struct {
	Redis      string
	Usable     bool
	Endangered bool
	Error      *string
	Report     *aReport
}

type aReport struct {
	Mode     string
	Sharded  *bool
	Skips    bool
	Notes    []string
	Servers  []aServer
	Warnings []struct{ Severity, Setting, Value, Why, Remedy string }
}

type aServer struct {
	Address            string
	Reachable          bool
	Role, Master, Kind *string
	State              *string `json:"cluster_state"`
	Slots              *int64  `json:"cluster_slots"`
	Settings           map[string]string
}

// about are the worst severities of the warnings by what they are about.
func (d aDiagnosis) about() map[string]string {
	found := map[string]string{}
	for _, w := range slices.Backward(d.Report.Warnings) { // The worst come first.
		found[w.Setting] = w.Severity
	}
	return found
}

// consult runs doctor --json.
func consult(t *testing.T, url string) (d aDiagnosis, code int, complaint string) {
	t.Helper()
	s := start(t, "doctor", "--json", "--redis", url)
	text := strings.Join(s.rest(s.stdout), "\n")
	complaint = strings.Join(s.rest(s.stderr), "\n")
	require.NoError(t, json.Unmarshal([]byte(text), &d), "%s\n%s", text, complaint)
	return d, s.code(), complaint
}

// A mistake of the call is told apart from a Redis that is broken.
func TestTheDoctorTakesABadPrefixForAMistake(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"--json=false", "--json"} {
		s := start(t, "doctor", format, "--prefix", "a{b}", "--redis", "redis://127.0.0.1:1")
		assert.Equal(t, []string{`headwaiter: prefix "a{b}": must be printable, without braces, at most 128 bytes`}, s.rest(s.stderr))
		assert.Empty(t, s.rest(s.stdout))
		assert.Equal(t, exitUsage, s.code())
	}
}

func TestTheDoctorFindsNothingWrongWithASoundServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	s := start(t, "doctor", "--redis", urlOf(server))
	page := strings.Join(s.rest(s.stdout), "\n")
	assert.Zero(t, s.code())
	assert.Empty(t, s.rest(s.stderr))
	for _, line := range []string{
		`headwaiter doctor: redis://127\.0\.0\.1:\d+`,
		`  mode         single`,
		`  protocol     RESP3`,
		`  user         default; the default user needs no password`,
		`  rights       all that locks need`,
		`  TLS          off`,
		`  127\.0\.0\.1:\d+  master`,
		`  version      redis \d+\.\d+\.\d+`,
		`  up           \d+ s`,
		`  round trip   [\d.]+ (µs|ms)`,
		`  clock        same as this machine, ± [\d.]+ (µs|ms)`,
		`  memory       [\d.]+ MB, 0 keys evicted`,
		`  clients      \d+ of 10000`,
		`  snapshot     off`,
		`  append       ok`,
		`  persistence  appendonly yes, appendfsync always, save off`,
		`result: nothing here endangers locks by itself`,
	} {
		assert.Regexp(t, `(?m)^`+line+`$`, page)
	}
	assert.NotContains(t, page, "not known")
	assert.NotContains(t, page, "\x1b", "colours are for terminals")
}

func TestTheDoctorSaysWhatToChangeAndExitsWithOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"))
	s := start(t, "doctor", "--redis", urlOf(server))
	page := strings.Join(s.rest(s.stdout), "\n")
	assert.Equal(t, exitFindings, s.code())
	assert.Empty(t, s.rest(s.stderr), "the page has said it all")
	assert.Contains(t, page, `
DANGER    maxmemory-policy: allkeys-lru
          Locks are evicted like any other keys, and then two hold them.
          → maxmemory-policy noeviction, or a server for locks alone
`)
	assert.Contains(t, page, "\nresult: locks are in danger here: 1 danger, 1 caution")
	d, code, _ := consult(t, urlOf(server))
	assert.Equal(t, exitFindings, code)
	assert.True(t, d.Usable && d.Endangered)
	assert.Nil(t, d.Error)
	assert.Equal(t, map[string]string{"maxmemory-policy": "danger", "appendonly": "caution"}, d.about())
}

func TestTheDoctorUsesColoursOnATerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"))
	s := terminal(t, "doctor", "--redis", urlOf(server))
	assert.Contains(t, s.await(s.stdout, "DANGER"), tty.Red+"DANGER    maxmemory-policy: allkeys-lru\x1b[0m")
	s.await(s.stdout, tty.Red+"result:")
	assert.Equal(t, exitFindings, s.code())
}

func TestTheDoctorSaysWhatItCouldNotFindOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithoutCommands("CONFIG", "INFO", "ACL"))
	s := start(t, "doctor", "--redis", urlOf(server))
	page := strings.Join(s.rest(s.stdout), "\n")
	assert.Zero(t, s.code())
	for _, line := range []string{
		`  memory       unknown`, `  clients      unknown`, `  up           unknown`, `  snapshot     unknown`, `  append       unknown`,
		`  not known`, `  - CONFIG GET: unknown command 'CONFIG'`, `  - INFO: unknown command 'INFO'`,
		`caution   maxmemory-policy: unknown`,
		`result: nothing that is known endangers locks by itself: 1 caution, 1 notice`,
	} {
		assert.Regexp(t, `(?m)^`+line+`$`, page)
	}
}

func TestTheDoctorTellsWhatCannotBeUsedInTheOneErrorOfDial(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser("limited", "secret", "~headwaiter:*", "+@all", "-publish", "resetchannels"))
	url := "redis://limited:secret@" + server.Addr()
	s := start(t, "doctor", "--redis", url)
	page := strings.Join(s.rest(s.stdout), "\n")
	complaint := s.rest(s.stderr)
	assert.Equal(t, exitUnavailable, s.code())
	require.Len(t, complaint, 1)
	assert.Contains(t, complaint[0], "headwaiter: cannot use Redis at redis://limited:xxxxx@"+server.Addr()+": the user may not PUBLISH on the wake channels")
	assert.Contains(t, page, "\n  rights       may not PUBLISH on the wake channels")
	assert.Contains(t, page, "\n  memory       maxmemory 0, maxmemory-policy noeviction\n", "what could be found out")
	assert.Contains(t, page, "\nresult: it cannot be used for locks: 1 danger")
	assert.NotContains(t, page, "secret")

	d, code, complaint2 := consult(t, url)
	assert.Equal(t, exitUnavailable, code)
	assert.False(t, d.Usable)
	require.NotNil(t, d.Error)
	assert.Contains(t, complaint2, *d.Error)
	assert.NotNil(t, d.Report)
}

func TestTheDoctorTellsWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	server, gone := redistest.Start(t), redistest.Start(t)
	gone.Kill()
	for url, why := range map[string]string{
		"redis://me:secret@" + server.Addr(): "WRONGPASS",
		urlOf(gone):                          "connection refused",
		"redis://" + kit.Stranger(t, "SSH-2.0-nobody\r\n"): "",
		urlOf(server) + "?master_set=nobody":               "",
		"rediss://" + server.Addr():                        "",
		"unix://" + t.TempDir() + "/no-such.socket":        "no such file",
	} {
		s := start(t, "doctor", "--redis", url)
		complaint := s.rest(s.stderr)
		assert.Empty(t, s.rest(s.stdout), url)
		assert.Equal(t, exitUnavailable, s.code(), url)
		require.Len(t, complaint, 1, url)
		assert.Contains(t, complaint[0], "headwaiter: cannot use Redis at ")
		assert.Contains(t, complaint[0], why)
		assert.NotContains(t, complaint[0], "secret")
		d, code, _ := consult(t, url)
		assert.Equal(t, exitUnavailable, code)
		assert.Nil(t, d.Report)
		require.NotNil(t, d.Error, url)
	}
	s := start(t, "doctor", "--redis", "http://there")
	assert.Equal(t, exitUsage, s.code())
	s = start(t, "doctor", "there")
	assert.Equal(t, exitUsage, s.code())
}

func fact[T any](v T) doctor.Fact[T] { return doctor.Fact[T]{Value: v, Known: true} }

// busyReport has something to say everywhere, with names as long as providers make them.
func busyReport() *doctor.Report {
	const domain = ".orders-production.abc123.euw1.cache.example.com:6379"
	replica := doctor.ServerReport{
		Address: "orders-0001-002" + domain, Reachable: true, Role: fact("replica"), Master: fact("10.0.0.1:6379"),
		Product: fact("valkey"), Version: fact("8.1.0"), Uptime: fact(75 * time.Hour), LinkUp: fact(false),
		Settings: map[string]string{"appendonly": "yes", "save": "3600 1 300 100 60 10000", "min-replicas-to-write": "1", "lua-time-limit": "5000"},
		Notes:    []string{"INFO: NOPERM this user has no permissions to run the 'info' command or its subcommand"},
	}
	master := replica
	master.Address, master.Role, master.Master, master.LinkUp = "orders-0001-001"+domain, fact("master"), doctor.Fact[string]{}, doctor.Fact[bool]{}
	master.ClusterState, master.ClusterSlots = fact("ok"), fact(int64(16384))
	master.Clock = fact(doctor.ClockOffset{Low: -4 * time.Second, High: -3 * time.Second})
	master.UsedMemory, master.EvictedKeys = fact(int64(123456789)), fact(int64(17))
	master.SaveOK, master.AppendOK = fact(false), fact(true)
	master.Replicas = []doctor.ReplicaReport{{Address: "10.0.0.2:6379", State: fact("online"), Lag: fact(time.Second)}}
	return &doctor.Report{
		Mode: "cluster", Sharded: fact(true), User: fact("headwaiter"), Missing: []string{"run ZRANK", "PUBLISH on the wake channels"},
		Servers: []doctor.ServerReport{master, replica, {Address: "orders-0002-001" + domain, Role: fact("master")}},
		Notes:   []string{"rights: " + strings.Repeat("so it is ", 20)},
		Warnings: []doctor.Warning{
			{Severity: doctor.Danger, Setting: "reachable", Value: "no", Why: strings.Repeat("why not ", 30), Remedy: "see to it", Servers: []string{"a:1", "b:2"}},
			{Severity: doctor.Caution, Setting: "timeout", Value: "1", Why: "it is short", Remedy: "timeout 0"},
			{Severity: doctor.Caution, Setting: "timeout", Value: "2", Why: "it is short", Remedy: "timeout 0"},
			{Severity: doctor.Notice, Setting: "TLS", Value: "off", Why: "it is off", Remedy: "on"},
		},
	}
}

func TestTheDoctorsPageFitsOnAScreen(t *testing.T) {
	d := diagnosis{Redis: "redis://headwaiter:xxxxx@orders.example.com:6379", Usable: true, Endangered: true, Report: busyReport()}
	var lines []string
	for _, r := range d.rows() {
		lines = append(lines, r.Text)
		assert.Equal(t, strings.TrimRight(r.Text, " "), r.Text)
		assert.LessOrEqual(t, utf8.RuneCountInString(r.Text), doctorWidth, r.Text)
	}
	page := strings.Join(lines, "\n")
	for _, part := range []string{
		"  mode         cluster of 2 masters and 1 replica\n  channels     sharded\n",
		"  rights       may not run ZRANK, PUBLISH on the wake channels\n",
		"  orders-0001-002.orders-production.abc123.euw1.cache.example.com:6379\n      replica of 10.0.0.1:6379\n",
		"  orders-0002-001.orders-production.abc123.euw1.cache.example.com:6379\n      master, not reachable\n",
		"  version      valkey 8.1.0\n  up           3 d 3 h\n  round trip   unknown\n",
		"  clock        3.50 s behind this machine, ± 500 ms\n  memory       123 MB, 17 keys evicted\n",
		"  snapshot     the last one FAILED\n  append       ok\n  cluster      state ok, 16384 slots served\n",
		"  link         to the master down\n",
		"  persistence  appendonly yes, appendfsync unknown, save 3600 1 300 100 60 10000\n",
		"min-replicas-max-lag unknown",
		"  scripts      lua-time-limit 5000\n",
		"\nDANGER    reachable: no\n          why not why",
		"\n          → see to it\n          at a:1, b:2\n",
		"\nresult: locks are in danger here: 1 danger, 2 cautions, 1 notice",
	} {
		assert.Contains(t, page, part)
	}
	assert.Equal(t, 1, strings.Count(page, "  settings"), "both servers have the same")
	assert.Equal(t, 1, strings.Count(page, "- INFO: NOPERM"), "and have answered the same")

	d.Report.Servers[1].Settings = map[string]string{}
	d.Usable, d.Endangered = false, false
	lines = nil
	for _, r := range d.rows() {
		lines = append(lines, r.Text)
	}
	page = strings.Join(lines, "\n")
	assert.Contains(t, page, "  settings of\n  orders-0001-002")
	assert.Contains(t, page, "\n  unknown\n")
	assert.Contains(t, page, "\nresult: it cannot be used for locks: ")
}

func TestTextIsBrokenAtItsSpaces(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"one", []string{"one"}},
		{"one two", []string{"one two"}},
		{"one twos", []string{"one", "twos"}},
		{"µµµ µµµ", []string{"µµµ µµµ"}},
		{"a much-too-long word", []string{"a", "much-too-long", "word"}},
	} {
		require.Equal(t, c.want, wrap(c.text, 7), c.text)
	}
}

func TestMeasurementsAreReadable(t *testing.T) {
	for want, d := range map[string]time.Duration{"0 µs": 0, "47 µs": 47 * time.Microsecond, "1.5 ms": 1500 * time.Microsecond, "2.00 s": 2 * time.Second} {
		assert.Equal(t, want, span(d))
	}
	for want, d := range map[string]time.Duration{
		"0 s": 0, "59 s": 59 * time.Second, "1 min 0 s": time.Minute, "2 h 3 min": 2*time.Hour + 3*time.Minute + 4*time.Second, "9 d 1 h": 217 * time.Hour,
	} {
		assert.Equal(t, want, age(d))
	}
	for want, n := range map[string]int64{"0 B": 0, "999 B": 999, "1.0 kB": 1000, "1.3 MB": 1_261_200, "10 MB": 10_000_000, "1.0 GB": 999_999_999, "5000 TB": 5e15} {
		assert.Equal(t, want, size(n))
	}
	ms := time.Millisecond
	for want, o := range map[string]doctor.ClockOffset{
		"same as this machine, ± 3.0 ms":        {Low: -1 * ms, High: 3 * ms},
		"150 ms ahead of this machine, ± 50 ms": {Low: 100 * ms, High: 200 * ms},
		"2.00 s behind this machine, ± 1.0 ms":  {Low: -2001 * ms, High: -1999 * ms},
		"same as this machine, ± 5 µs":          {Low: -5 * time.Microsecond},
	} {
		assert.Equal(t, want, offset(o))
	}
}

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
