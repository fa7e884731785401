// Command release does what scripts/release and the Makefile need of package release.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headwaiter/headwaiter/internal/release"
)

const usage = `usage: release COMMAND

  modules                the published modules, each after those that it uses
  tags VERSION           the tags of a release
  prepare VERSION        make all go.mod and go.sum files those of a release, in place
  licences               docs/licences.md, from what go-licenses reports
  sbom VERSION FILE      a bill of materials of all modules, as CycloneDX wants it

It works on the repository in the folder that -root names.
`

func main() {
	root := flag.String("root", "../..", "folder of the repository")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if err := run(*root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, args []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "modules":
		return each(root, func(m release.Module) string { return m.Dir })
	case len(args) == 2 && args[0] == "tags":
		return each(root, func(m release.Module) string { return m.Tag(args[1]) })
	case len(args) == 2 && args[0] == "prepare":
		return prepare(root, args[1])
	case len(args) == 1 && args[0] == "licences":
		return release.WriteLicences(root)
	case len(args) == 3 && args[0] == "sbom":
		return release.WriteBill(root, args[1], args[2])
	}
	return fmt.Errorf("%s", usage)
}

func each(root string, line func(release.Module) string) error {
	all, err := release.Modules(root)
	for _, m := range all {
		fmt.Println(line(m))
	}
	return err
}

func prepare(root, version string) error {
	dir, err := os.MkdirTemp("", "headwaiter-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return release.Prepare(root, version, filepath.Join(dir, "proxy"), filepath.Join(dir, "cache"))
}
