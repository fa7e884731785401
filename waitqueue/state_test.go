package waitqueue

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package documentation has the table of steps.
func TestTheStepsOfATicketAreThoseThatAreTold(t *testing.T) {
	page, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var want strings.Builder
	for from, all := range steps {
		names := []string{}
		for _, to := range all {
			names = append(names, to.String())
		}
		if len(names) == 0 {
			names = []string{"nothing"}
		}
		fmt.Fprintf(&want, "//\t%-12s %s\n", state(from), strings.Join(names, ", "))
	}
	require.Contains(t, string(page), want.String())
}

// A step that is none leaves the ticket where it is, and is counted.
func TestAStepThatCannotBeIsRefused(t *testing.T) {
	c := &client{}
	for from := range steps {
		for to := range steps {
			before := c.stats.strayed.Load()
			x := &ticket{site: &site{client: c}, state: state(from)}
			x.to(state(to))
			may := from == to
			for _, s := range steps[from] {
				may = may || s == state(to)
			}
			if may {
				require.Equal(t, state(to), x.state)
				require.Equal(t, before, c.stats.strayed.Load())
				continue
			}
			require.Equal(t, state(from), x.state)
			require.Equal(t, before+1, c.stats.strayed.Load())
		}
	}
}

// written returns the functions that write the state of a ticket.
func written(file *ast.File) (by []string) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, x := range a.Lhs {
				if s, ok := x.(*ast.SelectorExpr); ok && s.Sel.Name == "state" {
					by = append(by, f.Name.Name)
				}
			}
			return true
		})
	}
	return by
}

func TestOneFunctionWritesTheStateOfATicket(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var by []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		by = append(by, written(file)...)
	}
	require.Equal(t, []string{"to"}, by)
	other, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { t.ticket.state, n = held, 1 }", 0)
	require.NoError(t, err)
	require.Equal(t, []string{"f"}, written(other))
}
