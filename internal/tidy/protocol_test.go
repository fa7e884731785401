package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of the protocol a user knows what waits and what is held. Package lua is for the engine, and for primitives.
var ofTheProtocol = regexp.MustCompile(`\blua\.[A-Z]\w*`)

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

// F returns a [lua.Status], and nothing else.
func F() { lua.Run() }

func G(lua.Reply) {}

func g(lua.Reply) {}

// T is a type.
type T struct {
	A lua.Script
	b lua.Script
}
`, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{
		"x.go: lua.Status is in the documentation", "x.go: lua.Reply is in the documentation", "x.go: lua.Script is in the documentation",
	}, mentioned(t, "x.go", files, file))
}
