package tidy

import (
	"go/ast"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

// What uses each other in a circle can only be read together. maxCircle is how many lines that may be; a type counts with
// its methods, so that nothing is hidden by moving a function from one file to the next.
const maxCircle = 1500

// larger are the circles that are larger than they should be. They may shrink.
var larger = map[string]int{
	"waitqueue": 2331, // Sites, tickets, holds and their ends; calls, and what users call, are outside of it.
}

// A graph has the declarations of a package, and who uses whom.
type graph struct {
	lines []int
	uses  [][]int
}

// graphOf reads the declarations of a package.
func graphOf(files *token.FileSet, syntax []*ast.File, info *types.Info) graph {
	var g graph
	var nodes []ast.Node
	number := map[types.Object]int{}
	add := func(id *ast.Ident, node ast.Node) {
		number[info.Defs[id]] = len(nodes)
		nodes = append(nodes, node)
		g.lines = append(g.lines, files.Position(node.End()).Line-files.Position(node.Pos()).Line+1)
	}
	for _, f := range syntax {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				add(d.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name, s)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id, s)
						}
					}
				}
			}
		}
	}
	g.uses = make([][]int, len(nodes))
	for from, node := range nodes {
		ast.Inspect(node, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			of := info.Uses[id]
			if f, ok := of.(*types.Func); ok {
				of = f.Origin()
			}
			if to, ok := number[of]; ok {
				g.uses[from] = append(g.uses[from], to)
			}
			return true
		})
	}
	for of, method := range number {
		f, ok := of.(*types.Func)
		if !ok || f.Signature().Recv() == nil {
			continue
		}
		recv := f.Signature().Recv().Type()
		if p, ok := recv.(*types.Pointer); ok {
			recv = p.Elem()
		}
		if named, ok := recv.(*types.Named); ok {
			owner := number[named.Origin().Obj()]
			g.uses[owner] = append(g.uses[owner], method)
		}
	}
	return g
}

// circle is how many lines the largest circle has, by Tarjan's algorithm for strongly connected components (SIAM Journal on
// Computing 1(2), 1972).
func (g graph) circle() (largest int) {
	index, low, open := make([]int, len(g.lines)), make([]int, len(g.lines)), make([]bool, len(g.lines))
	var stack []int
	seen := 0
	var visit func(v int)
	visit = func(v int) {
		seen++
		index[v], low[v], open[v] = seen, seen, true
		stack = append(stack, v)
		for _, to := range g.uses[v] {
			switch {
			case index[to] == 0:
				visit(to)
				low[v] = min(low[v], low[to])
			case open[to]:
				low[v] = min(low[v], index[to])
			}
		}
		if low[v] != index[v] {
			return
		}
		size := 0
		for last := -1; last != v; {
			last = stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			open[last] = false
			size += g.lines[last]
		}
		largest = max(largest, size)
	}
	for v := range g.lines {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}

func TestNoCircleIsTooLargeToBeRead(t *testing.T) {
	t.Parallel()
	for _, p := range checked(t) {
		size, limit := graphOf(p.files, p.syntax, p.info).circle(), max(maxCircle, larger[p.folder])
		require.LessOrEqual(t, size, limit, p.folder)
		if larger[p.folder] > 0 {
			require.Greater(t, size, larger[p.folder]-100, "%s has become smaller: say so here", p.folder)
		}
	}
}

func TestACircleIsFoundThroughAMethod(t *testing.T) {
	const source = `package x
type a struct{}
func (a) m() {
	f()
}
func f() {
	var x a
	_ = x
}
func alone() { f() }`
	p := checkedSource(t, source)
	require.Equal(t, 1+3+4, graphOf(p.files, p.syntax, p.info).circle())
}
