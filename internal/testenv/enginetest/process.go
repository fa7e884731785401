//go:build unix

package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// child is the environment of a process that holds: what leads it to the server, and the prefix of the test's names.
const child = "ENGINETEST_CHILD"

// Child makes this program a process that holds, if it was started as one, and reports whether it was: it takes the
// lock that dial returns, says so, waits for a line, and tells whether it holds and what its release says.
func Child(dial func(server, prefix string) (Mutex, error)) bool {
	server, prefix, ok := strings.Cut(os.Getenv(child), " ")
	if !ok {
		return false
	}
	if err := hold(dial, server, prefix); err != nil {
		fmt.Println(err)
	}
	return true
}

func hold(dial func(server, prefix string) (Mutex, error), server, prefix string) error {
	m, err := dial(server, prefix)
	if err != nil {
		return err
	}
	l, err := m.Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", l.Token())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	held := l.Context().Err() == nil // The first look.
	cause := context.Cause(l.Context())
	fmt.Println(held, errors.Is(cause, lease.ErrLost), cause)
	err = l.Release(context.Background())
	fmt.Println(errors.Is(err, lease.ErrLost), err)
	return nil
}

// AProcessThatWasStoppedKnowsThatItLost stops a process for longer than its lease; at least two thirds of the lease are
// left when it is stopped. Another one holds then. When it goes on, it knows at its first look, and its release ends
// nothing.
func (r Rig) AProcessThatWasStoppedKnowsThatItLost(t *testing.T, server, prefix string) {
	m := r.one(t, Short)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+server+" "+prefix)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewReader(out)
	says := func() string {
		line := kit.Go(func() (string, error) { return lines.ReadString('\n') })
		return line.Value(t)
	}
	var token uint64
	first := says()
	_, err = fmt.Sscanf(first, "held %d\n", &token)
	require.NoError(t, err, first)
	waits := Queued(t, m, 1)
	stopped := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	l := waits.Value(t)
	require.Greater(t, time.Since(stopped), Short/4, "its lease had two thirds to go")
	require.Greater(t, l.Token(), token)
	_, err = fmt.Fprintln(in)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	// Why nothing was renewed is part of it where the connection has noticed that by then.
	const lost = "lease lost: one: (expired|no renewal was answered for)"
	require.Regexp(t, "^false true "+lost, says())
	require.Regexp(t, "^true "+lost, says())
	require.NoError(t, l.Context().Err(), "the release of the one before has ended the next")
	kit.Release(t, l)
}
