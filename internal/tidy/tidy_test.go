package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// maxFunctionLines is about what fits on one screen.
	maxFunctionLines = 70
	// maxFileLines is where a file has more than one subject.
	maxFileLines = 500
)

// root is the folder of the core module, which is that of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
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
func texts(t *testing.T, patterns ...string) []text {
	t.Helper()
	repo := os.DirFS(root(t))
	ignored := ignore(t, repo)
	var found []text
	err := fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || ignored(name)):
			return fs.SkipDir
		case !entry.Type().IsRegular() || ignored(name) || !matches(patterns, path.Base(name)):
			return nil
		}
		body, err := fs.ReadFile(repo, name)
		if err == nil && !bytes.ContainsRune(body, 0) {
			found = append(found, text{name, body})
		}
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, found, "no file matches %v: the test looks in the wrong place", patterns)
	return found
}

// ignore reads .gitignore: patterns with a slash hold for paths from the root, others for names.
func ignore(t *testing.T, repo fs.FS) func(name string) bool {
	t.Helper()
	body, err := fs.ReadFile(repo, ".gitignore")
	require.NoError(t, err)
	var paths, names []string
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSuffix(strings.TrimSpace(line), "/")
		switch {
		case line == "" || line[0] == '#':
		case strings.Contains(line, "/"):
			paths = append(paths, strings.TrimPrefix(line, "/"))
		default:
			names = append(names, line)
		}
	}
	return func(name string) bool { return matches(paths, name) || matches(names, path.Base(name)) }
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
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
		found, err := longFunctions(x.name, x.body, maxFunctionLines)
		require.NoError(t, err)
		none(t, found)
	}
	found, err := longFunctions("x.go", []byte("package x\n\nfunc f() {\n\n}\n"), 2)
	require.NoError(t, err)
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
// is left are sleeps that are the work or the fault itself, and say so beside them.
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
