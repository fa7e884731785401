package examples_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One that is killed, or whose terminal hangs up, does too, though it can do nothing about it.
func TestAKilledExampleLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for how, kill := range map[string]func(pid int) error{
		"killed":     func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"hanging up": func(pid int) error { return syscall.Kill(-pid, syscall.SIGHUP) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := temporary(t)
			leader := untilPaused(t, dir)
			require.NoError(t, kill(leader.Process.Pid))
			require.Error(t, leader.Wait())
			gone := func() bool { return syscall.Kill(-leader.Process.Pid, 0) == syscall.ESRCH }
			// Nobody tells when whoever inherits them has seen their end.
			assert.Eventually(t, gone, 30*time.Second, 10*time.Millisecond, "a process is left")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
