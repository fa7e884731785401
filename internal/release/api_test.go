package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAChangeThatBreaksUsersIsFound runs scripts/api in a copy of the repository that has had a release.
func TestAChangeThatBreaksUsersIsFound(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "copy")
	git := func(args ...string) {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", copied, "-c", "user.name=test", "-c", "user.email=test@localhost"}, args...)...).CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
	}
	out, err := exec.Command("git", "clone", "--quiet", "--no-tags", repository, copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	script, err := os.ReadFile(filepath.Join(repository, "scripts", "api"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(copied, "scripts", "api"), script, 0o700))
	api := func(next string) (string, error) {
		cmd := exec.Command("scripts/api", "github.com/headwaiter/headwaiter/lease")
		cmd.Dir = copied
		cmd.Env = append(os.Environ(), "NEXT="+next, "GOFLAGS=", "GOWORK=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	said, err := api("")
	require.Error(t, err, "without a release there is nothing to compare with")
	require.Contains(t, said, "no tag of a release")
	said, err = api("v0.1.0")
	require.NoError(t, err, "the first release: %s", said)

	// The commit of a release is one behind what it releases.
	git("commit", "--quiet", "--allow-empty", "--message", "release v0.1.0")
	git("tag", "v0.1.0")
	said, err = api("")
	require.NoError(t, err, "%s", said)

	file := filepath.Join(copied, "lease", "lease.go")
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	const token = "func (l *Lease) Token() uint64"
	require.Contains(t, string(code), token)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(code), token, "func (l *Lease) Number() uint64", 1)), 0o600))
	for _, next := range []string{"v0.1.0", "v0.1.1"} {
		said, err = api(next)
		require.Error(t, err, "a method is gone")
		require.Contains(t, said, "Lease).Token")
	}
	said, err = api("v0.2.0")
	require.NoError(t, err, "a new minor version may: %s", said)
}
