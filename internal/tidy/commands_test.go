package tidy

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	made   = regexp.MustCompile(`(?:^|[;&|(] ?|\s)make ((?:[a-z][a-z-]*\s?)+)`)
	target = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	spans  = regexp.MustCompile("`([^`]+)`")
	flags  = regexp.MustCompile(`(?:^|\s)--?([a-z][a-z-]*)`)
	ran    = regexp.MustCompile(`^go test .*-run '?([^' ]+)'? .*?(\./[\w./ -]+)`)
	local  = regexp.MustCompile(`(?:^|\s)(\./[\w./-]+|scripts/[\w-]+)`)
)

// A line of a page or a workflow that somebody may type.
type line struct{ where, text string }

// typed returns what of a page is to be typed in a shell: the lines of blocks without a language, and code in
// the text.
func typed(x text) []line {
	var found []line
	for _, b := range blocks(x) {
		if b.language == "" || b.language == "sh" {
			for s := range strings.Lines(b.body) {
				found = append(found, line{b.where, strings.TrimSpace(strings.TrimPrefix(s, "$ "))})
			}
		}
	}
	for i, s := range prose(x) {
		for _, span := range spans.FindAllStringSubmatch(s, -1) {
			found = append(found, line{fmt.Sprintf("%s:%d", x.name, i+1), span[1]})
		}
	}
	return found
}

// wrong returns what a line asks for that there is not: a target of make, or a file of the repository.
func wrong(l line, targets []string, repo fs.FS) []string {
	var found []string
	command, _, _ := strings.Cut(l.text, " #")
	for _, m := range made.FindAllStringSubmatch(command, -1) {
		for _, name := range strings.Fields(m[1]) {
			if strings.HasPrefix(l.text, "make") && !slices.Contains(targets, name) {
				found = append(found, l.where+": make has no target "+name)
			}
		}
	}
	if strings.HasPrefix(command, "go ") || strings.HasPrefix(command, "scripts/") || strings.HasPrefix(command, "./") {
		for _, m := range local.FindAllStringSubmatch(command, -1) {
			name := strings.TrimSuffix(strings.TrimPrefix(m[1], "./"), "/...")
			if name == "..." {
				continue
			}
			if _, err := fs.Stat(repo, strings.TrimSuffix(name, "/")); err != nil {
				found = append(found, l.where+": there is no "+m[1])
			}
		}
	}
	if m := ran.FindStringSubmatch(strings.ReplaceAll(command, `\|`, "|")); m != nil && m[1] != "^$" {
		for pattern := range strings.SplitSeq(m[1], "|") {
			folders := strings.Fields(m[2])
			if !slices.ContainsFunc(folders, func(f string) bool { return runs(repo, pattern, strings.TrimPrefix(f, "./")) }) {
				found = append(found, l.where+": no test of "+m[2]+" is "+pattern)
			}
		}
	}
	return found
}

var aTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// runs reports whether a pattern for tests, the part ahead of the first slash, matches one in a folder, or below it where
// that ends with dots: go test says "ok" also where it runs nothing.
func runs(repo fs.FS, pattern, folder string) bool {
	all := strings.HasSuffix(folder, "/...")
	pattern, _, _ = strings.Cut(pattern, "/")
	wanted, err := regexp.Compile(pattern)
	found := false
	_ = fs.WalkDir(repo, path.Clean(strings.TrimSuffix(folder, "/...")), func(name string, d fs.DirEntry, _ error) error {
		switch {
		case d == nil || err != nil:
		case d.IsDir() && !all && name != path.Clean(folder):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			source, _ := fs.ReadFile(repo, name)
			for _, m := range aTest.FindAllSubmatch(source, -1) {
				found = found || wanted.Match(m[1])
			}
		}
		return nil
	})
	return found
}

// A manual is what the command line says of itself, a command at a time.
type manual struct {
	program string
	known   map[string]string
}

// help returns what the program prints for a command, or "" if it has no such command.
func (m *manual) help(name string) string {
	if text, ok := m.known[name]; ok {
		return text
	}
	out, err := exec.Command(m.program, name, "--help").CombinedOutput()
	text := string(out)
	if err != nil || name != "help" && !strings.Contains(text, "headwaiter "+name) {
		text = ""
	}
	m.known[name] = text
	return text
}

// unknown returns the command and the flags of a line that the command line does not have.
func (m *manual) unknown(l line) []string {
	rest, ok := strings.CutPrefix(l.text, "headwaiter ")
	if !ok {
		return nil
	}
	rest, _, _ = strings.Cut(rest, " -- ")
	rest, _, _ = strings.Cut(rest, " #")
	name, arguments, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, ":") {
		return nil // headwaiter --help, or what it prints.
	}
	help := m.help(name)
	if help == "" {
		return []string{l.where + ": headwaiter has no command " + name}
	}
	var found []string
	for _, f := range flags.FindAllStringSubmatch(arguments, -1) {
		if !regexp.MustCompile(`--?` + f[1] + `\b`).MatchString(help) {
			found = append(found, l.where+": headwaiter "+name+" has no flag "+f[1])
		}
	}
	return found
}

// command builds the command line.
func command(t *testing.T) *manual {
	t.Helper()
	program := filepath.Join(t.TempDir(), "headwaiter")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/headwaiter")
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return &manual{program, map[string]string{}}
}

func makeTargets(t *testing.T) []string {
	t.Helper()
	var targets []string
	for _, x := range texts(t, "Makefile") {
		for _, m := range target.FindAllStringSubmatch(string(x.body), -1) {
			targets = append(targets, m[1])
		}
	}
	return targets
}

// TestCommandsInPagesAreThere holds what pages and workflows tell to type against the Makefile, the files and
// the help of the command.
func TestCommandsInPagesAreThere(t *testing.T) {
	t.Parallel()
	repo, targets, m := os.DirFS(root(t)), makeTargets(t), command(t)
	seen := 0
	for _, x := range texts(t, "*.md") {
		for _, l := range typed(x) {
			seen++
			none(t, wrong(l, targets, repo))
			none(t, m.unknown(l))
		}
	}
	require.Greater(t, seen, 100, "the commands are not found")
	for _, x := range texts(t, "*.yml", "run") {
		for i, s := range x.lines() {
			where := fmt.Sprintf("%s:%d", x.name, i+1)
			if _, matrix, ok := strings.Cut(s, "target: ["); ok {
				s = "make " + strings.NewReplacer(",", "", "]", "").Replace(matrix)
			}
			_, run, _ := strings.Cut(s, "run: ")
			none(t, wrong(line{where, run}, targets, repo))
			none(t, wrong(line{where, strings.TrimSpace(s)}, targets, repo))
		}
	}
}

func TestACommandThatIsNotThereIsFound(t *testing.T) {
	t.Parallel()
	repo, targets := os.DirFS(root(t)), makeTargets(t)
	page := text{"p.md", []byte("`make test` and `make nothing`\n```\nmake test nowhere # make it\n$ go run ./examples/no --x\ngo test ./...\n```\n`go test -run TestNever ./fairlock`\n`go test -run 'TestNowhere|^TestUnusableNames' ./fairlock`\n")}
	var found []string
	for _, l := range typed(page) {
		found = append(found, wrong(l, targets, repo)...)
	}
	require.Equal(t, []string{"p.md:3: make has no target nowhere", "p.md:3: there is no ./examples/no", "p.md:1: make has no target nothing", "p.md:7: no test of ./fairlock is TestNever", "p.md:8: no test of ./fairlock is TestNowhere"}, found)

	m := command(t)
	require.Empty(t, m.unknown(line{"p", "headwaiter exec x --wait 1s -- pg_dump -f x"}))
	require.Len(t, m.unknown(line{"p", "headwaiter exec x --wiat 1s -- ls"}), 1)
	require.Len(t, m.unknown(line{"p", "headwaiter exce x"}), 1)
}

// TestAReleaseIsPublishedBehindItsTests: each target of `.ci/run` runs in the workflow that the release waits for.
func TestAReleaseIsPublishedBehindItsTests(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		require.NoError(t, err)
		return string(b)
	}
	release, tests := read(".github/workflows/release.yml"), read(".github/workflows/test.yml")
	require.Contains(t, release, "  test:\n    uses: ./.github/workflows/test.yml\n  release:\n    needs: test")
	matrix := regexp.MustCompile(`target: \[(.*)\]`).FindStringSubmatch(tests)
	require.NotNil(t, matrix)
	runs := strings.ReplaceAll(matrix[1], ",", " ") + " "
	for _, m := range regexp.MustCompile(`run: make (.*)`).FindAllStringSubmatch(tests, -1) {
		runs += m[1] + " "
	}
	for _, m := range regexp.MustCompile(`(?m)^make (.*)$`).FindAllStringSubmatch(read(".ci/run"), -1) {
		words, _, _ := strings.Cut(m[1], "#")
		for _, word := range strings.Fields(words) {
			if target.MatchString(word + ":") {
				require.Contains(t, strings.Fields(runs), word, "%s is in .ci/run and not in the workflow", word)
			}
		}
	}
}
