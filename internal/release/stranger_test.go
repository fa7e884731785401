package release

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
)

// version is one that no release will have.
const version = "v0.999.0"

// A packed repository is one whose modules are all in a proxy, as after a release.
type packed struct {
	root, proxy string
	modules     []Module
}

// packedIn is the folder that pack has made, "" if nobody has asked for it.
var packedIn string

var pack = sync.OnceValues(func() (p packed, err error) {
	dir, err := os.MkdirTemp("", "headwaiter-release-")
	if err != nil {
		return p, err
	}
	packedIn = dir
	p = packed{root: filepath.Join(dir, "repository"), proxy: filepath.Join(dir, "proxy")}
	if err := copyRepository(p.root); err != nil {
		return p, err
	}
	if err := Prepare(p.root, version, p.proxy, filepath.Join(dir, "cache")); err != nil {
		return p, err
	}
	p.modules, err = Modules(p.root)
	return p, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if packedIn != "" {
		_ = os.RemoveAll(packedIn)
	}
	os.Exit(code)
}

// released returns the repository of a release. It is made once.
func released(t *testing.T) packed {
	t.Helper()
	p, err := pack()
	require.NoError(t, err)
	return p
}

// copyRepository copies what is under version control, or would be, to a folder.
func copyRepository(to string) error {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(top))
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		body, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // Deleted, and not committed yet.
		}
		if err != nil {
			return err
		}
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A stranger is a module of somebody else, with an empty module cache.
type stranger struct {
	dir, cache string
	env        []string
}

func newStranger(t *testing.T, p packed, files map[string]string) stranger {
	t.Helper()
	s := stranger{dir: t.TempDir(), cache: t.TempDir()}
	files["go.mod"] = "module example.com/stranger\n\ngo 1.26.0\n"
	// The checksums that were verified when they came here.
	sums, err := filepath.Glob(filepath.Join(p.root, "go.sum"))
	require.NoError(t, err)
	require.Len(t, sums, 1)
	sum, err := os.ReadFile(sums[0])
	require.NoError(t, err)
	files["go.sum"] = string(sum)
	for name, body := range files {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(body), 0o600))
	}
	s.env, err = Offline(p.proxy, s.cache)
	require.NoError(t, err)
	return s
}

func (s stranger) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	require.NoError(t, err, "%v\n%s%s", args, out, told.String())
	return string(out)
}

// downloaded returns the modules of which the stranger has got more than go.mod.
func (s stranger) downloaded(t *testing.T) []string {
	t.Helper()
	var found []string
	root := filepath.Join(s.cache, "cache", "download")
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".zip" {
			return err
		}
		name, err := filepath.Rel(root, filepath.Dir(filepath.Dir(file)))
		if err == nil {
			name, err = module.UnescapePath(filepath.ToSlash(name))
		}
		found = append(found, name)
		return err
	})
	require.NoError(t, err)
	slices.Sort(found)
	return found
}

const program = `package main

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

func main() {
	client, err := headwaiter.DialURL("redis://127.0.0.1:1")
	if err != nil {
		fmt.Println("no server")
		return
	}
	fmt.Println(fairlock.New(client, "orders:42").Do(context.Background(), func(context.Context) error { return nil }))
}
`

// TestAStrangerOfTheLockDownloadsFourModules holds what users of the lock pay for: a module that is not
// in this list is a reviewed edit of it.
func TestAStrangerOfTheLockDownloadsFourModules(t *testing.T) {
	p := released(t)
	s := newStranger(t, p, map[string]string{"main.go": program})
	s.run(t, "go", "get", "github.com/headwaiter/headwaiter@"+version)
	s.run(t, "go", "build", "-o", "stranger", ".")
	require.Equal(t, []string{
		"github.com/google/uuid",
		"github.com/headwaiter/headwaiter",
		"github.com/redis/rueidis",
		"golang.org/x/sys",
	}, s.downloaded(t))
	require.Equal(t, "no server\n", s.run(t, filepath.Join(s.dir, "stranger")))
}

// TestEveryModuleBuildsForAStranger builds all packages of each module that can be imported, and its commands.
func TestEveryModuleBuildsForAStranger(t *testing.T) {
	p := released(t)
	require.Greater(t, len(p.modules), 8, "the modules are not found")
	s := newStranger(t, p, map[string]string{})
	for _, m := range p.modules {
		s.run(t, "go", "get", m.Path+"@"+version)
		packages := strings.Fields(s.run(t, "go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", m.Path+"/..."))
		packages = slices.DeleteFunc(packages, func(p string) bool { return strings.Contains(p+"/", "/internal/") })
		require.NotEmpty(t, packages, m.Path)
		require.Contains(t, s.run(t, "go", "list", "-m", m.Path), version)
		s.run(t, append([]string{"go", "build", "-o", os.DevNull}, packages...)...)
	}
}

func TestAModuleTagsItsFolder(t *testing.T) {
	core := Module{Path: "a.b/c", Dir: "."}
	nested := Module{Path: "a.b/c/d/e", Dir: "d/e", Uses: []string{"a.b/c"}}
	require.Equal(t, "v1.2.3", core.Tag("v1.2.3"))
	require.Equal(t, "d/e/v1.2.3", nested.Tag("v1.2.3"))
	require.True(t, nested.Published())
	require.False(t, Module{Dir: "internal/release"}.Published())
	require.Equal(t, nested.Path, home("a.b/c/d/e/f", []Module{core, nested}))
	require.Equal(t, core.Path, home("a.b/c/d", []Module{core, nested}))
	require.Empty(t, home("a.b/cd", []Module{core, nested}))

	order, err := sorted([]Module{nested, core})
	require.NoError(t, err)
	require.Equal(t, []Module{core, nested}, order)
	core.Uses = []string{nested.Path}
	_, err = sorted([]Module{nested, core})
	require.Error(t, err)
}

func TestAVersionThatNotAllModulesCanHaveIsRefused(t *testing.T) {
	for _, bad := range []string{"1.2.3", "v1.2", "v2.0.0", "v1.2.3+build", ""} {
		require.Error(t, Prepare(t.TempDir(), bad, t.TempDir(), t.TempDir()), bad)
	}
}
