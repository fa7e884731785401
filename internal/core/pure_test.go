package core

import (
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
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

const module = "github.com/headwaiter/headwaiter/"

// pure are the packages that a core may import. What is not here is refused: locks, contexts, networks, files, logs, chance, and
// of the project above all lua, which reaches rueidis, and lease, which reaches contexts.
var pure = []string{
	"cmp", "container/list", "container/ring", "errors", "fmt", "maps", "math", "math/bits", "slices", "strconv", "strings", "time",
	module + "internal/core", module + "internal/reason", module + "internal/times", module + "internal/wire",
}

// impure are functions and types of those that look at the clock, wait, print or run something.
var impure = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer", "time.NewTicker",
	"time.Timer", "time.Ticker", "time.LoadLocation", "time.Local",
	"fmt.Print", "fmt.Printf", "fmt.Println", "fmt.Fprint", "fmt.Fprintf", "fmt.Fprintln", "fmt.Scan", "fmt.Scanf", "fmt.Scanln",
}

// impurities says what a package does that a core must not.
func impurities(t *testing.T, files *token.FileSet, syntax []*ast.File, from types.Importer) (found []string) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	must.Got((&types.Config{Importer: from}).Check("p", files, syntax, info))(t)
	add := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s", files.Position(n.Pos()), what))
	}
	for _, file := range syntax {
		for _, spec := range file.Imports {
			if path := must.Got(strconv.Unquote(spec.Path.Value))(t); !slices.Contains(pure, path) {
				add(spec, "imports "+path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				add(n, "starts a goroutine")
			case *ast.SelectStmt:
				add(n, "selects")
			case *ast.Ident:
				if of := info.Uses[n]; of != nil && of.Pkg() != nil && slices.Contains(impure, of.Pkg().Path()+"."+of.Name()) && of.Parent() == of.Pkg().Scope() {
					add(n, "uses "+of.Pkg().Path()+"."+of.Name())
				}
			}
			if e, ok := n.(ast.Expr); ok {
				if typ := info.Types[e].Type; typ != nil {
					if _, channel := typ.Underlying().(*types.Chan); channel {
						add(n, "has a channel")
					}
				}
			}
			return true
		})
	}
	return found
}

// exports returns what imports the packages that some folders, and small bad sources, need.
func exports(t *testing.T, files *token.FileSet, packages ...string) types.Importer {
	out := must.Got(exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, packages...)...).Output())(t)
	of := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		of[path] = file
	}
	return importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(of[path]) })
}

func TestTheCoresAreConfinedToDecisions(t *testing.T) {
	files := token.NewFileSet()
	from := exports(t, files, ".", "../event", "../times", "../wire", "../reason", "sync", "sync/atomic", "context", "net", "math/rand/v2", "log/slog")
	for _, folder := range []string{".", "../event", "../times", "../wire", "../reason"} {
		var syntax []*ast.File
		for _, name := range sources(t, folder) {
			syntax = append(syntax, must.Got(parser.ParseFile(files, name, nil, parser.SkipObjectResolution))(t))
		}
		require.NotEmpty(t, syntax)
		require.Empty(t, impurities(t, files, syntax, from), filepath.Base(folder))
	}

	for source, want := range map[string]string{
		`func f() { go f() }`:                            "starts a goroutine",
		`func f() { select {} }`:                         "selects",
		`type t struct { c chan int }`:                   "has a channel",
		`type done <-chan struct{}; func f(d done) {}`:   "has a channel",
		`import "sync"; var mu sync.Mutex`:               "imports sync",
		`import "sync/atomic"; var n atomic.Int64`:       "imports sync/atomic",
		`import . "context"; var c Context`:              "imports context",
		`import _ "net"`:                                 "imports net",
		`import "os"; var a = os.Args`:                   "imports os",
		`import "io"; var r io.Reader`:                   "imports io",
		`import _ "log/slog"`:                            "imports log/slog",
		`import "math/rand/v2"; var n = rand.Int()`:      "imports math/rand/v2",
		`import "time"; var now = time.Now()`:            "uses time.Now",
		`import t "time"; var now = t.Now`:               "uses time.Now",
		`import . "time"; func f() { Sleep(1) }`:         "uses time.Sleep",
		`import "time"; var d = time.Since(time.Time{})`: "uses time.Since",
		`import "time"; var d = time.Until(time.Time{})`: "uses time.Until",
		`import "time"; var c = time.After(1)`:           "uses time.After",
		`import "time"; var c = time.Tick(1)`:            "uses time.Tick",
		`import "time"; var c = time.NewTimer(1)`:        "uses time.NewTimer",
		`import "time"; func f(t *time.Timer) {}`:        "uses time.Timer",
		`import "fmt"; func f() { fmt.Println() }`:       "uses fmt.Println",
	} {
		file := must.Got(parser.ParseFile(files, "bad.go", "package bad; "+source, 0))(t)
		found := strings.Join(impurities(t, files, []*ast.File{file}, from), "\n")
		require.Contains(t, found, want, source)
	}
	file := must.Got(parser.ParseFile(files, "good.go", `package good
		import "time"
		func f(at time.Time) bool { return at.After(at.Add(time.Second)) }`, 0))(t)
	require.Empty(t, impurities(t, files, []*ast.File{file}, from))

	for _, refused := range []string{"lua", "lease", "waitqueue", "internal/conn", "internal/event"} {
		require.NotContains(t, pure, module+refused)
	}
}
