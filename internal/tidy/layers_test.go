package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

const (
	module    = shape.Module
	rueidis   = "github.com/redis/rueidis"
	uuid      = "github.com/google/uuid"
	miniredis = "github.com/alicebob/miniredis/v2"
	testify   = "github.com/stretchr/testify"
	goleak    = "go.uber.org/goleak"
	porcupine = "github.com/anishathalye/porcupine"
)

// primitive is what a primitive may import.
var primitive = []string{".", "internal/option", "internal/wire", "lua", "lease", "observe", "internal/calls", "waitqueue"}

// layers are the packages of the core module and what each may import in addition to the standard library:
// packages of the core by their folder, others by their module. Imports point down only, and a new edge
// is a reviewed edit of this table. Packages of internal/ that are not listed may import what they like.
var layers = map[string][]string{
	// L0
	"internal/wire":   {},                                                       // What is asked, answered and told, as plain values.
	"internal/times":  {},                                                       // Which of several times comes first, and pauses between attempts.
	"internal/option": {},                                                       // Which primitives can honour an option.
	"internal/reason": {},                                                       // Plain errors, for what must not import lease.
	"lua":             {"internal/wire", rueidis},                               // which decodes replies
	"internal/keeper": {"internal/reason", "internal/times"},                    // The engine's side of a lease: this and what follows link no driver.
	"lease":           {"internal/keeper", "internal/reason", "internal/times"}, // The owner's side, and the words of all engines.
	"observe":         {},
	// What all engines do alike.
	"internal/names":  {"lease"},
	"internal/calls":  {"lease", "internal/times"},
	"internal/timers": {"internal/keeper"},
	"internal/notify": {"lease", "observe"},
	// For programs.
	"internal/tty": {},
	// What decides. Both get the time and all else as arguments, so they link neither a driver nor a context.
	"internal/core":  {"internal/reason", "internal/wire", "internal/times"},                  // Locks: tickets, holds, polls.
	"internal/event": {"internal/core", "internal/reason", "internal/wire", "internal/times"}, // Latches, barriers, observers of an election.
	// L1
	"internal/conn":     {"internal/reason", "internal/wire", "lua", "internal/keeper", "lease", "internal/calls", "internal/timers", rueidis, "internal/times"},
	"internal/identity": {"internal/wire", "lua", "lease", "internal/conn", "internal/calls", rueidis},                  // Who had the identity before; waitqueue says of which names.
	"internal/outside":  {"internal/wire", "internal/core", "lua", "lease", "internal/conn", "internal/calls", rueidis}, // Looking at names; waitqueue gives it the connections.
	// L2
	"waitqueue": {"internal/wire", "internal/core", "internal/event", "lua", "lease", "observe", "internal/conn", "internal/identity", "internal/keeper", "internal/names", "internal/notify", "internal/option", "internal/reason", "internal/outside", "internal/calls", "internal/timers", rueidis, uuid},
	// L3: what a program imports first. Nothing below imports it.
	".": {"lease", "observe", "internal/conn", "internal/option", "waitqueue", rueidis},
	// Looking from outside.
	"doctor":  {".", "lua", "internal/calls", "waitqueue", rueidis},
	"inspect": {".", "internal/wire", "lua", "lease", "internal/outside", "internal/calls", "waitqueue", rueidis},
	// L4: they never import each other.
	"fairlock":  primitive,
	"reentrant": primitive,
	"rwlock":    primitive,
	"semaphore": primitive,
	"countdown": primitive,
	"barrier":   primitive,
	"redlock":   append([]string{"internal/names", "internal/keeper"}, primitive...),
	"election":  primitive,
	"fence":     {"lua", "lease", "waitqueue", "internal/names", rueidis}, // its marks are the caller's, on the caller's connections
	// L5
	"multilock": primitive,                                                                                 // The same protocol as fairlock, for several names.
	"striped":   {".", "internal/option", "lease", "internal/calls", "waitqueue", "fairlock", "semaphore"}, // whose permits say how many stripes there are
	// For the engines of contrib, which are modules of their own.
	"internal/engine": {"internal/keeper", "lease", "observe", "internal/names", "internal/notify", "internal/calls"},
	// For tests only, those of other engines too.
	"conformance":                {"lease"},
	"internal/testenv/daemon":    {}, // which benchmarks run their servers with
	"internal/testenv/evidence":  {}, // in which they and faults note what took effect
	"internal/testenv/redistest": {"internal/testenv/daemon", "internal/testenv/evidence", rueidis, miniredis},
	"internal/testenv/postgres":  {"internal/testenv/daemon"},
	"internal/testenv/faults":    {"internal/testenv/evidence"},
	"internal/tidy":              {},
	"internal/verify/judge":      {}, // of holds: of tests, the demo and the benchmark
}

// The modules that go.mod may name: for the library, and for tests.
var (
	libraryModules = []string{rueidis, uuid}
	testModules    = []string{miniredis, testify, goleak, porcupine}
)

// source is a Go file of the core module that is no test.
type source struct {
	text
	folder string
	syntax *ast.File
	files  *token.FileSet
}

// sources returns the Go files of the core module that are no tests: what is below another go.mod is not
// the core's.
func sources(t *testing.T) []source {
	t.Helper()
	var nested []string
	for _, x := range texts(t, "go.mod") {
		if dir := path.Dir(x.name); dir != "." {
			nested = append(nested, dir+"/")
		}
	}
	var found []source
	for _, x := range texts(t, "*.go") {
		in := func(dir string) bool { return strings.HasPrefix(x.name, dir) }
		if strings.HasSuffix(x.name, "_test.go") || slices.ContainsFunc(nested, in) {
			continue
		}
		files := token.NewFileSet()
		syntax := kit.Got(parser.ParseFile(files, x.name, x.body, parser.SkipObjectResolution|parser.ParseComments))(t)
		found = append(found, source{x, path.Dir(x.name), syntax, files})
	}
	return found
}

// forbidden returns the imports of a package in the given folder that the table does not allow.
func forbidden(folder string, imports []string) []string {
	allowed, listed := layers[folder]
	if !listed && strings.HasPrefix(folder, "internal/") {
		return nil
	}
	if !listed {
		return []string{fmt.Sprintf("package %s is not in the table of layers", folder)}
	}
	var found []string
	for _, imported := range imports {
		if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
			continue // The standard library.
		}
		own, isOwn := strings.CutPrefix(imported, module+"/")
		if imported == module {
			own, isOwn = ".", true
		}
		if isOwn && slices.Contains(allowed, own) {
			continue
		}
		inModule := func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }
		if isOwn || !slices.ContainsFunc(allowed, inModule) {
			found = append(found, fmt.Sprintf("%s must not import %s", folder, own))
		}
	}
	return found
}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		var imports []string
		for _, spec := range s.syntax.Imports {
			imported := kit.Got(strconv.Unquote(spec.Path.Value))(t)
			imports = append(imports, imported)
		}
		for _, f := range forbidden(s.folder, imports) {
			t.Errorf("%s: %s", s.name, f)
		}
	}
}

func TestAnImportThatPointsUpIsFound(t *testing.T) {
	require.Empty(t, forbidden("waitqueue", []string{"net/http", module + "/lua", rueidis, rueidis + "/rueidiscompat"}))
	require.Len(t, forbidden("lua", []string{module + "/lease"}), 1)
	require.Len(t, forbidden("fairlock", []string{module + "/semaphore"}), 1)
	require.Len(t, forbidden("fairlock", []string{rueidis, module + "/internal/testenv/faults"}), 2)
	require.Len(t, forbidden("waitqueue", []string{module + "/lua/inner", module, rueidis + "x"}), 3)
	require.Len(t, forbidden("unheard", nil), 1)
	require.Empty(t, forbidden("internal/unheard", []string{module + "/fairlock"}))
}

// TestPrimitivesOnlyBind holds the rule that waiting, goroutines and clocks live in waitqueue alone.
func TestPrimitivesOnlyBind(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	for _, s := range sources(t) {
		if !slices.Contains(layers[s.folder], "waitqueue") {
			continue
		}
		if s.folder == "redlock" {
			continue // It asks several clients at the same time: goroutines in one place, background.go, and time-outs.
		}
		if s.folder == "doctor" {
			continue // It is no primitive: it measures how far a server is, and the difference of the clocks.
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine in a primitive", s.files.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: time.%s in a primitive", s.files.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// direct returns the modules that a go.mod requires and does not mark as indirect.
func direct(body string) []string {
	var found []string
	block := false
	for line := range strings.Lines(body) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == ")":
			block = false
		case fields[0] == "require" && len(fields) > 1 && fields[1] == "(":
			block = true
		case strings.HasSuffix(strings.TrimSpace(line), "// indirect"):
		case block:
			found = append(found, fields[0])
		case fields[0] == "require":
			found = append(found, fields[1])
		}
	}
	return found
}

func TestTheCoreNeedsTwoModules(t *testing.T) {
	allowed := slices.Concat(libraryModules, testModules)
	for _, x := range texts(t, "go.mod") {
		if x.name != "go.mod" {
			continue
		}
		for _, m := range direct(string(x.body)) {
			if !slices.Contains(allowed, m) {
				t.Errorf("go.mod requires %s: what needs it belongs in a module of its own", m)
			}
		}
	}
	for folder, allowed := range layers {
		for _, a := range allowed {
			if strings.Contains(a, "/") && strings.Contains(a, ".") && !strings.HasPrefix(folder, "internal/") {
				require.Contains(t, libraryModules, a, folder)
			}
		}
	}
	mod := "module m\nrequire a.b/c v1.0.0\nrequire (\n\td.e/f v1.0.0\n\tg.h/i v1.0.0 // indirect\n)\n"
	require.Equal(t, []string{"a.b/c", "d.e/f"}, direct(mod))
}

func TestModulesAreJoinedWithoutReplace(t *testing.T) {
	for _, x := range texts(t, "go.mod", "go.work") {
		for i, line := range x.lines() {
			if strings.HasPrefix(strings.TrimSpace(line), "replace") {
				t.Errorf("%s:%d: replace does not reach the users of a module", x.name, i+1)
			}
		}
	}
}
