package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// version is one that no release will have.
const version = "v0.999.0"

// made is the folder that release has made, "" if nobody has asked for it.
var made string

// release makes a release with scripts/release, in a copy of the repository as it is here, and returns the copy. It is
// made once.
var release = sync.OnceValues(func() (copied string, err error) {
	if made, err = os.MkdirTemp("", "headwaiter-release-"); err != nil {
		return "", err
	}
	copied = filepath.Join(made, "repository")
	if err := copyRepository(copied); err != nil {
		return "", err
	}
	file := filepath.Join(copied, "CHANGELOG.md")
	log, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	dated := strings.Replace(string(log), "\n## ", "\n## ["+strings.TrimPrefix(version, "v")+"] - 2026-01-01\n\n## ", 1)
	if err := os.WriteFile(file, []byte(dated), 0o600); err != nil {
		return "", err
	}
	if _, err := run(copied, "git", "commit", "--quiet", "--all", "--message", "date it"); err != nil {
		return "", err
	}
	_, err = run(copied, "scripts/release", version)
	return copied, err
})

func TestMain(m *testing.M) {
	// Who commits in copies.
	for name, value := range map[string]string{"NAME": "test", "EMAIL": "test@localhost"} {
		_ = os.Setenv("GIT_AUTHOR_"+name, value)
		_ = os.Setenv("GIT_COMMITTER_"+name, value)
	}
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(code)
}

// copyRepository makes a clone with a branch that has what is under version control here, or would be.
func copyRepository(to string) error {
	top, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-tags", "--no-checkout", top, to},
		{"--git-dir", filepath.Join(to, ".git"), "--work-tree", top, "add", "--all"},
		{"-C", to, "commit", "--quiet", "--allow-empty", "--message", "as it is"},
		{"-C", to, "checkout", "--quiet", "--force", "-B", "main"},
	} {
		if _, err := run(top, "git", args...); err != nil {
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

func newStranger(t *testing.T, copied string) stranger {
	t.Helper()
	s := stranger{dir: t.TempDir(), cache: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go.mod"), []byte("module example.com/stranger\n\ngo 1.26.0\n"), 0o600))
	// The checksums that were verified when they came here.
	sums, err := os.ReadFile(filepath.Join(copied, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go.sum"), sums, 0o600))
	goes, err := run(root, "go", "env", "GOMODCACHE", "GOPROXY")
	require.NoError(t, err)
	cache, proxy, _ := strings.Cut(strings.TrimSpace(goes), "\n")
	const core = "github.com/headwaiter/headwaiter"
	s.env = append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOMODCACHE="+s.cache,
		"GOPROXY=file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+proxy,
		// They are on no server yet: the tags of the copy are what GitHub would have.
		"GONOPROXY="+core+","+core+"/*", "GONOSUMDB="+core+","+core+"/*",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(copied)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+core,
	)
	return s
}

func (s stranger) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	require.NoError(t, err, "%v\n%s%s", args, out, told.String())
	return string(out)
}

// downloaded returns the modules that the stranger has got as more than a go.mod.
func (s stranger) downloaded(t *testing.T) []string {
	t.Helper()
	var found []string
	root := filepath.Join(s.cache, "cache", "download")
	err := filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".zip" {
			return err
		}
		name, err := filepath.Rel(root, filepath.Dir(filepath.Dir(file)))
		found = append(found, filepath.ToSlash(name))
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
	copied, err := release()
	require.NoError(t, err)
	s := newStranger(t, copied)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "main.go"), []byte(program), 0o600))
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
	copied, err := release()
	require.NoError(t, err)
	all, err := modules()
	require.NoError(t, err)
	require.Greater(t, len(all), 8, "the modules are not found")
	s := newStranger(t, copied)
	for _, m := range all {
		if strings.Contains(m.path, "/internal/") {
			continue // It has tests alone, and nobody could import it.
		}
		s.run(t, "go", "get", m.path+"@"+version)
		packages := strings.Fields(s.run(t, "go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", m.path+"/..."))
		packages = slices.DeleteFunc(packages, func(p string) bool { return strings.Contains(p+"/", "/internal/") })
		require.NotEmpty(t, packages, m.path)
		require.Contains(t, s.run(t, "go", "list", "-m", m.path), version)
		s.run(t, append([]string{"go", "build", "-o", os.DevNull}, packages...)...)
	}
}

// TestTheProgramsOfFirstAdoptersRun builds and runs what somebody wrote who knew README, the pages and go doc alone: each on a
// Redis of its own.
func TestTheProgramsOfFirstAdoptersRun(t *testing.T) {
	copied, err := release()
	require.NoError(t, err)
	s := newStranger(t, copied)
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(filepath.Join("testdata", "programs"))))
	const core = "github.com/headwaiter/headwaiter"
	s.run(t, "go", "get", core+"@"+version, core+"/contrib/prometheus@"+version, core+"/contrib/goredis@"+version, core+"/headwaitertest@"+version)
	programs, err := os.ReadDir(filepath.Join("testdata", "programs"))
	require.NoError(t, err)
	for _, p := range programs {
		t.Run(p.Name(), func(t *testing.T) {
			if p.Name() == "tests" {
				s.run(t, "go", "test", "./tests")
				return
			}
			s.run(t, "go", "build", "-o", p.Name()+".program", "./"+p.Name())
			own := s
			own.env = append(slices.Clone(s.env), "REDIS_URL="+redis(t))
			require.Contains(t, own.run(t, filepath.Join(s.dir, p.Name()+".program")), p.Name()+": ok\n")
		})
	}
}

// redis starts a server that ends with the test, and returns its URL.
func redis(t *testing.T) string {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	_, port, _ := net.SplitHostPort(addr)
	server := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	said, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return "redis://" + addr
		}
	}
	t.Fatal("redis-server does not start")
	return ""
}

// TestAReleaseIsOneCommitAndATagForEachModule: on that commit each module is what its checksums in the others say, and
// builds by itself.
func TestAReleaseIsOneCommitAndATagForEachModule(t *testing.T) {
	copied, err := release()
	require.NoError(t, err)
	all, err := modules()
	require.NoError(t, err)
	var tags []string
	for _, m := range all {
		tag := version
		if m.dir != "." {
			tag = filepath.ToSlash(m.dir) + "/" + version
		}
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	tagged, err := run(copied, "git", "tag", "--points-at", version+"^{commit}")
	require.NoError(t, err)
	require.Equal(t, tags, strings.Fields(tagged))
	parent, err := run(copied, "git", "rev-parse", version+"^{commit}~", "main")
	require.NoError(t, err)
	require.Len(t, slices.Compact(strings.Fields(parent)), 1, "the commit of the release follows the branch's last")

	_, err = run(copied, "git", "checkout", "--quiet", version)
	require.NoError(t, err)
	s := newStranger(t, copied)
	s.env = append(s.env, "GOFLAGS=-mod=readonly -modcacherw")
	s.dir = filepath.Join(copied, "bench", "rivals") // It needs most of them.
	s.run(t, "go", "list", "-deps", "-test", "./...")
}

func TestAVersionThatNotAllModulesCanHaveIsRefused(t *testing.T) {
	for _, bad := range []string{"1.2.3", "v1.2", "v2.0.0", "v1.2.3+build", ""} {
		_, err := run(root, "scripts/release", bad, "--dry-run")
		require.ErrorContains(t, err, "usage: scripts/release", bad)
	}
}

// TestAChangeThatBreaksUsersIsFound runs scripts/api in a copy of the repository: since version 1 was frozen, and since a
// release.
func TestAChangeThatBreaksUsersIsFound(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, copyRepository(copied))
	api := func() (string, error) {
		cmd := exec.Command("scripts/api", "github.com/headwaiter/headwaiter/lease")
		cmd.Dir = copied
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	commit := func(message string) {
		_, err := run(copied, "git", "commit", "--quiet", "--allow-empty", "--message", message)
		require.NoError(t, err)
	}

	commit("Freeze version 1 of the wire and of the interface")
	file := filepath.Join(copied, "lease", "lease.go")
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	const shared = "func (l *Lease) Shared() bool"
	require.Contains(t, string(code), shared)
	for _, since := range []string{"the freeze", "a release"} {
		said, err := api()
		require.NoError(t, err, "%s: %s", since, said)
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(code), shared, "func (l *Lease) Divided() bool", 1)), 0o600))
		said, err = api()
		require.Error(t, err, "a method is gone since %s", since)
		require.Contains(t, said, "Lease).Shared")
		require.NoError(t, os.WriteFile(file, code, 0o600))
		// The commit of a release comes after the one that it releases.
		commit("release v1.0.0")
		_, err = run(copied, "git", "tag", "--force", "v1.0.0")
		require.NoError(t, err)
	}
}

// allowed are licences under which code may be used with this project's.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0", "CC0-1.0", "FTL", "ISC", "MIT", "OFL-1.1", "Unlicense"}

func TestLicencesOfAllDependenciesAreListed(t *testing.T) {
	listed, err := readLicences()
	require.NoError(t, err)
	all, err := modules()
	require.NoError(t, err)
	needing := neededBy(all)
	require.NotEmpty(t, needing)
	for path := range needing {
		require.NotEmpty(t, listed[path], "%s is not in docs/licences.tsv: run make licences", path)
		require.Subset(t, allowed, listed[path], "the licences of %s", path)
	}
	require.Len(t, listed, len(needing), "docs/licences.tsv has modules that nothing needs: run make licences")
}

func TestALibraryBelongsToTheModuleWithTheLongestPath(t *testing.T) {
	among := map[string][]string{"a.b/c": nil, "a.b/c/d/e": nil}
	require.Equal(t, "a.b/c/d/e", home("a.b/c/d/e/f", among))
	require.Equal(t, "a.b/c", home("a.b/c/d", among))
	require.Empty(t, home("a.b/cd", among))
}

func TestTheBillNamesWhatEachModuleNeeds(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeBill(&out, version))
	require.Contains(t, out.String(), `"pkg:golang/github.com/redis/rueidis@v`)

	var bill cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bill))
	require.Equal(t, "github.com/headwaiter/headwaiter", bill.Metadata.Component.Name)
	known := map[string]bool{bill.Metadata.Component.BOMRef: true}
	for _, c := range *bill.Components {
		require.False(t, known[c.BOMRef], "%s comes twice", c.BOMRef)
		known[c.BOMRef] = true
		if c.Version != version {
			require.NotNil(t, c.Licenses, "%s without a licence", c.BOMRef)
		}
	}
	all, err := modules()
	require.NoError(t, err)
	require.Len(t, *bill.Dependencies, len(all))
	for _, d := range *bill.Dependencies {
		require.True(t, known[d.Ref], d.Ref)
		if !strings.Contains(d.Ref, "/internal/") { // That has tests alone, which nobody gets.
			require.NotEmpty(t, *d.Dependencies, d.Ref)
		}
		for _, ref := range *d.Dependencies {
			require.True(t, known[ref], "%s, which %s needs", ref, d.Ref)
		}
	}
}
