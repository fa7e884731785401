package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

// headerless returns what is missing in the header of lua/<package>/<name>.lua. Those in lua/lib are not
// scripts of their own and need the first line only.
func headerless(x text) []string {
	folder, name := path.Base(path.Dir(x.name)), strings.TrimSuffix(path.Base(x.name), ".lua")
	lines := x.lines()
	var found []string
	first := fmt.Sprintf("-- %s/%s: ", folder, name)
	if about, ok := strings.CutPrefix(lines[0], first); !ok || about == "" {
		found = append(found, fmt.Sprintf("%s:1: must begin with %q and say what it does", x.name, first))
	}
	if folder == "lib" {
		return found
	}
	blocks := map[string]bool{}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "-- ")
		if !ok && line != "--" {
			break
		}
		block, about, _ := strings.Cut(rest, " ")
		blocks[block] = blocks[block] || strings.TrimSpace(about) != ""
	}
	for _, block := range []string{"KEYS", "ARGV", "REPLY", "RETRY"} {
		if !blocks[block] {
			found = append(found, fmt.Sprintf("%s: its header does not tell %s", x.name, block))
		}
	}
	return found
}

func TestLuaScriptsTellWhatTheyTakeAndAnswer(t *testing.T) {
	for _, x := range texts(t, "*.lua") {
		none(t, headerless(x))
	}
}

func TestAnIncompleteHeaderIsFound(t *testing.T) {
	header := "-- p/s: does it.\n--\n-- KEYS  k  hash\n-- ARGV  none\n-- REPLY {n}\n-- RETRY safe\nreturn 1\n"
	script := func(name, body string) text { return text{name, []byte(body)} }
	require.Empty(t, headerless(script("lua/p/s.lua", header)))
	require.Len(t, headerless(script("lua/p/other.lua", header)), 1)
	require.Len(t, headerless(script("lua/p/s.lua", strings.Replace(header, "-- KEYS", "return\n-- KEYS", 1))), 4)
	require.Len(t, headerless(script("lua/p/s.lua", strings.Replace(header, "-- RETRY safe", "-- RETRY", 1))), 1)
	require.Empty(t, headerless(script("lua/lib/s.lua", "-- lib/s: shared.\n")))
}

var called = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?`)

// What a script calls, a user must be allowed to, and the probe must ask for.
func TestTheProbeAsksForEveryCommandOfTheScripts(t *testing.T) {
	var probe, rights string
	calls := map[string]string{}
	for _, x := range texts(t, "*.lua") {
		if strings.HasSuffix(x.name, "waitqueue/restart.lua") {
			continue // For an option alone, which tells of what it lacks.
		}
		if strings.HasSuffix(x.name, "lib/history.lua") {
			continue // The same.
		}
		if strings.HasSuffix(x.name, "lib/origin.lua") {
			continue // Where it may not ask, it says nothing.
		}
		if strings.HasSuffix(x.name, "fence/admit.lua") {
			continue // It is for writers, not for lockers; it says what they need, and has a test of that.
		}
		if strings.HasSuffix(x.name, "waitqueue/probe.lua") {
			probe = string(x.body)
			continue // It can do without what else it tries.
		}
		for _, call := range called.FindAllStringSubmatch(string(x.body), -1) {
			command := call[1]
			if command == "PUBSUB" {
				command += "', '" + call[2]
			}
			calls[command] = x.name
		}
	}
	for _, x := range texts(t, "*.go") {
		if strings.HasSuffix(x.name, "internal/conn/probe.go") {
			rights = string(x.body)
		}
	}
	require.Greater(t, len(calls), 15, "the scripts are not found")
	for command, file := range calls {
		require.Contains(t, probe, "'"+command+"'", "%s runs it, and the probe does not ask for it", file)
		right := "+" + strings.ToLower(strings.ReplaceAll(command, "', '", "|"))
		require.Regexp(t, regexp.QuoteMeta(right)+`[ "]`, rights, "%s runs it, and the ACL line does not have it", file)
	}
}

// ofKinds are the words of a tuple that mean something else in each kind of reply. The kinds are made in package lua, and
// the models of the scripts write tuples; everything else reads a reply as what it is.
var ofKinds = map[string]bool{"Token": true, "Until": true, "Place": true, "Waiting": true, "Arrival": true}

// rawReads returns where a package reads such a word of a tuple of the package with that path.
func rawReads(p shape.Package, path string) (found []string) {
	words := map[types.Object]bool{}
	for _, from := range append(p.Types.Imports(), p.Types) {
		tuple := from.Scope().Lookup("Tuple")
		if from.Path() != path || tuple == nil {
			continue
		}
		fields := tuple.Type().Underlying().(*types.Struct)
		for i := range fields.NumFields() {
			words[fields.Field(i)] = ofKinds[fields.Field(i).Name()]
		}
	}
	for id, of := range p.Info.Uses {
		if words[of] {
			found = append(found, p.Files.Position(id.Pos()).String()+" reads "+id.Name)
		}
	}
	return found
}

func TestAReplyIsReadAsOneOfItsKind(t *testing.T) {
	t.Parallel()
	seen := false
	for _, p := range checked(t) {
		raw := rawReads(p, module+"/internal/wire")
		if p.Folder == "lua" {
			seen = raw != nil
		}
		if p.Folder != "lua" && p.Folder != "internal/wire" && !strings.HasPrefix(p.Folder, "internal/verify/model") {
			require.Empty(t, raw, "Decode it as a reply of its kind: see lua/replies.go.")
		}
	}
	require.True(t, seen, "no kind is made of tuples")
}

func TestARawReadIsFound(t *testing.T) {
	t.Parallel()
	found := rawReads(checkedSource(t, `package x
type Tuple struct{ Now, Place int }
func f(t Tuple) int { return t.Now + t.Place }`), "x")
	require.Equal(t, []string{"x.go:3:40 reads Place"}, found)
}

// senders are the functions of package waitqueue that may send the scripts which ask for tickets, and those that end them:
// what is sent alone, what is sent with others (a release as a job), what waits for an event, and what one script does for several names.
// Those that are called replied read the replies.
var senders = map[string][]string{
	"proto.Ask":    {"*wait.askFor", "asking.job", "*wait.replied", "*attendance.ask", "*attendance.replied"},
	"proto.End":    {"*sender.script"},
	"lua.Move":     {"*wait.askFor", "*sender.script"}, // Of a hold that is adopted, or handed over.
	"lua.MultiAsk": {"askOnce"},
	"lua.MultiEnd": {"endInSlot"},
}

// uttered returns the functions that name a script, other than to see whether there is one.
func uttered(files []*ast.File, script string) (found []string) {
	for _, f := range files {
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			named := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if b, ok := n.(*ast.BinaryExpr); ok && types.ExprString(b.Y) == "nil" {
					return false
				}
				if s, ok := n.(*ast.SelectorExpr); ok {
					from := types.ExprString(s.X)
					if inner, ok := s.X.(*ast.SelectorExpr); ok {
						from = inner.Sel.Name
					}
					named = named || from+"."+s.Sel.Name == script
				}
				return true
			})
			if named {
				name := fn.Name.Name
				if fn.Recv != nil {
					name = types.ExprString(fn.Recv.List[0].Type) + "." + name
				}
				found = append(found, name)
			}
		}
	}
	return found
}

func TestAsksAndEndsHaveOneSender(t *testing.T) {
	var files []*ast.File
	for _, s := range sources(t) {
		if s.folder == "waitqueue" {
			files = append(files, s.syntax)
		}
	}
	for script, by := range senders {
		require.ElementsMatch(t, by, uttered(files, script), script)
	}
}

func TestAnotherSenderIsFound(t *testing.T) {
	const source = `package x
func (c *client) again(s *entry) { run(s.proto.Ask) }
func (s *entry) none() bool { return s.proto.Ask == nil }`
	file := kit.Got(parser.ParseFile(token.NewFileSet(), "x.go", source, 0))(t)
	require.Equal(t, []string{"*client.again"}, uttered([]*ast.File{file}, "proto.Ask"))
}

// Of the protocol a user knows what waits and what is held. Package lua is for the engine, and for primitives.
var ofTheProtocol = regexp.MustCompile(`\b(lua|wire)\.[A-Z]\w*`)

// mentioned returns what of package lua the documentation of a file has: its exported declarations and their comments.
func mentioned(t *testing.T, name string, files *token.FileSet, file *ast.File) (found []string) {
	t.Helper()
	ast.FileExports(file)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
		var text bytes.Buffer
		require.NoError(t, format.Node(&text, files, decl))
		for _, word := range ofTheProtocol.FindAllString(text.String(), -1) {
			found = append(found, fmt.Sprintf("%s: %s is in the documentation", name, word))
		}
	}
	return found
}

func TestNothingOfTheProtocolIsInPublicDocs(t *testing.T) {
	var found []string
	for _, s := range sources(t) {
		inside := strings.HasPrefix(s.folder, "internal/") || s.syntax.Name.Name == "main"
		if !inside && !slices.Contains([]string{"lua", "waitqueue"}, s.folder) {
			found = append(found, mentioned(t, s.name, s.files, s.syntax)...)
		}
	}
	none(t, found)

	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "x.go", `package x

// F returns a [wire.Status], and nothing else.
func F() { lua.Run() }

func G(wire.Reply) {}

func g(wire.Reply) {}

// T is a type.
type T struct {
	A lua.Script
	b lua.Script
}
`, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{
		"x.go: wire.Status is in the documentation", "x.go: wire.Reply is in the documentation", "x.go: lua.Script is in the documentation",
	}, mentioned(t, "x.go", files, file))
}
