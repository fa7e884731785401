package tidy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a program gets that imports package fairlock, of this module: these packages, and so many lines, comments and
// scripts left out.
var reach = []string{
	".", "fairlock", "internal/cohort", "internal/conn", "internal/names", "internal/notify", "internal/outbox", "internal/outside", "internal/renewals", "internal/retry", "internal/shares", "internal/terms", "internal/timers", "internal/trust", "lease", "lua", "observe", "waitqueue",
}

// maxReach grows with what a lock can do, and with nothing else: say with each change what for. Of 24 November 2026 are
// 9,630 lines; since then about 63 for renewals that replicas must know of and WithFsync, 225 for HandOver and Adopt,
// 125 for queues with a limit, 170 for Wanted, 310 for WithKeep, 80 for telling whether a server answers, 55 for the
// history, 57 for WithoutSubscribe, 26 for what a URL says of a proxy and for what cannot go with WithKeep, 3 for
// LockEach with WithAdmission, 11 for a refusal in one text, 20 for less memory of a connection and for places that
// nobody knows, 100 for imports and package clauses since what is not the algorithm of waitqueue is in packages of its
// own, 35 for what tells of a call, which the engines use too, 22 for ForceReleaseHolder, for an owner with two holds, and for
// what a write leaves behind whose release nobody waits for, 9 for looks that end with their contexts and for two calls
// that begin together, 3 for the life of the key of a kept lock, 33 for a server that restarts between two connections, for a
// log or a dialer that panics, for Close while somebody dials, and for looks and answers that are lost, 8 for the write that
// many callers share, and the rest for why Dial refuses a server.
const maxReach = 10998

// codeLines counts the lines of Go code that are neither blank nor a comment alone.
func codeLines(source string) (n int) {
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// linesOf counts them in files of a folder.
func linesOf(t *testing.T, folder string, names []string) (n int) {
	t.Helper()
	for _, name := range names {
		body, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		n += codeLines(string(body))
	}
	return n
}

// What a reader of the algorithm has before him.
const (
	maxAlgorithm      = 4000
	maxAlgorithmFiles = 20
)

func TestTheAlgorithmCanBeRead(t *testing.T) {
	t.Parallel()
	lines, files := 0, 0
	for _, p := range listed(t, "./waitqueue") {
		files += len(p.GoFiles)
		lines += linesOf(t, p.Dir, p.GoFiles)
	}
	require.LessOrEqual(t, lines, maxAlgorithm)
	require.LessOrEqual(t, files, maxAlgorithmFiles)
	require.Greater(t, lines, maxAlgorithm-500, "it has become less: say so here")
}

func TestALockReachesNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	var found []string
	lines := 0
	for _, p := range listed(t, "-deps", "./fairlock") {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if folder == "" {
			folder = "."
		}
		found = append(found, folder)
		lines += linesOf(t, p.Dir, p.GoFiles)
	}
	require.ElementsMatch(t, reach, found)
	require.LessOrEqual(t, lines, maxReach)
	require.Greater(t, lines, maxReach-500, "it has become less: say so here")
	require.Equal(t, 2, codeLines("// a\n\npackage x\n\tvar y int // z\n"))
}
