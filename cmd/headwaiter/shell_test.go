package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// patience is how long a test waits for anything before it fails.
const patience = 30 * time.Second

// shell is a headwaiter that a test started, as a person in a shell would.
type shell struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout <-chan string
	stderr <-chan string
	ended  <-chan struct{}
}

// start runs the program. It is killed at the end of the test if it still runs.
func start(t *testing.T, args ...string) *shell {
	t.Helper()
	return launch(t, exec.Command(program, args...))
}

// launch starts a command without a terminal, even if the tests run on one, in a process group of its own.
func launch(t *testing.T, cmd *exec.Cmd) *shell {
	t.Helper()
	stderr, errEnd, err := os.Pipe()
	require.NoError(t, err)
	s := launchWith(t, cmd, errEnd)
	errEnd.Close()
	s.stderr = lines(stderr)
	return s
}

// launchWith is launch with a file that the errors go to.
func launchWith(t *testing.T, cmd *exec.Cmd, errEnd *os.File) *shell {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	s := &shell{t: t, cmd: cmd}
	var err error
	s.stdin = kit.Got(cmd.StdinPipe())(t)
	// Pipes of our own, which Wait does not close: processes that outlive the command may still write.
	stdout, outEnd, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	require.NoError(t, cmd.Start())
	outEnd.Close()
	s.stdout = lines(stdout)
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		s.stdin.Close()
	})
	return s
}

// lines reads a file to its end.
func lines(file io.ReadCloser) <-chan string {
	read := make(chan string, 4096)
	go func() {
		defer close(read)
		defer file.Close()
		for in := bufio.NewScanner(file); in.Scan(); {
			read <- in.Text()
		}
	}()
	return read
}

// await reads lines until one contains the text, and returns it.
func (s *shell) await(from <-chan string, text string) string {
	s.t.Helper()
	limit := time.After(patience)
	var seen []string
	for {
		select {
		case line, open := <-from:
			if !open {
				s.t.Fatalf("%q did not come, only %q; stderr: %q", text, seen, s.rest(s.stderr))
			}
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case <-limit:
			s.t.Fatalf("%q did not come within %v, only %q", text, patience, seen)
		}
	}
}

// complaints is what is left of the standard error, without what a busy machine adds: an exec that had to wait for longer than a second
// says so.
func (s *shell) complaints() []string {
	s.t.Helper()
	return slices.DeleteFunc(s.rest(s.stderr), func(line string) bool {
		return strings.HasPrefix(line, "headwaiter: waiting for ") || strings.HasPrefix(line, "headwaiter: got ")
	})
}

// rest is what was written until the end, which comes when all that could write are gone.
func (s *shell) rest(from <-chan string) (text []string) {
	s.t.Helper()
	if from == nil {
		return nil // On a terminal all comes over stdout.
	}
	limit := time.After(patience)
	for {
		select {
		case line, open := <-from:
			if !open {
				return text
			}
			text = append(text, line)
		case <-limit:
			s.t.Fatalf("still open after %v: %q", patience, text)
		}
	}
}

// code waits for the end of the program and returns its exit code.
func (s *shell) code() int {
	s.t.Helper()
	select {
	case <-s.ended:
		return exitCode(s.cmd.ProcessState.Sys().(syscall.WaitStatus))
	case <-time.After(patience):
		s.t.Fatalf("still running after %v", patience)
		return -1
	}
}

func (s *shell) signal(sig os.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// urlOf is the server as the command line takes it.
func urlOf(server *redistest.Server) string { return "redis://" + server.Addr() }

// acting is the command line of a command that this test binary acts.
func acting(t *testing.T, part string) []string {
	t.Helper()
	return []string{"env", actVariable + "=" + part, kit.Got(os.Executable())(t)}
}

// act is a command that exec runs. It does not return.
func act(part string) {
	time.AfterFunc(2*time.Minute, func() { os.Exit(1) }) // If a test that fails has left it running.
	received := make(chan os.Signal, 64)
	signal.Notify(received, passed...)
	switch part {
	case "signals": // tells every signal, and ends at TERM with its number
		os.Stdout.WriteString("ready\n")
		for s := range received {
			os.Stdout.WriteString(s.String() + "\n")
			if s == syscall.SIGTERM {
				os.Exit(int(syscall.SIGTERM))
			}
		}
	case "deaf": // does not end by itself
		os.Stdout.WriteString("ready\n")
		for {
			<-received
		}
	case "leaver": // has a child that tells signals, and ends at once
		bear("signals")
		os.Exit(3)
	case "pair": // has a child that tells signals, and does so too with its id before them; ends after its child
		child := bear("signals")
		ended := make(chan struct{})
		go func() {
			_ = child.Wait()
			close(ended)
		}()
		fmt.Printf("leader %d\n", os.Getpid())
		for {
			select {
			case s := <-received:
				fmt.Println("leader", s)
			case <-ended:
				select { // The signal that ended the child may be on its way here, too.
				case s := <-received:
					fmt.Println("leader", s)
				case <-time.After(time.Second):
				}
				os.Exit(0)
			}
		}
	case "orphan": // has left a child alone that has ended, and ends at TERM
		// Its output ends with the last of them.
		if _, err := exec.Command("sh", "-c", "sh -c 'exit 0' & exit 0").Output(); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		for s := range received {
			if s == syscall.SIGTERM {
				os.Exit(0)
			}
		}
	case "parent": // has a child that is deaf, and ends at TERM
		bear("deaf")
		for s := range received {
			if s == syscall.SIGTERM {
				os.Exit(0)
			}
		}
	}
	panic(errors.New("no such part: " + part))
}

// bear starts a child that acts a part, and writes where this process does.
func bear(part string) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), actVariable+"="+part)
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		os.Exit(1)
	}
	return child
}
