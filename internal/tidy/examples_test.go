package tidy

import (
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

// built is what go list says about a package.
type built = shape.Listed

// listed runs go list in the workspace.
func listed(t *testing.T, args ...string) []built {
	t.Helper()
	return kit.Got(shape.List(root(t), args...))(t)
}

// published tells whether users call what the package exports: package lua is the project's own protocol,
// and the rest of what is left out is programs, their parts, and tests.
func published(p built) bool {
	folder := strings.TrimPrefix(p.ImportPath, module+"/")
	return p.Name != "main" && folder != "lua" && !strings.Contains("/"+folder+"/", "/internal/") &&
		!strings.HasPrefix(folder, "bench") && !strings.HasPrefix(folder, "cmd/") && !strings.HasPrefix(folder, "examples")
}

// bySignature are methods that have their meaning from an interface of the standard library: whoever prints
// an error or compares it calls them without their name.
var bySignature = []string{"Error", "Unwrap", "Is", "String", "MarshalJSON"}

// byInterface are methods that another package calls through an interface of its own; the Examples show the
// type where it is handed over.
var byInterface = []string{
	"Transport.RoundTrip",                     // net/http
	"Collector.Collect", "Collector.Describe", // client_golang
	"Collector.Observe",                                 // observe.Observer
	"Collector.ObserveRequest", "Tracer.ObserveRequest", // observe.RequestObserver
	"Tracer.Observe", "Tracer.Wait", "Tracer.Hold", "Tracer.Note", // observe.Tracer
}

// exported returns the functions and methods that a package exports, as T.M for a method.
func exported(files []*ast.File) []string {
	var found []string
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			if f.Recv == nil {
				if !wantsTest(f.Type) {
					found = append(found, f.Name.Name)
				}
				continue
			}
			if len(f.Body.List) == 0 {
				continue // A mark, for the compiler.
			}
			of := receiver(f.Recv.List[0].Type)
			name := of + "." + f.Name.Name
			if ast.IsExported(of) && !slices.Contains(bySignature, f.Name.Name) && !slices.Contains(byInterface, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// wantsTest tells whether a function takes a test, which no Example has.
func wantsTest(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if of, ok := star.X.(*ast.SelectorExpr); ok && of.Sel.Name == "T" {
			return true
		}
	}
	return false
}

// receiver is the name of a receiver's type, without pointer and parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// uses returns what of the package at path the node calls or passes on, named as exported names it.
func uses(info *types.Info, path string, node ast.Node) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(node, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		f, ok := info.Uses[id].(*types.Func)
		if !ok || f.Pkg() == nil || f.Pkg().Path() != path {
			return true
		}
		name := f.Name()
		if recv := f.Signature().Recv(); recv != nil {
			of := recv.Type()
			if p, ok := of.(*types.Pointer); ok {
				of = p.Elem()
			}
			if named, ok := of.(*types.Named); ok {
				name = named.Obj().Name() + "." + name
			}
		}
		found[name] = true
		return true
	})
	return found
}

// shown returns what of the package at path is used by the Examples with checked output in files, which are
// its external tests: in the Example, or in a function of the same files that an Example calls.
func shown(info *types.Info, path string, files []*ast.File) map[string]bool {
	bodies := map[types.Object]ast.Node{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				bodies[info.Defs[f.Name]] = f.Body
			}
		}
	}
	found, seen := map[string]bool{}, map[types.Object]bool{}
	var follow func(ast.Node)
	follow = func(body ast.Node) {
		maps.Copy(found, uses(info, path, body))
		ast.Inspect(body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if of := info.Uses[id]; of != nil && bodies[of] != nil && !seen[of] {
					seen[of] = true
					follow(bodies[of])
				}
			}
			return true
		})
	}
	for _, e := range doc.Examples(files...) {
		if e.Output != "" || e.EmptyOutput {
			follow(e.Code)
		}
	}
	return found
}

// undemonstrated returns what a package exports and no Example with checked output uses.
func undemonstrated(t *testing.T, p built, exports map[string]string) []string {
	t.Helper()
	files := token.NewFileSet()
	parse := func(names []string) []*ast.File {
		var all []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			all = append(all, file)
		}
		return all
	}
	tests := parse(p.XTestGoFiles)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	if len(tests) > 0 {
		conf := types.Config{Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
			// A package that its own tests extend, or that depends on one, has a variant for those tests.
			variant, ok := exports[path+" ["+p.ImportPath+".test]"]
			if !ok {
				variant = exports[path]
			}
			return os.Open(variant)
		})}
		_, err := conf.Check(p.ImportPath+"_test", files, tests, info)
		require.NoError(t, err)
	}
	there := shown(info, p.ImportPath, tests)
	var found []string
	for _, name := range exported(parse(p.GoFiles)) {
		if !there[name] {
			found = append(found, p.ImportPath+": no Example with checked output uses "+name)
		}
	}
	return found
}

// TestEveryExportedFunctionHasAnExample asks for an Example with checked output that calls what is exported:
// one with its name, or one that shows several that belong together.
func TestEveryExportedFunctionHasAnExample(t *testing.T) {
	t.Parallel()
	var public []built
	var paths []string
	for _, p := range listed(t, module+"/...") {
		if published(p) {
			public, paths = append(public, p), append(paths, p.ImportPath)
		}
	}
	require.Greater(t, len(public), 15, "the packages are not found")
	exports := map[string]string{}
	for _, p := range listed(t, append([]string{"-export", "-deps", "-test"}, paths...)...) {
		exports[p.ImportPath] = p.Export
	}
	for _, p := range public {
		none(t, undemonstrated(t, p, exports))
	}
}

func TestWhatNoExampleShowsIsFound(t *testing.T) {
	const source = `package x
type T[V any] struct{}
func F() {}
func (t *T[V]) M() { F() }
func (t *T[V]) Mark() {}
func (t T[V]) String() string { return "" }
func (u hidden) M() {}
type hidden struct{}
func inner() {}`
	const test = `package x
func ExampleF() {
	help()
	// Output: seen
}
func help() { F() }
func ExampleT_M() { (&T[int]{}).M() }`
	files := token.NewFileSet()
	code, err := parser.ParseFile(files, "x.go", source, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"F", "T.M"}, exported([]*ast.File{code}))

	examples, err := parser.ParseFile(files, "x_test.go", test, parser.ParseComments)
	require.NoError(t, err)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	_, err = new(types.Config).Check("x", files, []*ast.File{code, examples}, info)
	require.NoError(t, err)
	there := shown(info, "x", []*ast.File{examples})
	require.True(t, there["F"], "an Example calls it through a function of its file")
	require.False(t, there["T.M"], "that Example has no output")
}
