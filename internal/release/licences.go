package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
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

const licencesHead = "module\tlicence\tneeded by\n"

// licencesTable is where they are listed: the modules that each module's packages and commands need, apart from the standard
// library and from what only tests need.
var licencesTable = filepath.Join(root, "docs", "licences.tsv")

// writeLicences writes docs/licences.tsv.
func writeLicences() error {
	all, err := modules()
	if err != nil {
		return err
	}
	needing := neededBy(all)
	licences := map[string][]string{}
	for _, m := range all {
		out, err := run(filepath.Join(root, m.dir), "go", "run", licenser, "report", "--ignore", all[0].path, "./...")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			// The path of the package that a text is for, its address, its licence.
			if parts := strings.Split(strings.TrimSpace(line), ","); len(parts) == 3 {
				of := home(parts[0], needing)
				licences[of] = append(licences[of], parts[2])
			}
		}
	}
	for path, licence := range read {
		licences[path] = []string{licence}
	}
	var unknown []error
	var b strings.Builder
	b.WriteString(licencesHead)
	for _, path := range slices.Sorted(maps.Keys(needing)) {
		slices.Sort(licences[path])
		names := slices.Compact(licences[path])
		if len(names) == 0 || slices.Contains(names, "Unknown") {
			unknown = append(unknown, fmt.Errorf("release: which licence %s has is not known", path))
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\n", path, strings.Join(names, ", "), strings.Join(needing[path], ", "))
	}
	if len(unknown) > 0 {
		return errors.Join(unknown...)
	}
	return os.WriteFile(licencesTable, []byte(b.String()), 0o644)
}

// neededBy returns who needs each module of others, by its path.
func neededBy(all []module) map[string][]string {
	needing := map[string][]string{}
	for _, m := range all {
		name := m.dir
		if m.dir == "." {
			name = "the core"
		}
		for _, n := range m.needs {
			if !n.ours() {
				needing[n.path] = append(needing[n.path], name)
			}
		}
	}
	return needing
}

// home is the path of the module that a package belongs to: of those that begin the package's, the longest.
func home(library string, among map[string][]string) (longest string) {
	for path := range among {
		if strings.HasPrefix(library+"/", path+"/") && len(path) > len(longest) {
			longest = path
		}
	}
	return longest
}

// readLicences reads docs/licences.tsv: the SPDX names by module.
func readLicences() (map[string][]string, error) {
	body, err := os.ReadFile(licencesTable)
	found := map[string][]string{}
	for line := range strings.Lines(string(body)) {
		if cells := strings.Split(line, "\t"); len(cells) == 3 && line != licencesHead {
			found[cells[0]] = strings.Split(cells[1], ", ")
		}
	}
	return found, err
}
