// Shape prints how large the engine is and how much of it one contended Lock and Release runs, at an older commit and now,
// next to the goals. The older tree is unpacked into a temporary folder and measured in the same way.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

const (
	first   = "69c8a2fe" // the commit before the cores were taken out of waitqueue
	program = "internal/tidy/shape/lock"
	rounds  = 5
	limit   = time.Minute // of a round, which takes some five seconds
)

func main() {
	base := flag.String("base", first, "the commit to compare with")
	list := flag.Bool("functions", false, "print also the functions that run now")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *base, *list); err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		stop()
		os.Exit(1)
	}
}

// A tree is what was measured of one.
type tree struct {
	shape.Sizes
	circles   map[string]int // lines of the largest circle of each package, by its folder
	functions []shape.Func   // those that a contended Lock runs
}

func run(ctx context.Context, base string, list bool) (err error) {
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "shape-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	address, stop, err := redistest.Alone()
	if err != nil {
		return err
	}
	defer stop()
	older := filepath.Join(folder, "tree")
	if err := unpack(ctx, root, base, older); err != nil {
		return err
	}
	before, err := measure(ctx, older, root, address, filepath.Join(folder, "base"))
	if err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	now, err := measure(ctx, root, root, address, filepath.Join(folder, "now"))
	if err != nil {
		return err
	}
	table(os.Stdout, base, before, now)
	if list {
		functions(os.Stdout, now.functions)
	}
	return nil
}

// output runs a command in a folder, with some more environment, and returns what it prints.
func output(ctx context.Context, dir string, env []string, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// unpack writes the files of a commit into a folder.
func unpack(ctx context.Context, root, commit, folder string) error {
	if _, err := output(ctx, root, nil, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		return fmt.Errorf("commit %s is not here: fetch it, or name another with REV: %w", commit, err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	_, err := output(ctx, root, nil, "git", "archive", "-o", folder+".tar", commit)
	if err == nil {
		_, err = output(ctx, root, nil, "tar", "-xf", folder+".tar", "-C", folder)
	}
	return err
}

// measure measures the tree in dir by the program of the tree in root, and leaves its data in folder.
func measure(ctx context.Context, dir, root, address, folder string) (t tree, err error) {
	if t.Sizes, err = shape.SizesOf(dir); err != nil {
		return t, err
	}
	var flags []string
	if dir != root {
		flags = []string{"-trimpath"} // The cache serves the next copy of this commit too.
		if err := carry(root, dir); err != nil {
			return t, err
		}
	}
	packages, err := shape.Packages(dir, flags...)
	if err != nil {
		return t, err
	}
	t.circles = map[string]int{}
	for _, p := range packages {
		t.circles[p.Folder] = p.Circle()
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return t, err
	}
	lock := filepath.Join(folder, "lock")
	if err := shape.BuildCounted(ctx, dir, shape.Module, "./"+program, lock); err != nil {
		return t, err
	}
	data, err := play(ctx, lock, address, folder)
	if err != nil {
		return t, err
	}
	t.functions, err = shape.Ran(ctx, data, shape.Module+"/internal/testenv/", shape.Module+"/internal/tidy/")
	return t, err
}

// play runs all rounds at once, each in a process with a name of its own, and returns the folders with what they have counted.
func play(ctx context.Context, lock, address, folder string) (data []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errs := make([]error, rounds)
	var all sync.WaitGroup
	for i := range rounds {
		name := filepath.Base(folder) + strconv.Itoa(i)
		counted, atExit := filepath.Join(folder, name), filepath.Join(folder, name+"-exit")
		data = append(data, counted)
		all.Go(func() {
			if errs[i] = errors.Join(os.Mkdir(counted, 0o700), os.Mkdir(atExit, 0o700)); errs[i] == nil {
				_, errs[i] = output(ctx, folder, []string{"GOCOVERDIR=" + atExit}, lock, address, name, counted)
			}
		})
	}
	all.Wait()
	return data, errors.Join(errs...)
}

// carry copies the program into another tree.
func carry(from, to string) error {
	body, err := os.ReadFile(filepath.Join(from, program, "main.go"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, program), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, program, "main.go"), body, 0o600)
}

// table prints both trees next to the goals.
func table(w io.Writer, base string, before, now tree) {
	row := func(what string, cells ...string) {
		fmt.Fprintf(w, "%-44s %24s %24s %12s\n", what, cells[0], cells[1], cells[2])
	}
	numbers := func(what, goal string, of func(tree) int) {
		cell := func(t tree) string {
			if n := of(t); n > 0 {
				return strconv.Itoa(n)
			}
			return "-"
		}
		row(what, cell(before), cell(now), goal)
	}
	row("", "base "+base, "now", "at most")
	numbers("one contended Lock and Release: functions", "180", func(t tree) int { return len(t.functions) })
	numbers("  files", "34", func(t tree) int { return distinct(t.functions, func(f shape.Func) string { return f.File }) })
	numbers("  packages", "10", func(t tree) int { return distinct(t.functions, shape.Func.Package) })
	numbers("largest circle, lines: internal/core", "1700", func(t tree) int { return t.circles["internal/core"] })
	numbers("  internal/event", "", func(t tree) int { return t.circles["internal/event"] })
	numbers("  waitqueue", "800", func(t tree) int { return t.circles["waitqueue"] })
	row("  elsewhere", elsewhere(before), elsewhere(now), "base")
	numbers("lines of the engine, without tests", "7000", func(t tree) int { return t.Engine })
	numbers("lines of Go, without tests", "74000", func(t tree) int { return t.Code })
	numbers("lines of tests", "72000", func(t tree) int { return t.Tests })
	numbers("words of Markdown", "", func(t tree) int { return t.Words })
	fmt.Fprintf(w, "\nA function counts if it ran in most of %d rounds. The engine is %s.\n", rounds, strings.Join(shape.Engine, ", "))
}

// elsewhere is the largest circle of the other packages.
func elsewhere(t tree) string {
	largest, of := 0, ""
	for folder, lines := range t.circles {
		switch {
		case folder == "waitqueue" || folder == "internal/core" || folder == "internal/event":
		case lines > largest || lines == largest && folder < of:
			largest, of = lines, folder
		}
	}
	return fmt.Sprintf("%s %d", of, largest)
}

func distinct(all []shape.Func, of func(shape.Func) string) int {
	found := map[string]bool{}
	for _, f := range all {
		found[of(f)] = true
	}
	return len(found)
}

// functions prints the functions by their packages, each with its file.
func functions(w io.Writer, all []shape.Func) {
	in := map[string]int{}
	for _, f := range all {
		in[f.Package()]++
	}
	of := ""
	for _, f := range all {
		if p := f.Package(); p != of {
			of = p
			fmt.Fprintf(w, "\n%s: %d\n", strings.TrimPrefix(p, shape.Module+"/"), in[p])
		}
		fmt.Fprintf(w, "  %-40s %s:%d\n", f.Name, filepath.Base(f.File), f.Line)
	}
}
