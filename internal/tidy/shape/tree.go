// Package shape counts what makes this repository easy or hard to read: the functions that ran, circles of declarations,
// lines and words. The tests of the house hold some of that to bounds; `make shape` prints it next to an older commit.
package shape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Module is the path of the core module, and of this repository.
const Module = "github.com/headwaiter/headwaiter"

// A Text is a file of a tree.
type Text struct {
	Name string // relative to the root, with slashes
	Body []byte
}

// Texts returns the files of a tree that match one of the patterns by their base name, without what .gitignore
// names and without binary ones.
func Texts(dir string, patterns ...string) (found []Text, err error) {
	tree := os.DirFS(dir)
	ignored, err := ignore(tree)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || ignored(name)):
			return fs.SkipDir
		case !entry.Type().IsRegular() || ignored(name) || !matches(patterns, path.Base(name)):
			return nil
		}
		body, err := fs.ReadFile(tree, name)
		if err == nil && !bytes.ContainsRune(body, 0) {
			found = append(found, Text{name, body})
		}
		return err
	})
	return found, err
}

// ignore reads .gitignore: patterns with a slash hold for paths from the root, others for names.
func ignore(tree fs.FS) (func(name string) bool, error) {
	body, err := fs.ReadFile(tree, ".gitignore")
	var paths, names []string
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSuffix(strings.TrimSpace(line), "/")
		switch {
		case line == "" || line[0] == '#':
		case strings.Contains(line, "/"):
			paths = append(paths, strings.TrimPrefix(line, "/"))
		default:
			names = append(names, line)
		}
	}
	return func(name string) bool { return matches(paths, name) || matches(names, path.Base(name)) }, err
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}

// Listed is what go list says about a package.
type Listed struct {
	ImportPath, Dir, Export, Name string
	GoFiles, XTestGoFiles         []string
}

// List runs go list -json in a folder.
func List(dir string, args ...string) (all []Listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,Name,GoFiles,XTestGoFiles"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w", args, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Listed
		switch err := d.Decode(&p); err {
		case nil:
			all = append(all, p)
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
	}
}

// A Package is a package as the type checker sees it, without its tests.
type Package struct {
	Folder string // from the root
	Files  *token.FileSet
	Syntax []*ast.File
	Types  *types.Package
	Info   *types.Info
}

// Packages returns those of the core module in a tree. The flags are for the build of what they import.
func Packages(dir string, flags ...string) (found []Package, err error) {
	all, err := List(dir, append(flags, "-export", "-deps", "./...")...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	for _, l := range all {
		if l.ImportPath != Module && !strings.HasPrefix(l.ImportPath, Module+"/") {
			continue
		}
		p := Package{Folder: strings.TrimPrefix(l.ImportPath, Module+"/"), Files: token.NewFileSet()}
		for _, name := range l.GoFiles {
			file, err := parser.ParseFile(p.Files, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.Syntax = append(p.Syntax, file)
		}
		open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
		if err := p.Check(l.ImportPath, importer.ForCompiler(p.Files, "gc", open)); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

// Check fills in Types and Info.
func (p *Package) Check(path string, from types.Importer) (err error) {
	p.Info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	p.Types, err = (&types.Config{Importer: from}).Check(path, p.Files, p.Syntax, p.Info)
	return err
}
