package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

// A suite is a run of go test by the Makefile, over the packages whose paths pass each of its filters.
type suite struct {
	race, short bool
	filters     []filter
}

type filter struct {
	but   bool
	paths *regexp.Regexp
}

func (s suite) runs(pkg string) bool {
	return !slices.ContainsFunc(s.filters, func(f filter) bool { return f.paths.MatchString(pkg) == f.but })
}

var (
	assigned  = regexp.MustCompile(`(?m)^([A-Z]+) := (.*)$`)
	suiteRun  = regexp.MustCompile(`go test .*-count=1 .*grep .*`)
	grepped   = regexp.MustCompile(`grep (-v )?-E '([^']+)'`)
	leavesOut = regexp.MustCompile(`(?m)^\s*(if testing\.Short\(\)|kit\.Long\()`)
	settings  = regexp.MustCompile(`[A-Z]+=("[^"]*"|\S+)`)
	stepLine  = regexp.MustCompile(`(?m)^[a-z]+ *\| (make [^|]*[^| ]) *\|`)
)

// steps are the commands of scripts/check.
func steps(script string) (found []string) {
	for _, m := range stepLine.FindAllStringSubmatch(script, -1) {
		found = append(found, m[1])
	}
	return found
}

// suites are those of the targets that scripts/check names.
func suites(t *testing.T, makefile, script string) (found []suite) {
	t.Helper()
	for range 2 { // One variable uses others.
		for _, a := range assigned.FindAllStringSubmatch(makefile, -1) {
			makefile = strings.ReplaceAll(makefile, "$("+a[1]+")", a[2])
		}
	}
	for _, command := range steps(script) {
		for _, target := range strings.Fields(settings.ReplaceAllString(command, ""))[1:] {
			recipe := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(makefile)
			if recipe == nil {
				require.Contains(t, makefile, "\n"+target+": ", "no target of the Makefile")
				continue
			}
			for _, run := range suiteRun.FindAllString(recipe[1], -1) {
				s := suite{race: strings.Contains(run, " -race "), short: strings.Contains(run, " -short ")}
				for _, g := range grepped.FindAllStringSubmatch(run, -1) {
					paths := kit.Got(regexp.Compile(strings.ReplaceAll(g[2], "$$", "$")))(t)
					s.filters = append(s.filters, filter{but: g[1] != "", paths: paths})
				}
				found = append(found, s)
			}
		}
	}
	return found
}

// unrun says of a package what no suite does for it: one that leaves out cases where time is short must run whole, and one
// that does less with the race detector, which has a file for that, must run without it.
func unrun(all []suite, pkg, dir string, lessWhenShort bool) string {
	runs, long, plain := false, false, false
	for _, s := range all {
		if s.runs(pkg) {
			runs, long, plain = true, long || !s.short, plain || !s.race
		}
	}
	_, err := os.Stat(filepath.Join(dir, "norace_test.go"))
	switch {
	case !runs:
		return "is run by no suite"
	case err == nil && !plain:
		return "is run with the race detector alone, where it does less"
	case lessWhenShort && !long:
		return "is run with -short alone, where it does less"
	}
	return ""
}

// less reports whether the tests of a folder leave out cases with -short.
func less(t *testing.T, dir string) bool {
	files := kit.Got(filepath.Glob(filepath.Join(dir, "*_test.go")))(t)
	return slices.ContainsFunc(files, func(file string) bool {
		return leavesOut.Match(kit.Got(os.ReadFile(file))(t))
	})
}

func TestEveryPackageIsRunByTheCheckAndWhole(t *testing.T) {
	read := func(name string) string { return string(kit.Got(os.ReadFile("../../" + name))(t)) }
	makefile, script := read("Makefile"), read("scripts/check")
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}}", module+"/...")
	list.Dir = "../.."
	out := kit.Got(list.Output())(t)
	all := suites(t, makefile, script)
	packages, lesser := 0, 0
	for s := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(s), " ")
		require.Empty(t, unrun(all, pkg, dir, less(t, dir)), pkg)
		packages++
		if _, err := os.Stat(filepath.Join(dir, "norace_test.go")); err == nil {
			lesser++
			require.NotEmpty(t, unrun(suites(t, strings.ReplaceAll(makefile, "go test ", "go test -race "), script), pkg, dir, false), pkg)
		}
	}
	require.Greater(t, packages, 50)
	require.NotZero(t, lesser)
	require.NotEmpty(t, unrun(all[1:], module+"/lua", "../../lua", false), "a package that no suite runs")
	require.NotEmpty(t, unrun(all[:1], module+"/lua", "../../lua", true), "a package that runs with -short alone")
}

// CONTRIBUTING.md tells the steps, .ci/run takes them all, so does the workflow, and `make test` is the first.
func TestTheStepsOfTheCheckAreTold(t *testing.T) {
	body, told := kit.Got(os.ReadFile("../../scripts/check"))(t), kit.Got(os.ReadFile("../../CONTRIBUTING.md"))(t)
	ci := kit.Got(os.ReadFile("../../.ci/run"))(t)
	commands := steps(string(body))
	require.Greater(t, len(commands), 15)
	require.Equal(t, "make test", commands[0])
	require.Regexp(t, `(?m)^make check$`, string(ci))
	for _, c := range commands {
		require.Contains(t, string(told), "| `"+c+"` |")
	}
	workflow := kit.Got(os.ReadFile("../../.github/workflows/test.yml"))(t)
	var taken []string
	for _, m := range regexp.MustCompile(`(?m)^          - ([a-z ]+)$`).FindAllStringSubmatch(string(workflow), -1) {
		taken = append(taken, strings.Fields(m[1])...)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+) *\| make`).FindAllStringSubmatch(string(body), -1) {
		names = append(names, m[1])
	}
	require.ElementsMatch(t, names, taken)
}

const (
	// maxFunctionLines is about what fits on one screen.
	maxFunctionLines = 70
	// maxFileLines is where a file has more than one subject.
	maxFileLines = 500
)

// root is the folder of the core module, which is the repository's.
func root(t *testing.T) string {
	t.Helper()
	dir := kit.Got(os.Getwd())(t)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		require.NotEqual(t, dir, up, "no go.mod above the working directory")
		dir = up
	}
}

// text is a file of the repository.
type text struct {
	name string // relative to the root, with slashes
	body []byte
}

func (x text) lines() []string { return strings.Split(strings.TrimSuffix(string(x.body), "\n"), "\n") }

// texts returns the files that match one of the patterns by their base name, without what .gitignore
// names and without binary ones.
func texts(t *testing.T, patterns ...string) (found []text) {
	t.Helper()
	for _, x := range kit.Got(shape.Texts(root(t), patterns...))(t) {
		found = append(found, text{x.Name, x.Body})
	}
	require.NotEmpty(t, found, "no file matches %v: the test looks in the wrong place", patterns)
	return found
}

// none reports every finding of a rule.
func none(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// longFunctions returns what is longer than the limit in a Go file.
func longFunctions(name string, body []byte, limit int) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, body, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first, last := files.Position(f.Pos()), files.Position(f.End())
		if n := last.Line - first.Line + 1; n > limit {
			found = append(found, fmt.Sprintf("%s:%d: %s has %d lines, more than %d", name, first.Line, f.Name.Name, n, limit))
		}
	}
	return found, nil
}

func TestFunctionsFitOnAScreen(t *testing.T) {
	for _, x := range texts(t, "*.go") {
		if strings.HasSuffix(x.name, "_test.go") {
			continue
		}
		none(t, kit.Got(longFunctions(x.name, x.body, maxFunctionLines))(t))
	}
	found := kit.Got(longFunctions("x.go", []byte("package x\n\nfunc f() {\n\n}\n"), 2))(t)
	require.Equal(t, []string{"x.go:3: f has 3 lines, more than 2"}, found)
}

func TestFilesHaveOneSubject(t *testing.T) {
	for _, x := range texts(t, "*.go", "*.lua") {
		if n := len(x.lines()); n > maxFileLines {
			t.Errorf("%s: %d lines, more than %d", x.name, n, maxFileLines)
		}
	}
}

func TestGoIsFormatted(t *testing.T) {
	for _, x := range texts(t, "*.go") {
		want, err := format.Source(x.body)
		require.NoError(t, err, x.name)
		if !bytes.Equal(want, x.body) {
			t.Errorf("%s: run gofmt -w on it", x.name)
		}
	}
}

// The words are put together here so that this file does not hold what it looks for.
var (
	unfinished = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machine    = regexp.MustCompile(`(?:^|[^\w.])/(?:home|root|Users|work|mnt)/\w`)
)

func TestWordsThatDoNotBelongHere(t *testing.T) {
	rules := []struct {
		what *regexp.Regexp
		why  string
	}{
		{unfinished, "finish it, or say in ARCHITECTURE.md what is missing"},
		{machine, "a path of one machine"},
	}
	for _, x := range texts(t, "*") {
		for i, line := range x.lines() {
			for _, r := range rules {
				if hit := r.what.FindString(line); hit != "" {
					t.Errorf("%s:%d: %q: %s", x.name, i+1, hit, r.why)
				}
			}
		}
	}
	require.True(t, unfinished.MatchString("// "+"TO"+"DO: later"))
	require.True(t, machine.MatchString("cd "+"/ho"+"me/someone"))
	require.False(t, machine.MatchString("example.com/home/page, internal/wo"+"rk/x"))
}

// TestASleepSaysWhatItStandsFor: a test that sleeps until something may have happened is slow or fails by chance. What
// is left are sleeps that are the work or the fault itself, and say so next to them.
func TestASleepSaysWhatItStandsFor(t *testing.T) {
	t.Parallel()
	sleep := regexp.MustCompile(`\btime\.Sleep\(`)
	for _, x := range texts(t, "*_test.go") {
		for i, line := range x.lines() {
			if sleep.MatchString(line) && !strings.Contains(line, "// ") && x.name != "internal/tidy/tidy_test.go" {
				t.Errorf("%s:%d: say what this sleep stands for, or wait for a signal: %s", x.name, i+1, strings.TrimSpace(line))
			}
		}
	}
}
