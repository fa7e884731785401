package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

// senders are the functions of package waitqueue that may send the scripts which ask for tickets, and those that end them:
// what is sent alone, what is sent with others (an end as a job), and what one script does for several names. The last of the first two
// reads the replies.
var senders = map[string][]string{
	"proto.Ask":    {"*site.askFor", "*client.send", "*site.replied"},
	"proto.End":    {"*end.script"},
	"lua.Move":     {"*site.askFor", "*end.script"}, // Of a hold that is adopted, or handed over.
	"lua.MultiAsk": {"askAll"},
	"lua.MultiEnd": {"ReleaseAll"},
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
func (c *client) again(s *site) { run(s.proto.Ask) }
func (s *site) none() bool { return s.proto.Ask == nil }`
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"*client.again"}, uttered([]*ast.File{file}, "proto.Ask"))
}
