package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lua"
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
			"token", "7", "since", "7:1000000", "phase", "held")
		s.Do("HSET", "headwaiter:client:"+client, "who", lua.Introduction(hostile+"@"+hostile+"#1", hostile, hostile))
		s.Do("HSET", "headwaiter:identity:"+hostile, "client", hostile, "incarnation", "1000000", "who", hostile, "invocation", hostile,
			"before", "1000000:"+hostile, "twice", "1000000:"+hostile)
		s.Do("ZADD", "headwaiter:identity:"+hostile+":names:"+hostile, "1", hostile)
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
		{"inspect", hostile}, {"inspect", "--identity", hostile}, {"inspect", "--identity", hostile, "--json"}, {"doctor"}, {"release", "--force", "--yes", hostile}, {"release", "--force", "--yes", "--holder", hostile, "nobody"},
		{"exec", "orders", "--wait", "1500ms", "--", "true"}, {"exec", hostile, "--wait", "0", "--", "true"}, {"exec", "orders", "--", hostile},
		{hostile}, {"ls", "--" + hostile}, {"exec", "--engine", hostile, "orders", "--", "true"}, {"release", "--force", "--yes", "orders"}, {"resize", hostile, "3"}, {"resize", "orders", hostile},
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
		_, frame, _ = strings.Cut(frame, "\n") // The head, after the way up to it.
		harmless(t, "watch", frame)
	}
}

func TestTheQuestionOfReleaseIsHarmless(t *testing.T) {
	t.Parallel()
	run := terminal(t, "release", "--force", "orders", "--redis", urlOf(besieged(t)))
	require.NoError(t, kit.Err(run.stdin.Write([]byte("n\n"))))
	harmless(t, "release", strings.ReplaceAll(run.await(run.stdout, "release the lock"), "\r", ""))
	assert.Equal(t, exitFindings, run.code())
}

func TestTheAdviceOfDeadlocksIsOneLineForAShell(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	lasts := headwaiter.WithLease(time.Hour) // Nobody says again who it is.
	names := []string{"--yes $(touch x) 'y'", "-rf"}
	for i, c := range []*headwaiter.Client{a, b} {
		require.NoError(t, kit.Err(fairlock.New(c, names[i], lasts).Lock(t.Context())))
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

func TestACompletionThatThereIsNotIsAMistakeOfTheCall(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "fish", "powershell", "zsh"} {
		s := start(t, "completion", shell)
		assert.NotEmpty(t, s.rest(s.stdout), shell)
		assert.Zero(t, s.code(), shell)
	}
	s := start(t, "completion", "tcsh")
	assert.Empty(t, s.rest(s.stdout))
	assert.Equal(t, []string{`headwaiter: completion: "tcsh": there is bash, fish, powershell, zsh`}, s.rest(s.stderr))
	assert.Equal(t, exitUsage, s.code())
	s = start(t, "completion")
	assert.NotEmpty(t, s.rest(s.stdout))
	assert.Zero(t, s.code())
}

func TestLogShowsWhoHeldAndHowEachHoldEnded(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	m, n := fairlock.New(a, "orders", fairlock.WithHistory(5)), fairlock.New(b, "orders", fairlock.WithHistory(5))
	released := kit.Lock(t.Context(), m.Lock).Value(t)
	kit.Release(t, released)
	forced := kit.Lock(t.Context(), n.Lock).Value(t)
	shows(t, s, "release", "--force", "orders", "--yes") // By a client that was not told of the history.
	held := kit.Lock(t.Context(), m.Lock).Value(t)
	require.Error(t, kit.Lost(t, forced))
	require.NoError(t, b.Close())
	s.Do("DEL", "headwaiter:client:"+b.ID()) // It has not said who it is.
	host := kit.Got(os.Hostname())(t)
	const since, span = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +`, `[\d.µm]+s +`
	known := fmt.Sprintf("test +%s +%d +", host, os.Getpid())
	reads(t, shows(t, s, "log", "orders"),
		`SINCE +FOR +ENDED +NAME +HOST +PROCESS +TOKEN +CLIENT`,
		fmt.Sprint(since, span, `holds +`, known, held.Token(), ` +`, a.ID()),
		fmt.Sprint(since, span, `forced +- +- +- +`, forced.Token(), ` +`, b.ID()),
		fmt.Sprint(since, span, `released +`, known, released.Token(), ` +`, a.ID()),
	)
	told := decoded[[]endedJSON](t, shows(t, s, "log", "orders", "--json"))
	require.Len(t, told, 3)
	require.Nil(t, told[0].Until)
	require.Equal(t, "forced", told[1].Ended)
	require.Empty(t, told[1].Who)
	require.False(t, told[2].Until.Before(told[2].Since))
}

func TestLogSaysWhereNothingWasKept(t *testing.T) {
	s := kit.Start(t)
	kit.Release(t, kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), "orders").Lock).Value(t))
	code, _, complaint := said(t, s, "log", "orders")
	require.Equal(t, exitNoSuch, code)
	require.Equal(t, "headwaiter: nothing was kept of orders: make the lock with fairlock.WithHistory(n), or run headwaiter exec --history N; its holds are then kept for a day", complaint)
	require.Zero(t, execute(t, s, "nightly", "--history", "2", "--", "true").code())
	require.Regexp(t, `released +true`, shows(t, s, "log", "nightly"))
	for _, n := range []string{"-1", "1001"} {
		wrong := execute(t, s, "nightly", "--history", n, "--", "true")
		require.Contains(t, wrong.await(wrong.stderr, ""), "--history "+n+": must be from 0 to 1000")
		require.Equal(t, exitUsage, wrong.code())
	}
	code, _, _ = said(t, s, "log")
	require.Equal(t, exitUsage, code)
	s.Do("LPUSH", "headwaiter:lock:{orders}:history", "no entry")
	code, _, complaint = said(t, s, "log", "orders")
	require.Equal(t, exitUnavailable, code)
	require.Contains(t, complaint, "no client has written")
}

// Who reads help at night has a narrow terminal, and copies the example.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, cmd := range newRoot().Commands() {
		if cmd.Hidden {
			continue
		}
		commands++
		name := cmd.Name()
		assert.NotEmpty(t, cmd.Short, name)
		assert.NotEmpty(t, cmd.Long, name)
		for line := range strings.Lines(cmd.Long) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 92, "%s: %s", name, line)
		}
	}
	assert.Greater(t, commands, 5)
	for _, cmd := range newRoot().Commands() {
		switch cmd.Name() {
		case "exec", "ls", "inspect", "watch", "release", "bury", "resize", "deadlocks", "doctor", "console":
			assert.Contains(t, cmd.Example, "headwaiter "+cmd.Name(), cmd.Name())
			assert.Contains(t, cmd.Long, "Exit codes:", cmd.Name())
		}
	}
}

func TestTheWidestColumnsGiveWay(t *testing.T) {
	t.Parallel()
	long := "customer:8f14e45f-ceea-4e7a-9c1e-1f0b2d7a3c55:invoices:2026-11"
	cells := func() table {
		return table{{"KIND", "NAME", "HELD FOR", "HOLDER"}, {"lock", long, "1.70s", "import@node-7.eu-west-1.example.internal#16973"}, {"lock", "a", "2s", "b@c#1"}}
	}
	require.Contains(t, cells().lines(0)[1], long)
	for _, width := range []int{60, 80, 100, 120} {
		lines := cells().lines(width)
		for _, line := range lines {
			assert.LessOrEqual(t, tty.Width(line), width, line)
		}
		assert.Regexp(t, `^lock  custo\S*…\S*26-11  1\.70s     impor\S*…?\S*16973$`, lines[1])
	}
	assert.Equal(t, 20, tty.Width(cells().lines(20)[1]))
}

func TestATerminalOfAHundredColumnsShowsWhoHolds(t *testing.T) {
	s := kit.Start(t)
	name := "customer:8f14e45f-ceea-4e7a-9c1e-1f0b2d7a3c55:invoices:" + strings.Repeat("2026-11:", 5) + "end"
	holds(t, kit.Dial(t, s), name)
	screen := terminal(t, "ls", "--redis", urlOf(s))
	row := screen.await(screen.stdout, "lock ")
	assert.LessOrEqual(t, tty.Width(strings.TrimRight(row, "\r\n")), 100)
	assert.Regexp(t, `…\S*:end .* test@\S+#\d+`, row)
	require.Contains(t, shows(t, s, "ls"), name, "what is no terminal gets all of it")
}

// What is printed as advice can be pasted: it is one word, the name.
func TestAShellReadsAQuotedWordAsItIs(t *testing.T) {
	t.Parallel()
	bash := kit.Got(exec.LookPath("bash"))(t)
	for _, text := range []string{
		"orders:42", "", "-rf", "--force", "stock of", "it's", `back\slash`, "$(touch x)`touch x`", "a;b|c&d>e<f", "~root", "#x", "*?[a]{b,c}!",
		"far      away", "two\nlines", "\x1b[2J", "bidi \u202ex", "c1 \u009b", "raw \x9b\xff", `mixed '\n' ` + "\n'\\", "Größe 注文", "=x", "a=b",
	} {
		word := shellWord(text)
		assert.Equal(t, tty.Escaped(word), word, "it is itself shown as it is")
		out, err := exec.Command(bash, "-c", "printf %s. "+word).Output()
		require.NoError(t, err, word)
		assert.Equal(t, text+".", string(out), word)
	}
	assert.Equal(t, "orders:42", shellWord("orders:42"))
	assert.Equal(t, "'stock of'", shellWord("stock of"))
}

func TestTheArgumentsOfALineAreShown(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `a b\n: 7%`, line("%s: %d%%", "a b\n", 7))
}

func TestABuildSaysWhichItIs(t *testing.T) {
	t.Parallel()
	of := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		settings = append(settings, debug.BuildSetting{Key: "GOOS", Value: "linux"}, debug.BuildSetting{Key: "GOARCH", Value: "arm64"})
		return &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0e0620d66685"}
	for want, info := range map[string]*debug.BuildInfo{
		"headwaiter v0.1.0\ngo1.26.0 linux/arm64\n":                       of("v0.1.0"),
		"headwaiter (devel)\ncommit 0e0620d66685\ngo1.26.0 linux/arm64\n": of("(devel)", revision),
		"headwaiter (devel)\ncommit 0e0620d66685, with changes\ngo1.26.0 linux/arm64\n": of("(devel)", revision,
			debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
		"headwaiter (devel)\ncommit not known: build with -buildvcs=true\ngo1.26.0 linux/arm64\n": of("(devel)"),
	} {
		assert.Equal(t, want, version(info, true))
	}
	assert.Equal(t, "headwaiter, of an unknown version\n", version(nil, false))
	s := start(t, "--version")
	assert.Regexp(t, `^headwaiter \S+$`, s.rest(s.stdout)[0])
	assert.Zero(t, s.code())
}

// program is the binary under test, built once.
var program string

// actVariable has this test binary act as a command that exec runs; see act.
const actVariable = "HEADWAITER_TEST_ACT"

func TestMain(m *testing.M) {
	if part := os.Getenv(actVariable); part != "" {
		act(part)
	}
	kit.HangUps()
	os.Exit(kit.Build(m, ".", func(dir string) { program = filepath.Join(dir, "headwaiter") }))
}
