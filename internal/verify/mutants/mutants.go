// Package mutants holds bugs that are put into the code on purpose, and runs for each the test that must find it. A
// suite that lets a known bug pass would let an unknown one pass too.
//
// A bug is a file of list/: what it does, which rule or invariant of package waitqueue it breaks, a piece of text of one
// source file, the text in its place, and the test that must fail. The test of this package sees that all of them still
// fit the source.
//
// One build has all bugs. Each function that a bug changes begins with a branch that runs the changed body where the
// environment names the bug, and scripts are read from a folder at run time. So a bug costs one run of its test, and
// no compilation. The source tree stays as it is: the go command reads the changed files in place of those of the tree
// (its flag -overlay), which a test that reads the source of the project cannot see. A bug in anything else than a function, such as a constant, has a build of its own.
package mutants

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed list/*.txt
var list embed.FS

// A Mutant is one seeded bug.
type Mutant struct {
	Name    string // of its file, without the ending
	Does    string // what the code does wrong
	Breaks  string // the rules and invariants of waitqueue/doc.go, or "" if it breaks none of these
	File    string // with slashes, from the root
	Package string // of the test, with slashes, from the root
	Test    string // that must fail: a top-level test, perhaps with a subtest after a slash
	Old     string // in File exactly once
	New     string
}

// All returns the mutants in the order of their names.
func All() ([]Mutant, error) {
	files, err := list.ReadDir("list")
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, f := range files {
		text, err := list.ReadFile(path.Join("list", f.Name()))
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(f.Name(), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

const (
	oldMark = "--- old\n"
	newMark = "--- new\n"
)

// parse reads a mutant: lines of "key: value", then the old text and the new one, each under its mark. The last
// line break of either is not part of it.
func parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	head, rest, ok := strings.Cut(text, oldMark)
	before, after, ok2 := strings.Cut(rest, newMark)
	if !ok || !ok2 {
		return m, fmt.Errorf("mutant %s: %q or %q is missing", name, oldMark, newMark)
	}
	m.Old, m.New = strings.TrimSuffix(before, "\n"), strings.TrimSuffix(after, "\n")
	fields := map[string]*string{
		"does": &m.Does, "breaks": &m.Breaks, "file": &m.File, "package": &m.Package, "test": &m.Test,
	}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		field := fields[key]
		if field == nil || *field != "" {
			return m, fmt.Errorf("mutant %s: line %q: unknown, or said twice", name, strings.TrimSpace(line))
		}
		*field = strings.TrimSpace(value)
	}
	if slices.Contains([]string{m.Does, m.File, m.Package, m.Test, m.Old}, "") || m.Old == m.New {
		return m, fmt.Errorf("mutant %s: does, file, package and test are needed, and a change", name)
	}
	return m, nil
}

// Apply returns the text of m's file with the bug in it. Where the old text is not there exactly once, the
// mutant is stale.
func (m Mutant) Apply(text string) (string, error) {
	if n := strings.Count(text, m.Old); n != 1 {
		return "", fmt.Errorf("mutant %s is stale: its old text is %d times in %s", m.Name, n, m.File)
	}
	return strings.Replace(text, m.Old, m.New, 1), nil
}

// pattern is what -run wants to run the test alone.
func (m Mutant) pattern() string {
	parts := strings.Split(m.Test, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}
