package main

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
	require.NoError(t, copyRepository(copied))
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
	_, err = run(copied, "git", "commit", "--quiet", "--allow-empty", "--message", "release v0.1.0")
	require.NoError(t, err)
	_, err = run(copied, "git", "tag", "v0.1.0")
	require.NoError(t, err)
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
