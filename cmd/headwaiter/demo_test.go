package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// checkVerdict holds the end of a demo against what a sound run must say.
func checkVerdict(t *testing.T, said []string) {
	t.Helper()
	text := strings.Join(said, "\n")
	for _, want := range []string{
		"overlaps           none", "order inversions   none", "tokens             rising", "killed waiter", "killed holder",
		"result             ok",
	} {
		assert.Contains(t, text, want)
	}
}

func TestTheDemoOnAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	s := start(t, "demo")
	s.await(s.stdout, "HOLDS by token")
	said := s.rest(s.stdout)
	assert.Zero(t, s.code(), said)
	assert.Empty(t, s.rest(s.stderr))
	checkVerdict(t, said)
	assert.NotContains(t, strings.Join(said, "\n"), "\x1b", "a log has no control characters")
}

func TestTheDemoOnARealServerAndATerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := terminal(t, "demo", "--redis", urlOf(server))
	s.await(s.stdout, "HOLDS for")
	s.await(s.stdout, "killed while it waits")
	s.await(s.stdout, "killed while it HOLDS")
	said := s.rest(s.stdout)
	assert.Zero(t, s.code(), said)
	checkVerdict(t, said)
}

func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		cmd := exec.Command(program, "demo")
		cmd.Env = append(cmd.Environ(), "TMPDIR="+dir)
		s := launch(t, cmd)
		s.await(s.stdout, "HOLDS by token")
		s.signal(sig)
		assert.Equal(t, exitSignal+int(sig), s.code())
		assert.Equal(t, syscall.ESRCH, syscall.Kill(-cmd.Process.Pid, 0), "a process is left")
		entries, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Empty(t, entries)
		assert.NotContains(t, strings.Join(s.rest(s.stdout), "\n"), "verdict")
	}
}

func TestTheKeyboardEndsTheDemo(t *testing.T) {
	t.Parallel()
	s := terminal(t, "demo")
	s.await(s.stdout, "HOLDS for")
	_, _ = s.stdin.Write([]byte(typedInterrupt))
	assert.Equal(t, exitSignal+int(syscall.SIGINT), s.code())
	assert.Contains(t, strings.Join(s.rest(s.stdout), "\n"), showCursor)
}
