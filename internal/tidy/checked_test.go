package tidy

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

var checkedOnce struct {
	sync.Mutex
	packages []shape.Package
}

// checked returns the packages of the core.
func checked(t *testing.T) []shape.Package {
	t.Helper()
	checkedOnce.Lock()
	defer checkedOnce.Unlock()
	if checkedOnce.packages == nil {
		checkedOnce.packages = kit.Got(shape.Packages(root(t)))(t)
		require.Greater(t, len(checkedOnce.packages), 20, "the packages are not found")
	}
	return checkedOnce.packages
}

// checkedSource is a package of one file, which imports nothing.
func checkedSource(t *testing.T, source string) shape.Package {
	t.Helper()
	p := shape.Package{Files: token.NewFileSet()}
	p.Syntax = []*ast.File{kit.Got(parser.ParseFile(p.Files, "x.go", source, 0))(t)}
	require.NoError(t, p.Check("x", nil))
	return p
}

// A block is code that a page shows.
type block struct {
	where    string // page:line of its first line
	language string
	body     string
}

// blocks returns the code blocks of a page.
func blocks(x text) []block {
	var found []block
	var in *block
	for i, line := range x.lines() {
		mark := strings.TrimSpace(line)
		switch {
		case in == nil && strings.HasPrefix(mark, "```"):
			in = &block{where: fmt.Sprintf("%s:%d", x.name, i+2), language: strings.TrimPrefix(mark, "```")}
		case in != nil && mark == "```":
			found, in = append(found, *in), nil
		case in != nil:
			in.body += line + "\n"
		}
	}
	return found
}

// declarations tells whether Go code stands on its own, so that a package clause makes a file of it.
var declarations = regexp.MustCompile(`(?m)^(?:package|import|func|type|var|const) ?[\w(]`)

// TestGoCodeInPagesCompiles builds the blocks of Go that are whole, and holds those that are cut from
// something against the tests, which compile.
func TestGoCodeInPagesCompiles(t *testing.T) {
	t.Parallel()
	var tested strings.Builder
	for _, x := range texts(t, "*_test.go") {
		tested.WriteString(squeezed(string(x.body)))
	}
	var whole []block
	for _, x := range texts(t, "*.md") {
		for _, b := range blocks(x) {
			switch {
			case b.language != "go":
			case strings.Contains(tested.String(), squeezed(b.body)):
			case !declarations.MatchString(b.body):
				t.Errorf("%s: these statements are cut from no test: make declarations of them, with their imports, or an Example", b.where)
			default:
				whole = append(whole, b)
			}
		}
	}
	require.NotEmpty(t, whole, "the blocks are not found")
	out, err := compile(t, whole)
	require.NoError(t, err, "%s", out)
}

func TestGoCodeThatDoesNotCompileIsFound(t *testing.T) {
	t.Parallel()
	x := text{"page.md", []byte("a\n```go\nfunc f() { return missing }\n```\n\n  ```\n  make it\n  ```\n")}
	found := blocks(x)
	require.Len(t, found, 2)
	require.Equal(t, block{"page.md:3", "go", "func f() { return missing }\n"}, found[0])
	require.Equal(t, "", found[1].language)
	out, err := compile(t, found[:1])
	require.Error(t, err)
	require.Contains(t, out, "page.md:3")
}

// compile builds each block as a package of its own, below this folder as far as the go command knows: so
// they may import what any module of the workspace may. Nothing is written there.
func compile(t *testing.T, all []block) (string, error) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, b := range all {
		body := b.body
		if !strings.Contains(body, "\npackage ") && !strings.HasPrefix(body, "package ") {
			// The line is told as the page's.
			name, line, _ := strings.Cut(b.where, ":")
			body = fmt.Sprintf("package block\n\n//line %s:%s\n%s", name, line, body)
		}
		file := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		require.NoError(t, os.WriteFile(file, []byte(body), 0o600))
		name := fmt.Sprintf("block%d", i)
		replace[filepath.Join(root(t), "internal", "tidy", "internal", name, "block.go")] = file
		args = append(args, "./internal/tidy/internal/"+name)
	}
	overlay := kit.Got(json.Marshal(map[string]any{"Replace": replace}))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What uses each other in a circle can only be read together. maxCircle is how many lines that may be; a type counts with
// its methods, so that nothing is hidden by moving a function from one file to the next.
const maxCircle = 1500

// circles are the bounds of packages that have one of their own. They may shrink.
var circles = map[string]int{
	"internal/conn":           2060, // Servers, their connections and when these are tried, what a client is known by, who guards its identity, and requests answered once.
	"internal/core":           1350, // A lock, its tickets, holds and requests.
	"internal/verify/explore": 2720, // A world: clients with their shell, calls for several names, the network, and the judge, who sees all of them.
	"waitqueue":               700,  // Queues and cohorts; entries, holds and leases, sites, and calls that wait are outside of it.
}

func TestNoCircleIsTooLargeToBeRead(t *testing.T) {
	t.Parallel()
	for _, p := range checked(t) {
		size, limit := p.Circle(), maxCircle
		if own, ok := circles[p.Folder]; ok {
			limit = own
			require.Greater(t, size, own-100, "%s has become smaller: say so here", p.Folder)
		}
		require.LessOrEqual(t, size, limit, p.Folder)
	}
}

func TestACircleIsFoundThroughAMethod(t *testing.T) {
	const source = `package x
type a struct{}
func (a) m() { f() }
func f() {
	var x a
	_ = x
}
func alone() { f() }`
	require.Equal(t, 1+1+4, checkedSource(t, source).Circle())
}
