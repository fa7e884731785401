package shape

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Engine is where waiting and holding is decided and done: both cores, their shell, and the packages that become part of
// these. What is gone already is here for older commits.
var Engine = []string{
	"waitqueue", "internal/core", "internal/event", "internal/calls", "internal/cohort", "internal/nested", "internal/outbox",
	"internal/renewals", "internal/retry", "internal/several", "internal/shares", "internal/terms", "internal/trust",
}

// Sizes are lines and words of a tree.
type Sizes struct {
	Engine int // lines of the engine, with comments, without tests
	Code   int // lines of Go without tests
	Tests  int // lines of Go tests
	Words  int // words of Markdown
}

// SizesOf counts lines and words in a tree.
func SizesOf(dir string) (s Sizes, err error) {
	all, err := Texts(dir, "*.go", "*.md")
	for _, x := range all {
		lines := bytes.Count(x.Body, []byte("\n"))
		switch {
		case strings.HasSuffix(x.Name, ".md"):
			s.Words += len(bytes.Fields(x.Body))
		case strings.HasSuffix(x.Name, "_test.go"):
			s.Tests += lines
		default:
			s.Code += lines
			if slices.ContainsFunc(Engine, func(folder string) bool { return strings.HasPrefix(x.Name, folder+"/") }) {
				s.Engine += lines
			}
		}
	}
	return s, err
}

// A Func is a function with a name. Literals count as a part of it.
type Func struct {
	File string // the path of its package, and the name of its file
	Line int
	Name string // as in "*Mutex.Lock"
}

// Package is the path of its package.
func (f Func) Package() string { return path.Dir(f.File) }

// BuildCounted builds a command of a tree so that it counts what runs in all packages of a module.
func BuildCounted(ctx context.Context, dir, module, command, program string) error {
	// Without paths of the machine the cache serves the next copy of the tree too.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", program, command)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w", command, err)
	}
	return nil
}

// Ran returns the functions that ran in most rounds. Each round is a folder with the coverage data of one. Packages with one
// of the prefixes do not count.
func Ran(ctx context.Context, rounds []string, without ...string) (found []Func, err error) {
	times := map[Func]int{}
	for _, folder := range rounds {
		cmd := exec.CommandContext(ctx, "go", "tool", "covdata", "func", "-i", folder)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go tool covdata func: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			f, share, ok := parse(line)
			if ok && share > 0 && !slices.ContainsFunc(without, func(p string) bool { return strings.HasPrefix(f.File, p) }) {
				times[f]++
			}
		}
	}
	for f, n := range times {
		if 2*n > len(rounds) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Func) int {
		return cmp.Or(cmp.Compare(a.Package(), b.Package()), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return found, nil
}

// parse reads a line of coverage: "path/file.go:12:", the name, and the share of its statements that ran, as "66.7%". The
// last line, the total, has no file.
func parse(line string) (f Func, share float64, ok bool) {
	cells := strings.FieldsFunc(strings.TrimSpace(line), func(r rune) bool { return r == '\t' })
	if len(cells) != 3 {
		return f, 0, false
	}
	place := strings.Split(cells[0], ":")
	if len(place) != 3 {
		return f, 0, false
	}
	number, err := strconv.Atoi(place[1])
	share, bad := strconv.ParseFloat(strings.TrimSuffix(cells[2], "%"), 64)
	return Func{place[0], number, cells[1]}, share, err == nil && bad == nil
}
