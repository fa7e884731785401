package waitqueue

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lua"
)

var stateNames = [ended + 1]string{
	"idling", "asking", "subscribing", "waiting", "confirming", "held", "acting", "passed", "ending", "ended",
}

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

// table draws the steps as the package documentation has it.
func table() string {
	text := new(strings.Builder)
	fmt.Fprintf(text, "//\t%-13s%-62s%s\n", "to", "when", "from")
	for _, s := range steps {
		fmt.Fprintf(text, "//\t%-13s%-62s%s\n", stateNames[s.to], s.when, s.from)
	}
	return text.String()
}

// drawn returns the steps of the picture: each arrow, with the words beside it.
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
	body, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	page := string(body)
	require.Contains(t, page, "//\n"+table()+"//\n", "the steps are now:\n%s", table())
	from, to := drawn(t, page)
	seen := in(from...) | in(to...)
	for i, st := range from {
		require.True(t, leads[st].has(to[i]), "the picture has %s ─► %s, and the table has not", stateNames[st], stateNames[to[i]])
	}
	require.Equal(t, ^states(0)>>(15-ended), seen, "every state is in the picture")
}

func TestAStepThatIsNotInTheTableIsRefused(t *testing.T) {
	c := &client{}
	for from := range leads {
		for to := range leads {
			ticket := &ticket{site: &site{client: c}, state: state(from)}
			before := c.stats.Refused.Load()
			ticket.to(state(to))
			if from == to || leads[from].has(state(to)) {
				require.Equal(t, state(to), ticket.state)
				require.Equal(t, before, c.stats.Refused.Load())
			} else {
				require.Equal(t, state(from), ticket.state)
				require.Equal(t, before+1, c.stats.Refused.Load())
			}
		}
	}
	require.Zero(t, leads[ended], "an end is the end")
}

// writes finds what changes a field state, or takes its address, outside the function to. That of a subscription is
// another field.
func writes(t *testing.T, name string, body any) (found []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, body, parser.SkipObjectResolution)
	require.NoError(t, err)
	field := func(x ast.Expr) {
		s, ok := ast.Unparen(x).(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "state" {
			return
		}
		if of, ok := s.X.(*ast.Ident); !ok || of.Name != "sub" {
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
			case *ast.CompositeLit:
				if typ, ok := n.Type.(*ast.Ident); !ok || typ.Name != "ticket" {
					return true
				}
				for _, x := range n.Elts {
					if kv, ok := x.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "state" {
						found = append(found, files.Position(kv.Pos()).String())
					}
				}
			}
			return true
		})
	}
	return found
}

func TestOnlyToWritesTheStateOfATicket(t *testing.T) {
	names, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	require.Contains(t, names, "ticket.go")
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			require.Empty(t, writes(t, name, nil))
		}
	}
}

func TestAWriteOfTheStateIsFound(t *testing.T) {
	require.Len(t, writes(t, "bad.go", `package bad
		func (t *ticket) pass() { t.state = passed }
		func (p *part) yield() { p.wait.ticket.state, p.at = idling, 0 }
		func (t *ticket) on() { t.state++; later(&t.state); for _, t.state = range all() {} }
		func next() *ticket { return &ticket{state: waiting} }
		func (t *ticket) other() { sub.state = subNone; t.place = 0; _ = t.state == held; t.to(held) }
		func (t *ticket) to(next state) { t.state = next }
	`), 6)
}

// Whoever may publish can forge a message. What waits for an event is granted nothing, and no event is told of a lock.
func TestAMessageOfAnotherKindOfPrimitiveIsLeftOut(t *testing.T) {
	const known, unknown = "me:1:b:1:1000:1000", "me:2:b:1:1000:1000"
	for proto, texts := range map[*lua.Protocol][]string{
		lua.Countdown:  {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000", "X " + known + " 0", "S " + known, "L " + known, "W 7"},
		lua.Leadership: {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000"},
		lua.Fairlock:   {"O 5", "B 5", "O 6"},
	} {
		for _, text := range texts {
			c := &client{id: "me"}
			s := &site{client: c, proto: proto, tickets: map[string]*ticket{}}
			x := &ticket{site: s, text: known, queue: &binding{}, arrival: 5, state: waiting}
			s.tickets[known] = x
			s.Message(text, time.Now())
			require.EqualValues(t, 1, c.stats.Forged.Load(), text)
			require.Equal(t, waiting, x.state, text)
			require.Zero(t, x.grant, text)
			require.Empty(t, s.leaving, text)
		}
	}
}
