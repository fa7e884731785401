package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/doctor"
)

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
		"  clock        3.50 s behind that of this machine, ± 500 ms\n  memory       123 MB, 17 keys evicted\n",
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
		"that of this machine, ± 3.0 ms":                {Low: -1 * ms, High: 3 * ms},
		"150 ms ahead of that of this machine, ± 50 ms": {Low: 100 * ms, High: 200 * ms},
		"2.00 s behind that of this machine, ± 1.0 ms":  {Low: -2001 * ms, High: -1999 * ms},
		"that of this machine, ± 5 µs":                  {Low: -5 * time.Microsecond},
	} {
		assert.Equal(t, want, offset(o))
	}
}
