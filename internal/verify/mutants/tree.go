package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Tree is a copy of the source tree, in which bugs are planted.
type Tree struct{ dir string }

// Copy copies the files of the work tree at root that git knows, or would not ignore, to a new folder. Close
// removes it.
func Copy(ctx context.Context, root string) (*Tree, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	t := &Tree{dir: dir}
	for _, args := range [][]string{{"add", "--all"}, {"checkout-index", "--all", "--prefix=" + dir + "/"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		// An index for this alone: what is staged at root stays as it is.
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GIT_INDEX_FILE="+t.path(".index"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("git %s: %w: %s", args[0], err, out), t.Close())
		}
	}
	return t, nil
}

func (t *Tree) path(name string) string { return filepath.Join(t.dir, filepath.FromSlash(name)) }

// Close removes the copy.
func (t *Tree) Close() error { return os.RemoveAll(t.dir) }

// testLimit is how long the tests of one run may take. One that hangs has not failed: it does not say what is
// wrong.
const testLimit = 2 * time.Minute

// A run is what `go test` said of some tests of one package.
type run struct {
	begun, passed, failed []string // tests and subtests
	builds                bool
	hung, panicked        bool
	output                string
	took                  time.Duration
}

// test runs the tests of a package that a pattern names.
func (t *Tree) test(ctx context.Context, folder, pattern string, limit time.Duration) (run, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout", limit.String(), "-run", pattern, "./"+folder)
	cmd.Dir = t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return run{}, errors.Join(ctx.Err(), err)
	}
	r, err := read(out)
	r.took = time.Since(began)
	if err != nil {
		return r, fmt.Errorf("go test %s: %w: %s", folder, err, stderr.String())
	}
	return r, nil
}

// read reads the events that `go test -json` prints.
func read(out []byte) (run, error) {
	r := run{builds: true}
	var text strings.Builder
	events := json.NewDecoder(bytes.NewReader(out))
	for events.More() {
		var e struct{ Action, Test, Output, FailedBuild string }
		if err := events.Decode(&e); err != nil {
			return r, err
		}
		text.WriteString(e.Output)
		switch {
		case e.Action == "build-fail", e.FailedBuild != "":
			r.builds = false
		case e.Test == "":
		case e.Action == "run":
			r.begun = append(r.begun, e.Test)
		case e.Action == "pass":
			r.passed = append(r.passed, e.Test)
		case e.Action == "fail":
			r.failed = append(r.failed, e.Test)
		}
	}
	r.output = text.String()
	r.hung = strings.Contains(r.output, "panic: test timed out after")
	r.panicked = strings.Contains(r.output, "panic: ")
	return r, nil
}

// A Result is what became of one mutant.
type Result struct {
	Mutant
	Verdict  string // Killed, or why not
	KilledBy []string
	Output   string // of the tests
	Took     time.Duration
}

// The verdicts.
const (
	Killed   = "killed"
	Survived = "SURVIVED"
	Broken   = "DOES NOT BUILD"
	Hung     = "HUNG"
	NotRun   = "TEST NOT FOUND"
)

// Plant runs the test of a mutant with the bug in the tree, and takes the bug out again.
func (t *Tree) Plant(ctx context.Context, m Mutant) (res Result, err error) {
	res.Mutant = m
	file := t.path(m.File)
	sound, err := os.ReadFile(file)
	if err != nil {
		return res, err
	}
	sick, err := m.Apply(string(sound))
	if err != nil {
		return res, err
	}
	if err := os.WriteFile(file, []byte(sick), 0o644); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, sound, 0o644)) }()
	r, err := t.test(ctx, m.Package, m.pattern(), testLimit)
	res.Output, res.Took = r.output, r.took
	if err == nil {
		res.Verdict, res.KilledBy = r.verdict(m.top())
	}
	return res, err
}

// verdict judges the run of one test, and says which of its subtests failed, if it has any.
func (r run) verdict(test string) (verdict string, by []string) {
	switch {
	case !r.builds:
		return Broken, nil
	case r.hung:
		return Hung, nil
	case slices.Contains(r.failed, test):
		for _, name := range r.failed {
			parent := func(other string) bool { return strings.HasPrefix(other, name+"/") }
			if !slices.ContainsFunc(r.failed, parent) {
				by = append(by, name)
			}
		}
		return Killed, by
	case slices.Contains(r.passed, test):
		return Survived, nil
	case r.panicked && slices.Contains(r.begun, test):
		return Killed, []string{test} // Not by itself: the process died under it.
	}
	return NotRun, nil
}

// Sound sees that all mutants fit the tree, and runs their tests without a bug, those of each package together:
// only a test that passes then says something by failing.
func (t *Tree) Sound(ctx context.Context, all []Mutant) error {
	tests := map[string][]string{}
	for _, m := range all {
		text, err := os.ReadFile(t.path(m.File))
		if err != nil {
			return err
		}
		if _, err := m.Apply(string(text)); err != nil {
			return err
		}
		if !slices.Contains(tests[m.Package], m.top()) {
			tests[m.Package] = append(tests[m.Package], m.top())
		}
	}
	var work sync.WaitGroup
	place := make(chan struct{}, runtime.NumCPU())
	errs := make(chan error, len(tests))
	for folder, names := range tests {
		work.Go(func() {
			place <- struct{}{}
			defer func() { <-place }()
			errs <- t.sound(ctx, folder, names)
		})
	}
	work.Wait()
	close(errs)
	var wrong []error
	for err := range errs {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// sound runs the named tests of one package.
func (t *Tree) sound(ctx context.Context, folder string, names []string) error {
	r, err := t.test(ctx, folder, "^("+strings.Join(names, "|")+")$", 5*testLimit)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(r.passed, name) {
			return fmt.Errorf("%s of %s does not pass without a bug:\n%s", name, folder, r.output)
		}
	}
	return nil
}
