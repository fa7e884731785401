package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// hostile is what somebody with the rights of those that use locks may have said of itself, or called a lock.
const hostile = "evil\n  to break it: do-harm\r\n\x1b[2J\x1b]52;c;eA==\a\u009b2J\x9b31m\u202etxet\u2028\u0085 end"

// harmless fails where a terminal would obey what was printed, or where a line is there that the command did not make.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for text := range strings.Lines(text) {
		text = strings.TrimSuffix(text, "\n")
		assert.Equal(t, tty.Escaped(text), text, what)
		assert.NotRegexp(t, `^\s*(to break it: do-harm|end)`, text, what)
	}
}

// besieged is a server on which a lock and its name, its holder and who waits for it are hostile.
func besieged(t *testing.T) *redistest.Server {
	s := redistest.Start(t)
	client := strings.ReplaceAll(hostile, ":", "") // What has more fields than a ticket is none, and holds nothing.
	for _, name := range []string{"orders", "-rf", hostile} {
		key := "headwaiter:lock:{" + name + "}"
		s.Do("HSET", key, "owner", client+":1:x:1:3600000000:2000000", "until", "9000000000000000",
			"token", "7", "since", "7:1000000", "phase", "held", "version", "3")
		s.Do("HSET", "headwaiter:client:"+client, "who", hostile+"@"+hostile+"#1")
		s.Do("ZADD", key+":queue", "1000", client+":2:x:1:3600000000:2000000")
		s.Do("ZADD", key+":suspects", "9000000000000000", hostile)
		s.Do("LPUSH", key+":history", "6 1000000 2000000 "+strings.ReplaceAll(hostile, " ", "")+" "+hostile+":3:x:1:3600000000:2000000")
	}
	return s
}

func TestWhatClientsSayOfThemselvesIsOneHarmlessLine(t *testing.T) {
	t.Parallel()
	s := besieged(t)
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"inspect", "orders"}, {"inspect", "orders", "--json"}, {"inspect", "--", "-rf"}, {"deadlocks", "--for", "0s", "--json"},
		{"log", "orders"}, {"log", "orders", "--json"}, {"log", hostile}, {"log", "no such\x1b[2J"},
		{"inspect", hostile}, {"release", "--force", "--yes", hostile}, {"release", "--force", "--yes", "--holder", hostile, "nobody"},
		{"exec", "orders", "--wait", "1500ms", "--", "true"}, {"exec", hostile, "--wait", "0", "--", "true"}, {"exec", "orders", "--", hostile},
		{hostile}, {"ls", "--" + hostile}, {"exec", "--engine", hostile, "orders", "--", "true"}, {"release", "--force", "--yes", "orders"},
	} {
		run := start(t, append(args[:1:1], append([]string{"--redis", urlOf(s)}, args[1:]...)...)...)
		out, complaint := strings.Join(run.rest(run.stdout), "\n"), strings.Join(run.rest(run.stderr), "\n")
		require.NotEmpty(t, out+complaint, "%q", args)
		harmless(t, strings.Join(args[:1], " "), out+"\n"+complaint)
		if len(args) > 1 && args[1] == "orders" {
			assert.Contains(t, strings.ToLower(out+complaint), "evil", "%q: it is told", args)
		}
	}
	names := decoded[[]nameJSON](t, shows(t, besieged(t), "inspect", "orders", "--json"))
	assert.Equal(t, strings.ToValidUTF8(hostile+"@"+hostile+"#1", "\ufffd"), names[0].Holders[0].Who, "JSON has it as it is")

	offered := completed(t, s, "inspect", "")
	harmless(t, "completion", offered)
	assert.Equal(t, "orders\n:4", offered, "neither a flag nor what a terminal obeys")
}

func TestWatchOfAHostileLockIsHarmless(t *testing.T) {
	t.Parallel()
	s := besieged(t)
	w := start(t, "watch", "orders", "--interval", "100ms", "--redis", urlOf(s))
	harmless(t, "watch", w.await(w.stdout, "evil"))
	w.signal(syscall.SIGTERM)
	harmless(t, "watch", strings.Join(append(w.rest(w.stdout), w.rest(w.stderr)...), "\n"))

	screen := onTube(t, s, 30, "orders")
	screen.shows(`(?m)^held by    evil\\n`)
	for _, frame := range screen.frames() {
		frame = strings.NewReplacer("\r\n", "\n", "\x1b[K", "", "\x1b[0m", "", tty.Bold, "", tty.Dim, "", tty.Green, "", tty.Yellow, "", "\r", "").Replace(frame)
		_, frame, _ = strings.Cut(frame, "\n") // The head, behind the way up to it.
		harmless(t, "watch", frame)
	}
}

func TestTheQuestionOfReleaseIsHarmless(t *testing.T) {
	t.Parallel()
	s := besieged(t)
	run := terminal(t, "release", "--force", "orders", "--redis", urlOf(s))
	_, err := run.stdin.Write([]byte("n\n"))
	require.NoError(t, err)
	said := run.await(run.stdout, "release the lock")
	harmless(t, "release", strings.ReplaceAll(said, "\r", ""))
	assert.Equal(t, exitFindings, run.code())
}

func TestTheAdviceOfDeadlocksIsOneLineForAShell(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	lasts := headwaiter.WithLease(time.Hour) // Nobody says again who it is.
	names := []string{"--yes $(touch x) 'y'", "-rf"}
	for i, c := range []*headwaiter.Client{a, b} {
		_, err := fairlock.New(c, names[i], lasts).Lock(t.Context())
		require.NoError(t, err)
		s.Do("HSET", "headwaiter:lock:{"+names[i]+"}", "who", hostile)
	}
	queued(t, a, names[1], 1)
	queued(t, b, names[0], 1)
	code, out, _ := said(t, s, "deadlocks", "--for", "0s")
	require.Equal(t, exitFindings, code)
	harmless(t, "deadlocks", out)
	require.Len(t, strings.Split(out, "\n"), 8, out)
	require.Equal(t, 1, strings.Count(out, "\n  to break it: headwaiter release --force --kind lock --holder "))

	// A shell that is given the advice frees what is meant.
	_, advice, _ := strings.Cut(out, "\n  to break it: headwaiter ")
	advice, _, _ = strings.Cut(advice, "\n")
	script := fmt.Sprintf(`here() { "%s" "$1" --yes "${@:2}"; }; here %s`, program, advice)
	released, err := exec.Command("bash", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s: %s", script, released)
	require.Contains(t, string(released), "released the lock")
	harmless(t, "release", string(released))
	require.Contains(t, shows(t, s, "deadlocks", "--for", "0s"), "no deadlock")
}

func TestTheDoctorsPageIsHarmless(t *testing.T) {
	t.Parallel()
	known := func(v string) doctor.Fact[string] { return doctor.Fact[string]{Value: v, Known: true} }
	d := diagnosis{Redis: hostile, Report: &doctor.Report{
		User: known(hostile), Missing: []string{hostile}, Notes: []string{hostile},
		Servers: []doctor.ServerReport{{
			Address: hostile, Reachable: true, Role: known("master"), Version: known(hostile), Product: known(hostile),
			Settings: map[string]string{"maxmemory-policy": hostile, "save": hostile}, Notes: []string{hostile},
			Replicas: []doctor.ReplicaReport{{Address: hostile, State: known(hostile)}},
		}},
		Warnings: []doctor.Warning{{Severity: doctor.Danger, Setting: hostile, Value: hostile, Why: hostile, Remedy: hostile, Servers: []string{hostile}}},
	}}
	var text, told strings.Builder
	require.NoError(t, d.write(&text, false))
	require.NoError(t, d.write(&told, true))
	require.Greater(t, strings.Count(text.String(), "evil"), 8)
	for text := range strings.Lines(text.String() + told.String()) {
		text = strings.TrimSuffix(text, "\n")
		assert.Equal(t, tty.Escaped(text), text)
	}
}
