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

// Fork starts the test binary with a text in an environment variable, by which it knows that it is a child and what to do;
// under another program if one is given, with its arguments. The caller ends it, and waits for it.
func Fork(t testing.TB, variable, text string, under ...string) Child {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("crowd: %v", err)
		}
	}
	path, err := os.Executable()
	check(err)
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
