// Package release makes a release of all modules of this repository at once: it finds them, gives each the
// requirements on the others that a published module needs, and packs them as the module proxy does.
//
// Inside the repository the workspace joins the modules, and their go.mod files need not name each other.
// Outside there is no workspace. So a release is a commit, on no branch, in which every module requires the others that it
// imports at the version of the release, with checksums that are those of the packed files: they do not
// depend on where a module is downloaded from.
package release

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
)

// A Module is one go.mod of the repository.
type Module struct {
	Path string   // as it is imported
	Dir  string   // relative to the root of the repository, with slashes; "." for the core
	Uses []string // paths of the modules of this repository that its packages and tests import
}

// Tag is the name of the tag that makes a version of the module.
func (m Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// Published tells whether users may require the module: what is below internal is for this repository alone.
func (m Module) Published() bool {
	return !slices.Contains(strings.Split(m.Dir, "/"), "internal")
}

// Modules returns the published modules below root, each after those that it uses.
func Modules(root string) ([]Module, error) {
	var all []Module
	err := walk(root, func(name string) error {
		if path.Base(name) != "go.mod" {
			return nil
		}
		body, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if m := (Module{Path: modfile.ModulePath(body), Dir: path.Dir(name)}); m.Published() {
			all = append(all, m)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Uses, err = uses(root, all[i], all); err != nil {
			return nil, err
		}
	}
	return sorted(all)
}

// sorted returns the modules, each after those that it uses.
func sorted(all []Module) ([]Module, error) {
	var order []Module
	done := map[string]bool{}
	for len(order) < len(all) {
		before := len(order)
		for _, m := range all {
			missing := func(used string) bool { return !done[used] }
			if !done[m.Path] && !slices.ContainsFunc(m.Uses, missing) {
				order, done[m.Path] = append(order, m), true
			}
		}
		if len(order) == before {
			return nil, fmt.Errorf("release: the modules import each other in a circle")
		}
	}
	return order, nil
}

// uses returns the modules among all that the packages and tests of m import.
func uses(root string, m Module, all []Module) ([]string, error) {
	found := map[string]bool{}
	err := files(root, m, func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if of := home(imported, all); of != "" && of != m.Path {
				found[of] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var list []string
	for used := range found {
		list = append(list, used)
	}
	slices.Sort(list)
	return list, nil
}

// home is the path of the module that has a package: of those whose path begins the package's, the longest.
func home(imported string, all []Module) string {
	longest := ""
	for _, m := range all {
		if (imported == m.Path || strings.HasPrefix(imported, m.Path+"/")) && len(m.Path) > len(longest) {
			longest = m.Path
		}
	}
	return longest
}

// files calls f with the files of a module, relative to root, without those of the modules below it.
func files(root string, m Module, f func(name string) error) error {
	return walk(filepath.Join(root, m.Dir), func(name string) error {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, err := os.Stat(filepath.Join(root, m.Dir, dir, "go.mod")); err == nil {
				return nil
			}
		}
		return f(path.Join(m.Dir, name))
	})
}

// walk calls f with the names of the regular files below dir, without those of version control.
func walk(dir string, f func(name string) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		return f(name)
	})
}
