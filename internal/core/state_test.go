package core

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

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

var stateNames = [ended + 1]string{"idling", "asking", "subscribing", "waiting", "confirming", "held", "ending", "ended"}

func (st state) String() string { return stateNames[st] }

func (set states) String() string {
	if set == living {
		return "any before ending"
	}
	var names []string
	for st, name := range stateNames {
		if set.has(state(st)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// table prints the steps as the documentation of package waitqueue has them.
func table() string {
	text := new(strings.Builder)
	fmt.Fprintf(text, "//\t%-13s%-68s%s\n", "to", "when", "from")
	for _, s := range steps {
		fmt.Fprintf(text, "//\t%-13s%-68s%s\n", s.to, s.when, s.from)
	}
	return text.String()
}

// drawn returns the steps of the picture: each arrow, with the words on both sides of it.
func drawn(t *testing.T, page string) (from, to []state) {
	of := make(map[string]state)
	for st, name := range stateNames {
		of[name] = state(st)
	}
	for line := range strings.Lines(page) {
		chain := strings.Split(line, "─►")
		for i := range len(chain) - 1 {
			left, right := strings.Fields(chain[i]), strings.Fields(chain[i+1])
			require.Contains(t, of, left[len(left)-1])
			require.Contains(t, of, right[0])
			from, to = append(from, of[left[len(left)-1]]), append(to, of[right[0]])
		}
	}
	return from, to
}

func TestTheDocumentationHasTheStepsOfATicket(t *testing.T) {
	page := string(must.Got(os.ReadFile("../../waitqueue/doc.go"))(t))
	require.True(t, strings.Contains(page, "//\n"+table()+"//\n"), "the steps are now:\n%s", table())
	from, to := drawn(t, page)
	seen := in(from...) | in(to...)
	for i, st := range from {
		require.True(t, leads[st].has(to[i]), "the picture has %s ─► %s, and the table does not", st, to[i])
	}
	require.Equal(t, states(1<<(ended+1)-1), seen, "every state is in the picture")
}

func TestAStepThatIsNotInTheTableIsNotTaken(t *testing.T) {
	for from := range leads {
		for to := range leads {
			x, ticket := &Input{}, &Ticket{state: state(from)}
			ticket.to(x, state(to))
			if from == to || leads[from].has(state(to)) {
				require.Equal(t, state(to), ticket.state)
				require.Empty(t, x.Effects)
			} else {
				require.Equal(t, state(from), ticket.state)
				require.Equal(t, []Effect{{Do: Impossible, Call: &ticket.Call}}, x.Effects)
			}
		}
	}
	require.Zero(t, leads[ended], "an ended ticket stays ended")
}

func TestAPlaceEndsTheLimit(t *testing.T) {
	for from := range leads {
		for to := range leads {
			ticket := &Ticket{state: state(from), Limit: 3}
			ticket.to(&Input{}, state(to))
			placed := from != to && leads[from].has(state(to)) && in(waiting, confirming, held).has(state(to))
			require.Equal(t, placed, ticket.Limit == 0, "%s to %s (I11)", state(from), state(to))
		}
	}
}

// writes finds assignments to a field state, and addresses taken of it, outside the function to.
func writes(t *testing.T, name string, body any) (found []string) {
	files := token.NewFileSet()
	file := must.Got(parser.ParseFile(files, name, body, parser.SkipObjectResolution))(t)
	field := func(x ast.Expr) {
		if s, ok := ast.Unparen(x).(*ast.SelectorExpr); ok && s.Sel.Name == "state" {
			found = append(found, files.Position(x.Pos()).String())
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "to" {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					field(x)
				}
			case *ast.IncDecStmt:
				field(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					field(n.X)
				}
			case *ast.RangeStmt:
				field(n.Key)
				field(n.Value)
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "state" {
					found = append(found, files.Position(n.Pos()).String())
				}
			}
			return true
		})
	}
	return found
}

// sources are the files of a package without its tests.
func sources(t *testing.T, folder string) (names []string) {
	for _, name := range must.Got(filepath.Glob(filepath.Join(folder, "*.go")))(t) {
		if !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return names
}

func TestOnlyToWritesAState(t *testing.T) {
	names := append(sources(t, "."), sources(t, "../event")...)
	require.Contains(t, names, "ticket.go")
	require.Contains(t, names, "../event/event.go")
	for _, name := range names {
		require.Empty(t, writes(t, name, nil))
	}
}

func TestAWriteOfAStateIsFound(t *testing.T) {
	require.Len(t, writes(t, "bad.go", `package bad
		func (t *Ticket) pass() { t.state = held }
		func (p *part) yield() { p.wait.ticket.state, p.at = idling, 0 }
		func (t *Ticket) on() { t.state++; later(&t.state); for _, t.state = range all() {} }
		func next() *Ticket { return &Ticket{state: waiting} }
		func (t *Ticket) other() { t.State = ""; t.place = 0; _ = t.state == held; t.to(x, held) }
		func (t *Ticket) to(x *Input, next state) { t.state = next }
	`), 6)
}
