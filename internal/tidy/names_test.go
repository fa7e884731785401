package tidy

import (
	"go/ast"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program imports the root package first, so all of it fits on a screen.
const maxRootNames = 40

// topLevel returns what files export: names, and methods as T.M. aliases are the types that they take from elsewhere, by
// the name they have there.
func topLevel(files []*ast.File) (names []string, aliases map[string]string) {
	aliases = map[string]string{}
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
						if from, ok := s.Type.(*ast.SelectorExpr); ok && s.Assign.IsValid() {
							aliases[from.Sel.Name] = s.Name.Name
						}
					}
				}
			}
		}
	}
	return names, aliases
}

func TestTheRootFitsOnAScreen(t *testing.T) {
	var own, below []*ast.File
	for _, s := range sources(t) {
		switch s.folder {
		case ".":
			own = append(own, s.syntax)
		case "waitqueue":
			below = append(below, s.syntax)
		}
	}
	names, aliases := topLevel(own)
	require.Contains(t, names, "Dial")
	require.Contains(t, slices.Collect(maps.Keys(aliases)), "Client")
	var methods []*ast.File
	for _, f := range below {
		only := *f
		only.Decls = slices.DeleteFunc(slices.Clone(f.Decls), func(d ast.Decl) bool {
			m, ok := d.(*ast.FuncDecl)
			return !ok || m.Recv == nil || aliases[receiver(m.Recv.List[0].Type)] == ""
		})
		methods = append(methods, &only)
	}
	reachable, _ := topLevel(methods)
	require.Contains(t, reachable, "Client.Close")
	names = append(names, reachable...)
	slices.Sort(names)
	require.LessOrEqual(t, len(names), maxRootNames, "%q", names)
}
