package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// demoVariable has this test binary be the demo.
const demoVariable = "HEADWAITER_TEST_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(demoVariable) != "" {
		main()
		return
	}
	kit.HangUps()
	os.Exit(m.Run())
}

// patience is how long a test waits for anything before it fails.
const patience = time.Minute

// shown is a demo that a test started, in a session of its own.
type shown struct {
	t     *testing.T
	cmd   *exec.Cmd
	said  chan string // line by line
	ended chan error
}

// command is the demo with a folder for temporary files.
func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), demoVariable+"=1", "TERM=xterm", "TMPDIR="+dir)
	return cmd
}

// show starts a demo without a terminal.
func show(t *testing.T, cmd *exec.Cmd) *shown {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, end, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = end, end
	require.NoError(t, cmd.Start())
	end.Close()
	return follow(t, cmd, out)
}

// onScreen starts a demo on a terminal of its own, whose keyboard it returns too.
func onScreen(t *testing.T, cmd *exec.Cmd) (*shown, io.Writer) {
	t.Helper()
	screen := kit.Got(pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100}))(t)
	return follow(t, cmd, screen), screen
}

func follow(t *testing.T, cmd *exec.Cmd, out io.ReadCloser) *shown {
	s := &shown{t: t, cmd: cmd, said: make(chan string, 4096), ended: make(chan error, 1)}
	go func() {
		defer close(s.said)
		defer out.Close()
		for in := bufio.NewScanner(out); in.Scan(); {
			s.said <- in.Text()
		}
	}()
	go func() { s.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return s
}

// await reads until a line has the text; rest, which has none, to the end. It returns what it has read.
func (s *shown) await(text string) string {
	s.t.Helper()
	limit := time.After(patience)
	var read strings.Builder
	for {
		select {
		case line, open := <-s.said:
			read.WriteString(line + "\n")
			if !open {
				require.Empty(s.t, text, "it did not come, only %s", &read)
				return read.String()
			}
			if text != "" && strings.Contains(line, text) {
				return read.String()
			}
		case <-limit:
			require.Fail(s.t, "too long", "%q did not come, only %s", text, &read)
		}
	}
}

func (s *shown) rest() string { return s.await("") }

// code waits for the end.
func (s *shown) code() int {
	s.t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.Fail(s.t, "it does not end")
		return -1
	}
}

// checkVerdict holds the end of a demo against what a sound run must say.
func checkVerdict(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{
		"overlaps           none", "order inversions   none", "tokens             rising", "killed waiter", "killed holder",
		"result             ok",
	} {
		assert.Contains(t, text, want)
	}
}

func TestTheDemoOnAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	s := show(t, command(t.TempDir()))
	s.await("HOLDS by token")
	said := s.rest()
	assert.Zero(t, s.code(), said)
	checkVerdict(t, said)
	assert.NotContains(t, said, "\x1b", "a log has no control characters")
}

func TestTheDemoOnARealServerAndATerminal(t *testing.T) {
	server := kit.Start(t)
	s, _ := onScreen(t, command(t.TempDir(), "--redis", "redis://"+server.Addr()))
	s.await("HOLDS for")
	s.await("killed while it waits")
	s.await("killed while it HOLDS")
	said := s.rest()
	assert.Zero(t, s.code(), said)
	checkVerdict(t, said)
}

func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		s := show(t, command(dir))
		s.await("HOLDS by token")
		require.NoError(t, s.cmd.Process.Signal(sig))
		assert.Equal(t, 1, s.code())
		assert.Equal(t, syscall.ESRCH, syscall.Kill(-s.cmd.Process.Pid, 0), "a process is left")
		entries, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Empty(t, entries)
		said := s.rest()
		assert.Contains(t, said, "interrupted")
		assert.NotContains(t, said, "verdict")
	}
}

func TestTheKeyboardEndsTheDemo(t *testing.T) {
	t.Parallel()
	s, keyboard := onScreen(t, command(t.TempDir()))
	s.await("HOLDS for")
	require.NoError(t, kit.Err(keyboard.Write([]byte("\x03")))) // ^C
	assert.Equal(t, 1, s.code())
	assert.Contains(t, s.rest(), tty.ShowCursor)
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"is no flag":         {"now"},
		"connection refused": {"--redis", "redis://:secret@127.0.0.1:1"},
		"there is redis, etcd, zk, postgres, postgres-lease": {"--engine", "consul"},
		"--url names":                 {"--engine", "etcd"},
		"write it like zk://":         {"--engine", "zk", "--url", "127.0.0.1:2181"},
		"write it like postgres://":   {"--engine", "postgres", "--url", "host=there port=secret"},
		"the server cannot be used: ": {"--engine", "postgres", "--url", "postgres://user:secret@127.0.0.1:1/db"},
	} {
		s := show(t, command(t.TempDir(), args...))
		said := s.rest()
		assert.NotZero(t, s.code())
		assert.Contains(t, said, says)
		assert.NotContains(t, said, "secret")
	}
}
