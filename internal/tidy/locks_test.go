package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// locked is which mutexes a function has certainly taken, by their text, when it comes to a place; nil where it never
// comes to.
type locked map[string]bool

// and is what is locked after either of two ways.
func (l locked) and(other locked) locked {
	switch {
	case l == nil:
		return other
	case other == nil:
		return l
	}
	both := maps.Clone(l)
	maps.DeleteFunc(both, func(mu string, _ bool) bool { return !other[mu] })
	return both
}

// A scope is a statement that break or continue leads out of.
type scope struct {
	label        string
	loop         bool
	after, again locked
}

// A walk goes along the ways through one function.
type walk struct {
	files  *token.FileSet
	scopes []*scope
	defers locked // what is given back when it returns
	turns  bool   // it is of package waitqueue, which has inputs
	given  bool   // its caller has taken a lock: its name says so
	found  *[]string
}

// wantsLock reports whether a function that is called so needs a lock that is taken.
func wantsLock(name string) bool { return strings.HasSuffix(name, "Locked") && name != "Locked" }

// wants sees that a function that needs a lock is called with one.
func (w *walk) wants(f *ast.SelectorExpr, l locked) {
	if wantsLock(f.Sel.Name) && len(l) == 0 && !w.given {
		w.report(f.Pos(), f.Sel.Name, "is called where no lock is taken")
	}
}

// function goes through a body.
func (w walk) function(body *ast.BlockStmt) {
	w.scopes, w.defers = nil, make(locked)
	w.returns(body.Rbrace, w.block(body.List, make(locked)))
}

// returns looks at what is locked where the function returns.
func (w *walk) returns(at token.Pos, l locked) {
	for mu := range l {
		if !w.defers[mu] {
			w.report(at, mu, "is still locked on return")
		}
	}
}

func (w *walk) report(at token.Pos, mu, what string) {
	*w.found = append(*w.found, fmt.Sprintf("%s: %s %s", w.files.Position(at), strings.TrimSuffix(mu, " for reading"), what))
}

// holds are what variables are called that have the lease on a hold, whose Unlock gives that back.
var holds = []string{"l", "held", "inner", "outer", "terms", "parts[i]", "nobody"}

// mutex returns what a call locks or unlocks. Locks with an argument or a result are other things.
func mutex(x ast.Expr) (mu string, locks, unlocks bool) {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", false, false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false, false
	}
	mu = types.ExprString(f.X)
	if slices.Contains(holds, mu[strings.LastIndexByte(mu, '.')+1:]) {
		return "", false, false
	}
	switch f.Sel.Name {
	case "Lock":
		return mu, true, false
	case "Unlock":
		return mu, false, true
	case "RLock":
		return mu + " for reading", true, false
	case "RUnlock":
		return mu + " for reading", false, true
	}
	return "", false, false
}

// turns are the methods that begin and end an input of a name (waitqueue/entry.go): begin takes its lock, end gives it back, and
// endActing gives back act too.
var turns = map[string][]string{"end": {".mu"}, "endActing": {".mu", ".act"}}

// begins returns what the beginning of an input locks; "" where a statement is none.
func begins(s *ast.AssignStmt) (mu string) {
	if call, ok := s.Rhs[0].(*ast.CallExpr); ok && len(s.Rhs) == 1 && len(call.Args) == 0 {
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "begin" {
			return types.ExprString(f.X) + ".mu"
		}
	}
	return ""
}

// ends returns what the end of an input gives back; nil where a call is none.
func ends(x ast.Expr) (mus []string) {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	for _, mu := range turns[f.Sel.Name] {
		mus = append(mus, types.ExprString(f.X)+mu)
	}
	return mus
}

// isTurn reports whether a function is one of those.
func isTurn(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return false
	}
	of := types.ExprString(f.Recv.List[0].Type)
	return of == "*entry" && (f.Name.Name == "begin" || turns[f.Name.Name] != nil)
}

// call is a statement that is a call alone, as all locking is.
func (w *walk) call(x ast.Expr, l locked) locked {
	switch mu, locks, unlocks := mutex(x); {
	case locks:
		l = maps.Clone(l)
		l[mu] = true
		return l
	case unlocks:
		w.unlock(x.Pos(), mu, l)
		l = maps.Clone(l)
		delete(l, mu)
		return l
	}
	w.look(x, l)
	if mus := ends(x); mus != nil && w.turns {
		l = maps.Clone(l)
		for _, mu := range mus {
			w.unlock(x.Pos(), mu, l)
			delete(l, mu)
		}
		return l
	}
	if call, ok := x.(*ast.CallExpr); ok && types.ExprString(call.Fun) == "panic" {
		return nil
	}
	return l
}

func (w *walk) unlock(at token.Pos, mu string, l locked) {
	if !l[mu] {
		w.report(at, mu, "is unlocked where this function has not locked it")
	}
}

// look goes through the functions in an expression or statement, each by itself, and sees that what needs a lock is
// called with one.
func (w *walk) look(n ast.Node, l locked) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			inner := *w
			inner.given = w.given || len(l) > 0 // It may be called at once.
			inner.function(n.Body)
			return false
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if ok && later[f.Sel.Name] {
				w.after(n, l)
				return false
			}
			if ok && ast.IsExported(f.Sel.Name) {
				w.wants(f, l)
			}
		case *ast.SelectorExpr:
			if !ast.IsExported(n.Sel.Name) { // What is exported may be a field, or an error.
				w.wants(n, l)
			}
		}
		return true
	})
}

// later are the functions that call one of their arguments when they have returned.
var later = map[string]bool{"Spawn": true, "Go": true, "AfterFunc": true}

// after goes through a call that runs some of its arguments when the caller has gone on: functions that are given to it, and not called here.
func (w *walk) after(call *ast.CallExpr, l locked) {
	inner := *w
	inner.given = false
	for _, arg := range append(call.Args, call.Fun) {
		if _, now := arg.(*ast.CallExpr); now {
			w.look(arg, l)
		} else {
			inner.look(arg, nil)
		}
	}
}

func (w *walk) block(list []ast.Stmt, l locked) locked {
	for _, s := range list {
		if l != nil {
			l = w.statement(s, l, "")
		}
	}
	return l
}

// statement returns what is locked after a statement; nil if nothing comes after it.
func (w *walk) statement(s ast.Stmt, l locked, label string) locked {
	switch s := s.(type) {
	case nil:
		return l
	case *ast.BlockStmt:
		return w.block(s.List, l)
	case *ast.LabeledStmt:
		return w.statement(s.Stmt, l, s.Label.Name)
	case *ast.ReturnStmt:
		w.look(s, l)
		w.returns(s.Pos(), l)
		return nil
	case *ast.BranchStmt:
		return w.branch(s, l)
	case *ast.DeferStmt:
		mu, _, unlocks := mutex(s.Call)
		if unlocks {
			w.unlock(s.Pos(), mu, l)
			w.defers[mu] = true
		}
		for _, mu := range ends(s.Call) {
			if !w.turns {
				break
			}
			w.unlock(s.Pos(), mu, l)
			w.defers[mu] = true
		}
		w.look(s, l)
		return l
	case *ast.AssignStmt:
		w.look(s, l)
		if mu := begins(s); mu != "" && w.turns {
			l = maps.Clone(l)
			l[mu] = true
		}
		return l
	case *ast.GoStmt:
		w.after(s.Call, l)
		return l
	case *ast.ExprStmt:
		return w.call(s.X, l)
	case *ast.IfStmt:
		l = w.statement(s.Init, l, "")
		w.look(s.Cond, l)
		return w.block(s.Body.List, l).and(w.statement(s.Else, l, ""))
	case *ast.ForStmt:
		l = w.statement(s.Init, l, "")
		return w.loop(s.Cond, s.Body, s.Post, l, label, s.Cond != nil)
	case *ast.RangeStmt:
		return w.loop(s.X, s.Body, nil, l, label, true)
	case *ast.SwitchStmt:
		return w.cases(s.Tag, s.Body, w.statement(s.Init, l, ""), label)
	case *ast.TypeSwitchStmt:
		return w.cases(nil, s.Body, w.statement(s.Init, l, ""), label)
	case *ast.SelectStmt:
		return w.cases(nil, s.Body, l, label)
	}
	w.look(s, l)
	return l
}

func (w *walk) branch(s *ast.BranchStmt, l locked) locked {
	for i := len(w.scopes) - 1; i >= 0; i-- {
		at := w.scopes[i]
		if s.Label != nil && s.Label.Name != at.label || s.Tok == token.CONTINUE && !at.loop {
			continue
		}
		switch s.Tok {
		case token.BREAK:
			at.after = at.after.and(l)
		case token.CONTINUE:
			at.again = at.again.and(l)
		case token.FALLTHROUGH:
			return l
		}
		break
	}
	return nil
}

func (w *walk) loop(head ast.Expr, body *ast.BlockStmt, post ast.Stmt, l locked, label string, ends bool) locked {
	at := &scope{label: label, loop: true}
	w.scopes = append(w.scopes, at)
	defer func() { w.scopes = w.scopes[:len(w.scopes)-1] }()
	if head != nil {
		w.look(head, l)
	}
	at.again = at.again.and(w.block(body.List, l))
	if post != nil && at.again != nil {
		at.again = w.statement(post, at.again, "")
	}
	for mu := range l {
		if at.again != nil && !at.again[mu] {
			w.report(body.Rbrace, mu, "is not locked any more when this loop comes again")
		}
	}
	if ends {
		at.after = at.after.and(l)
	}
	return at.after
}

func (w *walk) cases(tag ast.Expr, body *ast.BlockStmt, l locked, label string) locked {
	at := &scope{label: label}
	w.scopes = append(w.scopes, at)
	defer func() { w.scopes = w.scopes[:len(w.scopes)-1] }()
	if tag != nil {
		w.look(tag, l)
	}
	whole := false
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.CaseClause:
			whole = whole || s.List == nil
			at.after = at.after.and(w.block(s.Body, l))
		case *ast.CommClause:
			whole = true // One of them comes.
			at.after = at.after.and(w.block(s.Body, w.statement(s.Comm, l, "")))
		}
	}
	if !whole {
		at.after = at.after.and(l)
	}
	return at.after
}

// strays returns where the functions of a file give back a lock that they have not taken, or keep one.
func strays(t *testing.T, name string, body any) (found []string) {
	files := token.NewFileSet()
	file := kit.Got(parser.ParseFile(files, name, body, parser.SkipObjectResolution))(t)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil && !isTurn(f) {
			walk{files: files, turns: strings.HasPrefix(name, "waitqueue/") || !strings.Contains(name, "/"), given: wantsLock(f.Name.Name), found: &found}.function(f.Body)
		}
	}
	return found
}

func TestWhoeverTakesALockGivesItBack(t *testing.T) {
	for _, x := range texts(t, "*.go") {
		if !strings.HasSuffix(x.name, "_test.go") {
			none(t, strays(t, x.name, x.body))
		}
	}
}

func TestALockOfAnotherFunctionIsFound(t *testing.T) {
	bad := []string{
		"s.mu.Unlock()", "defer s.mu.Unlock()", "s.mu.RLock(); s.mu.Unlock()", "s.mu.Lock(); t.mu.Unlock(); s.mu.Unlock()",
		"s.mu.Lock()", "s.mu.Lock(); if a { return }; s.mu.Unlock()", "s.mu.Lock(); if a { s.mu.Unlock() }; s.mu.Unlock()",
		"s.mu.Lock(); defer func() { s.mu.Unlock() }()", "go func() { s.mu.Unlock() }()",
		"for { s.mu.Lock(); if a { break }; s.mu.Unlock(); }; s.mu.Unlock(); s.mu.Unlock()",
		"s.mu.Lock(); for a { s.mu.Unlock() }; s.mu.Unlock()",
		"s.mu.Lock(); switch { case a: s.mu.Unlock(); case b: s.mu.Unlock() }; s.mu.Unlock()",
		"s.mu.Lock(); select { case <-a: s.mu.Unlock(); case <-b: }; s.mu.Unlock()",
		"s.endLocked()", "s.mu.Lock(); s.mu.Unlock(); s.endLocked()", "s.mu.Lock(); go func() { s.endLocked() }(); s.mu.Unlock()",
		"s.mu.Lock(); c.Spawn(func() { s.endLocked() }); s.mu.Unlock()", "s.mu.Lock(); c.Spawn(s.endLocked); s.mu.Unlock()",
		"return s.endLocked()", "s.EndLocked()",
		"x := e.begin()", "e.end(x)", "x := e.begin(); f.end(x)", "x := e.begin(); if a { return }; e.end(x)", "x := e.begin(); e.endActing(x)",
		"x := e.begin(); e.act.Lock(); e.end(x)",
		"for range s.allLocked {}", "if a { s.mu.Lock(); s.mu.Unlock() } else if s.endLocked() {}",
	}
	good := []string{
		"s.mu.Lock(); s.mu.Unlock()", "s.mu.Lock(); defer s.mu.Unlock(); return", "m.Unlock(ctx)", "return m.Unlock()",
		"s.mu.Lock(); if a { s.mu.Unlock(); return }; s.mu.Unlock(); f()", "s.mu.Lock(); if a { panic(b) }; s.mu.Unlock()",
		"for { s.mu.Lock(); if a { break }; s.mu.Unlock(); }; s.mu.Unlock()",
		"out: for { s.mu.Lock(); switch { case a: break out; case b: s.mu.Unlock(); continue }; s.mu.Unlock() }; s.mu.Unlock()",
		"s.mu.Lock(); for range a { s.mu.Unlock(); f(); s.mu.Lock() }; s.mu.Unlock()",
		"s.mu.RLock(); f(func() { t.mu.Lock(); t.mu.Unlock() }); s.mu.RUnlock()",
		"s.mu.Lock(); defer s.mu.Unlock(); s.endLocked()", "s.mu.Lock(); sort(a, func() { s.endLocked() }); s.mu.Unlock()",
		"s.mu.Lock(); for range s.allLocked {}; s.mu.Unlock()", "x.Locked(); _ = err.NotLocked",
		"s.Lock(); s.EndLocked(); s.Unlock()",
		"x := e.begin(); e.end(x)", "x := e.begin(); defer e.end(x); return", "x := e.begin(); e.act.Lock(); e.endActing(x)", "x = e.begin(); s.endLocked(); e.end(x)",
	}
	for _, body := range bad {
		require.NotEmpty(t, strays(t, "bad.go", "package bad; func f() { "+body+" }"), body)
	}
	for _, body := range good {
		require.Empty(t, strays(t, "good.go", "package good; func f() { "+body+" }"), body)
	}
	require.Empty(t, strays(t, "good.go", "package good; func (s *entry) forgetLocked() { s.endLocked() }"))
}

// What a comment says of a lock that its caller has taken, the name says too: then the calls are looked at. Only the
// one step of a ticket is named shorter.
func TestWhatNeedsALockSaysSoInItsName(t *testing.T) {
	held := regexp.MustCompile(`(?i)\b(lock|mu) (is|are) held\b`)
	for _, x := range texts(t, "*.go") {
		if strings.HasSuffix(x.name, "_test.go") {
			continue
		}
		file := kit.Got(parser.ParseFile(token.NewFileSet(), x.name, x.body, parser.SkipObjectResolution|parser.ParseComments))(t)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv != nil && held.MatchString(f.Doc.Text()) {
				name := types.ExprString(f.Recv.List[0].Type) + "." + f.Name.Name
				require.True(t, wantsLock(f.Name.Name) || name == "*ticket.to", "%s: %s: name it so that it ends in Locked", x.name, name)
			}
		}
	}
}
