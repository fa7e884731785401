package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// licenser is the program that finds out which licence a text is.
const licenser = "github.com/google/go-licenses@v1.6.0"

// read are licences that somebody read, where the program knows none that the text is.
var read = map[string]string{
	"github.com/ajstarks/svgo":   "CC-BY-4.0",
	"github.com/golang/freetype": "FTL", // or GPL-2.0-or-later, as one chooses
}

// ours begins the paths of this repository's modules.
const ours = "github.com/headwaiter/headwaiter"

// A Dependency is a module of somebody else.
type Dependency struct {
	Path, Version string
	Of            []string // folders of the modules whose packages need it, those for users; what tests need is not here
	Licences      []string // SPDX names
}

// Dependencies returns what the packages of the modules need of others, by path. The licences are not filled in.
func Dependencies(root string) ([]Dependency, error) {
	all, err := Modules(root)
	if err != nil {
		return nil, err
	}
	found := map[string]*Dependency{}
	for _, m := range all {
		packages, err := list(root, m, "./...")
		if err != nil {
			return nil, err
		}
		// What is below internal and that users' packages import comes with those.
		mine := slices.DeleteFunc(strings.Fields(string(packages)), func(p string) bool {
			return strings.Contains(p+"/", "/internal/")
		})
		out, err := list(root, m, append([]string{"-deps", "-json=Module"}, mine...)...)
		if err != nil {
			return nil, err
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Module *struct{ Path, Version string }
			}
			err := decoder.Decode(&p)
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			if p.Module == nil || home(p.Module.Path, all) != "" {
				continue // The standard library, or one of ours.
			}
			d := found[p.Module.Path]
			if d == nil {
				d = &Dependency{Path: p.Module.Path, Version: p.Module.Version}
				found[d.Path] = d
			}
			if !slices.Contains(d.Of, m.Dir) {
				d.Of = append(d.Of, m.Dir)
			}
		}
	}
	var sorted []Dependency
	for _, path := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[path].Of)
		sorted = append(sorted, *found[path])
	}
	return sorted, nil
}

// joined is the environment in which the workspace joins the modules, though this program runs outside it.
func joined() []string { return append(os.Environ(), "GOWORK=") }

// list runs go list in the folder of a module.
func list(root string, m Module, args ...string) ([]byte, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = filepath.Join(root, m.Dir), os.Stderr, joined()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("release: go list in %s: %w", m.Dir, err)
	}
	return out, nil
}

const licencesHead = `# Licences of the dependencies

What the packages that users of each module import, and its commands, need beside the standard library, and under which licence it comes. What tests alone need is not here. Made by ` + "`make licences`" + `; a test holds the list against what is imported.

| module | licence | needed by |
| --- | --- | --- |
`

// WriteLicences writes docs/licences.md.
func WriteLicences(root string) error {
	needed, err := Dependencies(root)
	if err != nil {
		return err
	}
	reported, err := report(root)
	if err != nil {
		return err
	}
	var unknown []error
	var b strings.Builder
	b.WriteString(licencesHead)
	for _, d := range needed {
		for library, licence := range reported {
			if library == d.Path || strings.HasPrefix(library, d.Path+"/") && closest(library, needed) == d.Path {
				d.Licences = append(d.Licences, licence)
			}
		}
		slices.Sort(d.Licences)
		d.Licences = slices.Compact(d.Licences)
		if text, ok := read[d.Path]; ok {
			d.Licences = []string{text}
		}
		if len(d.Licences) == 0 || slices.Contains(d.Licences, "Unknown") {
			unknown = append(unknown, fmt.Errorf("release: which licence %s has is not known", d.Path))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.Path, strings.Join(d.Licences, ", "), folders(d.Of))
	}
	if len(unknown) > 0 {
		return errors.Join(unknown...)
	}
	return os.WriteFile(filepath.Join(root, "docs", "licences.md"), []byte(b.String()), 0o644)
}

func folders(of []string) string {
	named := slices.Clone(of)
	for i, dir := range named {
		if dir == "." {
			named[i] = "the core"
		} else {
			named[i] = "`" + dir + "`"
		}
	}
	return strings.Join(named, ", ")
}

func closest(library string, among []Dependency) string {
	longest := ""
	for _, d := range among {
		if (library == d.Path || strings.HasPrefix(library, d.Path+"/")) && len(d.Path) > len(longest) {
			longest = d.Path
		}
	}
	return longest
}

// report returns the licence of each library, by the path of the package that its text is for.
func report(root string) (map[string]string, error) {
	all, err := Modules(root)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, m := range all {
		cmd := exec.Command("go", "run", licenser, "report", "--ignore", ours, "./...")
		cmd.Dir, cmd.Env = filepath.Join(root, m.Dir), joined()
		var told bytes.Buffer
		cmd.Stderr = &told // It warns of addresses that it cannot ask for, which nobody wants to know here.
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("release: %s in %s: %w\n%s", licenser, m.Dir, err, &told)
		}
		for line := range strings.Lines(string(out)) {
			if parts := strings.Split(strings.TrimSpace(line), ","); len(parts) == 3 {
				found[parts[0]] = parts[2]
			}
		}
	}
	return found, nil
}

// Licences reads docs/licences.md: the SPDX names by module.
func Licences(root string) (map[string][]string, error) {
	body, err := os.ReadFile(filepath.Join(root, "docs", "licences.md"))
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(body)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], "`") {
			found[strings.Trim(cells[1], " `")] = strings.Split(strings.TrimSpace(cells[2]), ", ")
		}
	}
	return found, nil
}
