package release

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Prepare turns the files below root into those of a release: each module requires the others that it imports at
// this version, and has their checksums. It packs the modules into proxy on the way, as those that
// come later are checked against them. Where it fails, the files below root may be half prepared.
//
// It runs the go command, which may download what the modules depend on; cache is a folder for the modules, which
// must not be the user's, where this version may have to mean something else later.
func Prepare(root, version, proxy, cache string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Major(version) > "v1" {
		return fmt.Errorf("release: %q is no version that all modules can have: v0.Y.Z or v1.Y.Z is", version)
	}
	all, err := Modules(root)
	if err != nil {
		return err
	}
	env, err := Offline(proxy, cache)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := requireOthers(filepath.Join(root, m.Dir, "go.mod"), m, all, version); err != nil {
			return fmt.Errorf("release: %s: %w", m.Path, err)
		}
		if len(m.Uses) > 0 {
			// As go mod tidy does, but without what the tests of other people's modules need.
			cmd := exec.Command("go", "list", "-deps", "-test", "./...")
			cmd.Dir, cmd.Env = filepath.Join(root, m.Dir), env
			var told bytes.Buffer
			cmd.Stderr = &told
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("release: %s: %w\n%s", m.Path, err, &told)
			}
		}
		if err := Pack(root, m, version, proxy); err != nil {
			return fmt.Errorf("release: %s: %w", m.Path, err)
		}
	}
	return nil
}

// requireOthers makes the go.mod of m require what it uses at a version, and nothing else of this repository.
func requireOthers(file string, m Module, all []Module, version string) error {
	body, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := modfile.Parse(file, body, nil)
	if err != nil {
		return err
	}
	for _, other := range all {
		if err := parsed.DropRequire(other.Path); err != nil {
			return err
		}
	}
	for _, used := range m.Uses {
		if err := parsed.AddRequire(used, version); err != nil {
			return err
		}
	}
	parsed.Cleanup()
	out, err := parsed.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644)
}

// Offline returns the environment for a go command that gets the modules of this repository from proxy alone, what
// this machine has of others from its module cache, and only the rest as it would otherwise. What it gets
// goes to cache.
func Offline(proxy, cache string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, err
	}
	mine, others, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOWORK=off",
		"GOFLAGS=-mod=mod -modcacherw -trimpath",
		"GOMODCACHE="+cache,
		"GOPROXY="+strings.Join([]string{Address(proxy), Address(filepath.Join(mine, "cache", "download")), others}, ","),
		// They are on no server yet that a checksum database could know.
		"GONOSUMDB=github.com/headwaiter/headwaiter,github.com/headwaiter/headwaiter/*",
	), nil
}
