package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// terminal starts the program on a terminal of its own. What is on the screen comes over stdout, what is
// typed goes to stdin.
func terminal(t *testing.T, args ...string) *shell {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	require.NoError(t, err)
	s := &shell{t: t, cmd: cmd, stdin: screen, stdout: lines(screen)}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return s
}

// What the keyboard's keys send.
const (
	typedInterrupt = "\x03" // ^C
	typedQuit      = "\x1c" // ^\
)

func TestTheKeyboardsSignalsReachTheCommandOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := append([]string{"exec", "orders", "--redis", urlOf(server)}, under(acting(t, "signals"))...)
	s := terminal(t, args...)
	s.await(s.stdout, "ready")
	const times = 10 // Two signals in quick succession may count as one.
	for range times {
		for typed, signal := range map[string]os.Signal{typedInterrupt: syscall.SIGINT, typedQuit: syscall.SIGQUIT} {
			_, err := s.stdin.Write([]byte(typed))
			require.NoError(t, err)
			require.Contains(t, s.await(s.stdout, ""), signal.String())
		}
	}
	s.signal(syscall.SIGTERM) // This one is passed on, after whatever else would have been.
	rest := strings.Join(s.rest(s.stdout), "\n")
	// The terminal shows what was typed when the signal is sent already, so that may come behind the command's word.
	rest = strings.NewReplacer("^C", "", "^\\", "").Replace(rest)
	assert.Equal(t, syscall.SIGTERM.String(), rest)
	assert.Equal(t, int(syscall.SIGTERM), s.code())
}

func TestTheKeyboardEndsAWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder := execute(t, server, "orders", under(holding)...)
	tokenOf(t, holder)
	s := terminal(t, "exec", "orders", "--redis", urlOf(server), "--", "true")
	s.await(s.stdout, "waiting")
	_, err := s.stdin.Write([]byte(typedInterrupt))
	require.NoError(t, err)
	assert.Equal(t, exitSignal+int(syscall.SIGINT), s.code())
}

func TestTheCommandReadsTheTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := terminal(t, "exec", "orders", "--redis", urlOf(server), "--", "sh", "-c", "echo ready; read x; echo got $x")
	s.await(s.stdout, "ready")
	_, err := s.stdin.Write([]byte("this\n"))
	require.NoError(t, err)
	s.await(s.stdout, "got this")
	assert.Zero(t, s.code())
}
