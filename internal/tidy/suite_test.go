package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A suite is a run of go test by the Makefile: over the packages whose paths match, or do not.
type suite struct {
	race, but bool
	paths     *regexp.Regexp
}

func (s suite) runs(pkg string) bool { return s.paths.MatchString(pkg) != s.but }

var (
	assigned = regexp.MustCompile(`(?m)^([A-Z]+) := (.*)$`)
	suiteRun = regexp.MustCompile(`go test (-race )?-count=1 .*grep (-v )?-E '([^']+)'`)
)

// suites are those of the targets that CI runs.
func suites(t *testing.T, makefile string) (found []suite) {
	t.Helper()
	for _, a := range assigned.FindAllStringSubmatch(makefile, -1) {
		makefile = strings.ReplaceAll(makefile, "$("+a[1]+")", a[2])
	}
	for _, target := range []string{"test", "test-engines", "test-monitoring", "test-console", "traces"} {
		recipe := regexp.MustCompile(`(?m)^` + target + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(makefile)
		require.NotNil(t, recipe, target)
		for _, s := range suiteRun.FindAllStringSubmatch(recipe[1], -1) {
			paths, err := regexp.Compile(strings.ReplaceAll(s[3], "$$", "$"))
			require.NoError(t, err)
			found = append(found, suite{race: s[1] != "", but: s[2] != "", paths: paths})
		}
	}
	return found
}

// unrun says of a package what no suite does for it. One that does less with the race detector than without it, which
// has a file for that, must run without it too.
func unrun(all []suite, pkg, dir string) string {
	runs, whole := false, false
	for _, s := range all {
		runs = runs || s.runs(pkg)
		whole = whole || s.runs(pkg) && !s.race
	}
	_, err := os.Stat(filepath.Join(dir, "norace_test.go"))
	switch {
	case !runs:
		return "is run by no suite"
	case err == nil && !whole:
		return "is run with the race detector alone, where it does less"
	}
	return ""
}

func TestEveryPackageIsRunByCIAndWhole(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}}", module+"/...")
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	all := suites(t, string(makefile))
	packages, lesser := 0, 0
	for s := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(s), " ")
		require.Empty(t, unrun(all, pkg, dir), pkg)
		packages++
		if _, err := os.Stat(filepath.Join(dir, "norace_test.go")); err == nil {
			lesser++
			require.NotEmpty(t, unrun(suites(t, strings.ReplaceAll(string(makefile), "go test -count=1", "go test -race -count=1")), pkg, dir), pkg)
		}
	}
	require.Greater(t, packages, 50)
	require.NotZero(t, lesser)
	require.NotEmpty(t, unrun(all[1:], module+"/lease", "../../lease"), "a package that no suite runs")
}
