//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAServerThatIsDownKeepsItsPortsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	s := server(t, "kind", func(o *Options, _ func() *Server) { o.Beside = []int{1} })
	require.NoError(t, s.Start())
	s.Kill()
	for _, port := range []int{s.Port(0), s.Port(0) + 1} {
		require.False(t, listens(port))
		_, ok := claim(port)
		require.False(t, ok, "another server would get it")
	}
	require.NoError(t, s.Start())
	s.Stop()
	require.Empty(t, s.claims)
}

// TestALockEndsWithItsRelease and with its process. It runs this test binary once more, as a process that takes the
// lock and dies.
func TestALockEndsWithItsRelease(t *testing.T) {
	const asks, refused, got = "HEADWAITER_DAEMON_LOCK", 3, 4
	if text := os.Getenv(asks); text != "" {
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		if _, ok := lock(port); !ok {
			os.Exit(refused)
		}
		os.Exit(got)
	}
	t.Parallel()
	port := 1<<20 + os.Getpid() // Which is none: nobody else wants it.
	t.Cleanup(func() { _ = os.Remove(filepath.Join(os.TempDir(), "headwaiter-ports", strconv.Itoa(port))) })
	child := func() int {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), asks+"="+strconv.Itoa(port))
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		return cmd.ProcessState.ExitCode()
	}
	release, ok := lock(port)
	require.True(t, ok)
	_, ok = lock(port)
	require.False(t, ok, "it is taken here")
	require.Equal(t, refused, child())
	release()
	require.Equal(t, got, child())
	release, ok = lock(port)
	require.True(t, ok, "though that process did not give it back")
	release()
}
