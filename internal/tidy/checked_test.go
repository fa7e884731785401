package tidy

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// A checkedPackage is a package of the core as the type checker sees it, without its tests.
type checkedPackage struct {
	folder string
	files  *token.FileSet
	syntax []*ast.File
	types  *types.Package
	info   *types.Info
}

var checkedOnce struct {
	sync.Mutex
	packages []checkedPackage
}

// checked returns the packages of the core.
func checked(t *testing.T) []checkedPackage {
	t.Helper()
	checkedOnce.Lock()
	defer checkedOnce.Unlock()
	if checkedOnce.packages != nil {
		return checkedOnce.packages
	}
	exports := map[string]string{}
	all := listed(t, "-export", "-deps", "./...")
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	for _, p := range all {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		c := checkedPackage{folder: strings.TrimPrefix(p.ImportPath, module+"/"), files: token.NewFileSet()}
		for _, name := range p.GoFiles {
			file := kit.Got(parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution))(t)
			c.syntax = append(c.syntax, file)
		}
		c.check(t, p.ImportPath, importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		}))
		checkedOnce.packages = append(checkedOnce.packages, c)
	}
	require.Greater(t, len(checkedOnce.packages), 20, "the packages are not found")
	return checkedOnce.packages
}

// checkedSource is a package of one file, which imports nothing.
func checkedSource(t *testing.T, source string) checkedPackage {
	t.Helper()
	c := checkedPackage{files: token.NewFileSet()}
	file := kit.Got(parser.ParseFile(c.files, "x.go", source, 0))(t)
	c.syntax = []*ast.File{file}
	c.check(t, "x", nil)
	return c
}

func (c *checkedPackage) check(t *testing.T, path string, from types.Importer) {
	t.Helper()
	c.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	c.types = kit.Got((&types.Config{Importer: from}).Check(path, c.files, c.syntax, c.info))(t)
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
			// The line is told as that of the page.
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

// larger are the circles that are larger than they should be. They may shrink.
var larger = map[string]int{
	"internal/conn": 2030, // Servers, their connections and when these are tried, what a client is known by, and requests answered once.
	"waitqueue":     2154, // Entries, watches, tickets, holds and what sends for them; calls, and what users call, are outside of it.
}

// A graph has the declarations of a package, and who uses whom.
type graph struct {
	lines []int
	uses  [][]int
}

// graphOf reads the declarations of a package.
func graphOf(files *token.FileSet, syntax []*ast.File, info *types.Info) graph {
	var g graph
	var nodes []ast.Node
	number := map[types.Object]int{}
	add := func(id *ast.Ident, node ast.Node) {
		number[info.Defs[id]] = len(nodes)
		nodes = append(nodes, node)
		g.lines = append(g.lines, files.Position(node.End()).Line-files.Position(node.Pos()).Line+1)
	}
	for _, f := range syntax {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				add(d.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name, s)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id, s)
						}
					}
				}
			}
		}
	}
	g.uses = make([][]int, len(nodes))
	for from, node := range nodes {
		ast.Inspect(node, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			of := info.Uses[id]
			if f, ok := of.(*types.Func); ok {
				of = f.Origin()
			}
			if to, ok := number[of]; ok {
				g.uses[from] = append(g.uses[from], to)
			}
			return true
		})
	}
	for of, method := range number {
		f, ok := of.(*types.Func)
		if !ok || f.Signature().Recv() == nil {
			continue
		}
		recv := f.Signature().Recv().Type()
		if p, ok := recv.(*types.Pointer); ok {
			recv = p.Elem()
		}
		if named, ok := recv.(*types.Named); ok {
			owner := number[named.Origin().Obj()]
			g.uses[owner] = append(g.uses[owner], method)
		}
	}
	return g
}

// circle is how many lines the largest circle has, by Tarjan's algorithm for strongly connected components (SIAM Journal on
// Computing 1(2), 1972).
func (g graph) circle() (largest int) {
	index, low, open := make([]int, len(g.lines)), make([]int, len(g.lines)), make([]bool, len(g.lines))
	var stack []int
	seen := 0
	var visit func(v int)
	visit = func(v int) {
		seen++
		index[v], low[v], open[v] = seen, seen, true
		stack = append(stack, v)
		for _, to := range g.uses[v] {
			switch {
			case index[to] == 0:
				visit(to)
				low[v] = min(low[v], low[to])
			case open[to]:
				low[v] = min(low[v], index[to])
			}
		}
		if low[v] != index[v] {
			return
		}
		size := 0
		for last := -1; last != v; {
			last = stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			open[last] = false
			size += g.lines[last]
		}
		largest = max(largest, size)
	}
	for v := range g.lines {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}

func TestNoCircleIsTooLargeToBeRead(t *testing.T) {
	t.Parallel()
	for _, p := range checked(t) {
		size, limit := graphOf(p.files, p.syntax, p.info).circle(), max(maxCircle, larger[p.folder])
		require.LessOrEqual(t, size, limit, p.folder)
		if larger[p.folder] > 0 {
			require.Greater(t, size, larger[p.folder]-100, "%s has become smaller: say so here", p.folder)
		}
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
	p := checkedSource(t, source)
	require.Equal(t, 1+1+4, graphOf(p.files, p.syntax, p.info).circle())
}
