package main

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		`  clock        that of this machine, ± [\d.]+ (µs|ms)`,
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
	server := redistest.Start(t)
	gone := redistest.Start(t)
	gone.Kill()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			conn, err := stranger.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-nobody\r\n"))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = stranger.Close()
		<-answered
	})
	for url, why := range map[string]string{
		"redis://me:secret@" + server.Addr():        "WRONGPASS",
		urlOf(gone):                                 "connection refused",
		"redis://" + stranger.Addr().String():       "",
		urlOf(server) + "?master_set=nobody":        "",
		"rediss://" + server.Addr():                 "",
		"unix://" + t.TempDir() + "/no-such.socket": "no such file",
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
