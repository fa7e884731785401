package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// environment is the variable that names the mutant that a program is to run with. Processes that a test
// starts inherit it.
const environment = "HEADWAITER_MUTANT"

// plant returns the text of a Go file with all of its mutants in it. Each function that a mutant changes
// begins with a branch that has the changed body, and that runs where the environment names the mutant. So one
// build serves all mutants. A mutant that changes anything else, such as a constant, is left out and returned:
// it needs a build of its own.
//
// Errors of the compiler in a changed body name the mutant's file as their place.
func plant(root, file, sound string, all []Mutant) (text string, alone []Mutant, err error) {
	was, err := bodiesOf(file, sound)
	if err != nil {
		return "", nil, err
	}
	// The name of the variable differs from file to file of one package.
	variable := fmt.Sprintf("planted%x", file)
	branches := make([]strings.Builder, len(was.bodies))
	for _, m := range all {
		sick, err := m.Apply(sound)
		if err != nil {
			return "", nil, err
		}
		is, err := bodiesOf(file, sick)
		if err != nil {
			return "", nil, fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if is.rest != was.rest {
			alone = append(alone, m)
			continue
		}
		for i, b := range is.bodies {
			if b.text != was.bodies[i].text {
				fmt.Fprintf(&branches[i], "if %s == %q {\n//line %s:1\n%s\n%s\n}\n",
					variable, m.Name, filepath.Join(root, here, "list", m.Name+".txt"), b.text, b.end())
			}
		}
	}
	if len(alone) == len(all) {
		return "", alone, nil
	}
	var b strings.Builder
	b.WriteString(sound[:was.imports] + "; import plantedOS \"os\"")
	from := was.imports
	for i, body := range was.bodies {
		b.WriteString(sound[from:body.start])
		from = body.start
		if branches[i].Len() > 0 {
			b.WriteString(branches[i].String())
			fmt.Fprintf(&b, "//line %s:%d\n", filepath.Join(root, filepath.FromSlash(file)), body.line)
		}
	}
	fmt.Fprintf(&b, "%s\nvar %s = plantedOS.Getenv(%q)\n", sound[from:], variable, environment)
	return b.String(), alone, nil
}

// bodies are the bodies of the functions of a file, and the rest of its text.
type bodies struct {
	bodies  []body
	rest    string
	imports int // where an import may be put: right after the clause of the package
}

type body struct {
	text    string // between the braces
	start   int    // after the opening brace
	line    int
	returns bool // a value
}

// end is what a changed body ends with, so that it never goes on with the sound one.
func (b body) end() string {
	if b.returns {
		return `panic("not reached: the body ends with a return")`
	}
	return "return"
}

func bodiesOf(file, text string) (bodies, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return bodies{}, err
	}
	found := bodies{imports: set.Position(tree.Name.End()).Offset}
	from := 0
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		open, end := set.Position(f.Body.Lbrace), set.Position(f.Body.Rbrace).Offset
		start := open.Offset + 1
		found.rest += text[from:start] + "\n"
		found.bodies = append(found.bodies, body{text[start:end], start, open.Line, f.Type.Results.NumFields() > 0})
		from = end
	}
	found.rest += text[from:]
	return found, nil
}
