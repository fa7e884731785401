package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestTheProcessesOfAKilledDemoEnd has the orphans handed to this process, so that it can wait for them.
func TestTheProcessesOfAKilledDemoEnd(t *testing.T) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { assert.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	cmd := command(t.TempDir()) // Its folder stays.
	s := show(t, cmd)
	s.await("HOLDS by token")
	require.NoError(t, cmd.Process.Kill())
	s.code()
	orphans := 0
	for {
		_, err := unix.Wait4(-cmd.Process.Pid, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			assert.Equal(t, unix.ECHILD, err)
			break
		}
		orphans++
	}
	assert.Equal(t, demoProcesses, orphans)
}
