package shape

import (
	"go/ast"
	"go/types"
)

// A graph has the declarations of a package, and who uses whom.
type graph struct {
	lines []int
	uses  [][]int
}

// graphOf reads the declarations of a package.
func graphOf(p Package) graph {
	var g graph
	var nodes []ast.Node
	number := map[types.Object]int{}
	add := func(id *ast.Ident, node ast.Node) {
		number[p.Info.Defs[id]] = len(nodes)
		nodes = append(nodes, node)
		g.lines = append(g.lines, p.Files.Position(node.End()).Line-p.Files.Position(node.Pos()).Line+1)
	}
	for _, f := range p.Syntax {
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
			of := p.Info.Uses[id]
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

// Circle is how many lines the largest circle of a package has: declarations that use each other can only be read together.
// A type counts with its methods, so that nothing is hidden by moving a function from one file to the next. The circles are
// found by Tarjan's algorithm for strongly connected components (SIAM Journal on Computing 1(2), 1972).
func (p Package) Circle() (largest int) {
	g := graphOf(p)
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
