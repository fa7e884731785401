package tidy

import (
	"fmt"
	"go/ast"
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

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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
	page := text{"p.md", []byte("`make test` and `make nothing`\n```\nmake test nowhere # make it\n$ go run ./examples/no --x\ngo test ./...\n```\n`go test -run TestNever ./fairlock`\n`go test -run 'TestNowhere|^TestExtremeTimes' ./fairlock`\n")}
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

// A release waits for the workflow that takes all steps of the check.
func TestAReleaseIsPublishedBehindItsTests(t *testing.T) {
	t.Parallel()
	release := kit.Got(os.ReadFile(filepath.Join(root(t), ".github", "workflows", "release.yml")))(t)
	require.Contains(t, string(release), "  test:\n    uses: ./.github/workflows/test.yml\n  release:\n    needs: test")
}

// A program imports the root package first, so all of it fits on a screen.
const maxRootNames = 45

// topLevel returns what files export: names, and methods as T.M.
func topLevel(files []*ast.File) (names []string) {
	add := func(id *ast.Ident, of string) {
		if id.IsExported() && (of == "" || ast.IsExported(of)) {
			if of != "" {
				of += "."
			}
			names = append(names, of+id.Name)
		}
	}
	for _, f := range files {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				of := ""
				if d.Recv != nil {
					of = receiver(d.Recv.List[0].Type)
				}
				add(d.Name, of)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id, "")
						}
					case *ast.TypeSpec:
						add(s.Name, "")
					}
				}
			}
		}
	}
	return names
}

func TestTheRootFitsOnAScreen(t *testing.T) {
	var own []*ast.File
	for _, s := range sources(t) {
		if s.folder == "." {
			own = append(own, s.syntax)
		}
	}
	names := topLevel(own)
	require.Subset(t, names, []string{"Dial", "Client.Close"})
	slices.Sort(names)
	require.LessOrEqual(t, len(names), maxRootNames, "%q", names)
}

// goBlock is a block of Go code in a page.
var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestReadmeCodeIsCutFromTests holds the README's Go code against the tests: whoever copies it copies
// something that ran.
func TestReadmeCodeIsCutFromTests(t *testing.T) {
	root := root(t)
	readme := kit.Got(os.ReadFile(filepath.Join(root, "README.md")))(t)
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)

	var tested strings.Builder
	for _, x := range texts(t, "*_test.go", "main.go") {
		if x.name == "examples/lock/main.go" || strings.HasSuffix(x.name, "_test.go") { // A test runs that program.
			tested.WriteString(squeezed(string(x.body)))
		}
	}
	for _, b := range blocks {
		require.True(t, strings.Contains(tested.String(), squeezed(b[1])), "README.md: this code is in no test:\n%s", b[1])
	}
}

// squeezed is code without its indentation.
func squeezed(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// What a program gets that imports package fairlock, of this module. A new package here is a reviewed edit of this list.
var reach = []string{
	".", "fairlock", "internal/conn", "internal/core", "internal/event", "internal/identity", "internal/keeper", "internal/names", "internal/notify", "internal/option", "internal/outside", "internal/reason", "internal/calls", "internal/timers", "internal/times", "internal/wire", "lease", "lua", "observe", "waitqueue",
}

func TestALockReachesNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	var found []string
	for _, p := range listed(t, "-deps", "./fairlock") {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if folder == "" {
			folder = "."
		}
		found = append(found, folder)
	}
	require.ElementsMatch(t, reach, found)
}

// unlinked says what a program that imports a package must not get with it.
var unlinked = map[string][]string{
	"contrib/etcdlock": {rueidis, module + "/lua", module + "/waitqueue"},
	"contrib/zklock":   {rueidis, module + "/lua", module + "/waitqueue"},
	"contrib/sqllock":  {rueidis, module + "/lua", module + "/waitqueue"},
	// It needs three packages of this module, which need no other: see layers.
	"lease":   {rueidis, module + "/lease", module + "/lua", module + "/observe", module + "/waitqueue", module + "/internal/wire"},
	"observe": {rueidis, module},
	// What the demo and the benchmark want is theirs.
	"cmd/headwaiter": {miniredis, "github.com/yuin/gopher-lua", "github.com/go-echarts", "github.com/chromedp"},
}

// linked returns those of the unwanted packages, and of what lies in them, that a package needs.
func linked(t *testing.T, folder string, unwanted []string) (found []string) {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "./"+folder)
	list.Dir = root(t)
	out := kit.Got(list.Output())(t)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, u := range unwanted {
			if dep != module+"/"+folder && (dep == u || strings.HasPrefix(dep, u+"/")) {
				found = append(found, dep)
			}
		}
	}
	return found
}

func TestNobodyLinksWhatTheyDoNotUse(t *testing.T) {
	for folder, unwanted := range unlinked {
		require.Empty(t, linked(t, folder, unwanted), folder)
	}
}

func TestALinkToTheDriverIsFound(t *testing.T) {
	require.NotEmpty(t, linked(t, "fairlock", unlinked["contrib/etcdlock"]))
	require.NotEmpty(t, linked(t, "contrib/certmagic", []string{rueidis}))
	require.NotEmpty(t, linked(t, "internal/names", unlinked["lease"]))
	require.Subset(t, linked(t, "examples/demo", unlinked["cmd/headwaiter"]), unlinked["cmd/headwaiter"][:2])
}
