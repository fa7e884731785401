package tidy

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A checkedPackage is a package of the core as the type checker sees it, without its tests.
type checkedPackage struct {
	folder string
	files  *token.FileSet
	syntax []*ast.File
	types  *types.Package
	info   *types.Info
}

var checkedOnce struct {
	sync.Mutex
	packages []checkedPackage
}

// checked returns the packages of the core.
func checked(t *testing.T) []checkedPackage {
	t.Helper()
	checkedOnce.Lock()
	defer checkedOnce.Unlock()
	if checkedOnce.packages != nil {
		return checkedOnce.packages
	}
	exports := map[string]string{}
	all := listed(t, "-export", "-deps", "./...")
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	for _, p := range all {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		c := checkedPackage{folder: strings.TrimPrefix(p.ImportPath, module+"/"), files: token.NewFileSet()}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			c.syntax = append(c.syntax, file)
		}
		c.check(t, p.ImportPath, importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		}))
		checkedOnce.packages = append(checkedOnce.packages, c)
	}
	require.Greater(t, len(checkedOnce.packages), 20, "the packages are not found")
	return checkedOnce.packages
}

// checkedSource is a package of one file, which imports nothing.
func checkedSource(t *testing.T, source string) checkedPackage {
	t.Helper()
	c := checkedPackage{files: token.NewFileSet()}
	file, err := parser.ParseFile(c.files, "x.go", source, 0)
	require.NoError(t, err)
	c.syntax = []*ast.File{file}
	c.check(t, "x", nil)
	return c
}

func (c *checkedPackage) check(t *testing.T, path string, from types.Importer) {
	t.Helper()
	c.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	var err error
	c.types, err = (&types.Config{Importer: from}).Check(path, c.files, c.syntax, c.info)
	require.NoError(t, err)
}
