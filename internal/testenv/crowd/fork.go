//go:build unix

package crowd

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// A Child is a process that runs the test binary.
type Child struct {
	Cmd   *exec.Cmd
	Input io.WriteCloser
	Lines *bufio.Scanner // what it prints
}

// otherVariable names the test binary of another commit.
const otherVariable = "HEADWAITER_OTHER"

// Fork starts the test binary with a text in an environment variable, by which it knows that it is a child and what to do;
// under another program if one is given, with its arguments. The caller ends it, and waits for it.
func Fork(t testing.TB, variable, text string, under ...string) Child {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatalf("crowd: %v", err)
	}
	return fork(t, path, variable, text, under)
}

// ForkOther is Fork with the test binary that HEADWAITER_OTHER names, of another commit; without that it is Fork.
func ForkOther(t testing.TB, variable, text string, under ...string) Child {
	t.Helper()
	if path := os.Getenv(otherVariable); path != "" {
		return fork(t, path, variable, text, under)
	}
	return Fork(t, variable, text, under...)
}

func fork(t testing.TB, path, variable, text string, under []string) Child {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("crowd: %v", err)
		}
	}
	command := append(slices.Clone(under), path)
	c := Child{Cmd: exec.Command(command[0], command[1:]...)}
	c.Cmd.Env = append(os.Environ(), variable+"="+text)
	c.Cmd.Stderr = os.Stderr
	// In a process group of its own a stopped child is ended by the system if the test dies: its group is an
	// orphan then. One that is not stopped ends with its input.
	c.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := c.Cmd.StdoutPipe()
	check(err)
	c.Input, err = c.Cmd.StdinPipe()
	check(err)
	check(c.Cmd.Start())
	c.Lines = bufio.NewScanner(output)
	c.Lines.Split(wholeLines)
	return c
}

// wholeLines leaves out the line that a process was killed in.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if atEOF && bytes.IndexByte(data, '\n') < 0 {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}
