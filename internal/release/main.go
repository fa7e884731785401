// Command release says what the modules of this repository need: for docs/licences.tsv, and for the bill of materials of a
// release. It runs in its own folder, outside the workspace.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const usage = `usage: release COMMAND

  licences               write docs/licences.tsv, from what go-licenses reports
  sbom VERSION           print a bill of materials of all modules, as CycloneDX wants it
`

// root is the folder of the repository.
const root = "../.."

func main() {
	err := fmt.Errorf("%s", usage)
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "licences":
		err = writeLicences()
	case len(args) == 2 && args[0] == "sbom":
		err = writeBill(os.Stdout, args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A module is one of this repository's workspace.
type module struct {
	need
	dir   string // relative to the root of the repository; "." for the core
	needs []need // what its packages for users import, by path; what tests alone import is not here
}

// A need is a module that others need.
type need struct{ path, version string }

// ours tells whether the module is one of this repository: those have no version here.
func (n need) ours() bool { return n.version == "" }

// modules returns the modules of this repository, by path.
var modules = sync.OnceValues(findModules)

func findModules() ([]module, error) {
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	lines, err := list(top, "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return nil, err
	}
	var all []module
	for _, line := range lines {
		path, dir, _ := strings.Cut(line, " ")
		packages, err := list(dir, "./...")
		if err != nil {
			return nil, err
		}
		// What is below internal and that users' packages import comes with those.
		packages = slices.DeleteFunc(packages, func(p string) bool { return strings.Contains(p+"/", "/internal/") })
		imported, err := list(dir, append([]string{"-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}"}, packages...)...)
		if err != nil {
			return nil, err
		}
		m := module{need: need{path: path}}
		if m.dir, err = filepath.Rel(top, dir); err != nil {
			return nil, err
		}
		for _, line := range imported {
			path, version, _ := strings.Cut(line, " ")
			if path != m.path {
				m.needs = append(m.needs, need{path, version})
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// list runs go list in a folder of the workspace and returns the lines that it prints, sorted, each once.
func list(dir string, args ...string) ([]string, error) {
	out, err := run(dir, "go", append([]string{"list"}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return slices.Compact(lines), err
}

// run runs a program in a folder of the workspace and returns what it prints.
func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=")
	out, err := cmd.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("release: %s %s in %s: %w\n%s", name, args[0], dir, err, failed.Stderr)
	}
	return string(out), err
}
