package mutants

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// How long a test may take with a mutant, and without. One that hangs has not failed: it does not say what is wrong.
const (
	mutantLimit = 5 * time.Minute
	soundLimit  = 20 * time.Minute
)

// A Result is what became of a test, without a mutant or with one.
type Result struct {
	Verdict  string // of the mutant: Killed, or why not
	KilledBy []string
	Output   string // of the test
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

// Sound runs the test of a mutant without the mutant, which Survived it if the test is sound.
func (b *Bed) Sound(ctx context.Context, m Mutant) (Result, error) {
	return b.test(ctx, b.programs[m.Package], m, b.environment(b.overlay), soundLimit)
}

// Run runs the test of a mutant with the mutant awake.
func (b *Bed) Run(ctx context.Context, m Mutant) (Result, error) {
	if text := b.broken[m.Name]; text != "" {
		return Result{Verdict: Broken, Output: text}, nil
	}
	program, env := b.programs[m.Package], b.environment(b.overlay)
	var err error
	switch {
	case m.readAtRunTime():
		var dir string
		if dir, err = b.scripts(m); err == nil {
			defer os.RemoveAll(dir) //nolint:errcheck // Close removes the folder around it.
			env = append(env, scriptsFolder+"="+dir)
		}
	case b.alone[m.Name]:
		program = filepath.Join(b.dir, m.Name+".test")
		defer os.Remove(program) //nolint:errcheck // As above.
		var overlay string
		if overlay, err = b.changed(m); err == nil {
			env = b.environment(overlay)
			if err = b.compile(ctx, overlay, program, m.Package); err != nil && ctx.Err() == nil {
				return Result{Verdict: Broken, Output: err.Error()}, nil
			}
		}
	default:
		env = append(env, environment+"="+m.Name)
	}
	if err != nil {
		return Result{}, err
	}
	return b.test(ctx, program, m, env, mutantLimit)
}

// sick is the text of m's file with the mutant in it.
func (b *Bed) sick(m Mutant) (string, error) {
	sound, err := os.ReadFile(b.at(m.File))
	if err != nil {
		return "", err
	}
	return m.Apply(string(sound))
}

// changed makes an overlay that has one mutant alone.
func (b *Bed) changed(m Mutant) (string, error) {
	text, err := b.sick(m)
	if err != nil {
		return "", err
	}
	return b.replace(m.Name, map[string]string{m.File: text})
}

// scripts makes a folder of all scripts with the mutant in one.
func (b *Bed) scripts(m Mutant) (string, error) {
	text, err := b.sick(m)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, m.Name)
	if err := os.CopyFS(dir, os.DirFS(b.at(scripts))); err != nil {
		return "", err
	}
	name := strings.TrimPrefix(m.File, scripts+"/")
	return dir, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o644)
}

// environment is the environment of the tests. Programs that they build themselves have the same mutants.
func (b *Bed) environment(overlay string) []string {
	return append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
}

// test runs the test that a mutant names. It fails where the test cannot be run.
func (b *Bed) test(ctx context.Context, program string, m Mutant, env []string, limit time.Duration) (Result, error) {
	began := time.Now()
	// A file, not a pipe: a process that outlives a test may keep a pipe open.
	out, err := os.CreateTemp(b.dir, "output-")
	if err != nil {
		return Result{}, err
	}
	defer os.Remove(out.Name()) //nolint:errcheck // Close removes the folder around it.
	defer out.Close()           //nolint:errcheck // As above.
	cmd := command(ctx, b.at(m.Package), program, "-test.v=test2json", "-test.timeout="+limit.String(), "-test.run="+m.pattern())
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	err = cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return Result{}, errors.Join(ctx.Err(), err)
	}
	text, err := os.ReadFile(out.Name())
	res := Result{Output: string(text), Took: time.Since(began)}
	res.Verdict, res.KilledBy = verdict(res.Output, m.Test)
	return res, err
}

// event is what package testing writes of a test; it marks these lines for programs with the letter \x16.
var event = regexp.MustCompile(`\x16 *(=== RUN|--- PASS:|--- FAIL:) +(\S+)`)

// verdict judges the output of one test, and says which of its subtests failed, if it has any.
func verdict(out, test string) (verdict string, by []string) {
	events := map[string][]string{}
	for _, e := range event.FindAllStringSubmatch(out, -1) {
		events[e[1]] = append(events[e[1]], e[2])
	}
	failed := events["--- FAIL:"]
	switch {
	case strings.Contains(out, "panic: test timed out after"):
		return Hung, nil
	case slices.Contains(failed, test):
		for _, name := range failed {
			parent := func(other string) bool { return strings.HasPrefix(other, name+"/") }
			if !slices.ContainsFunc(failed, parent) {
				by = append(by, name)
			}
		}
		return Killed, by
	case slices.Contains(events["--- PASS:"], test):
		return Survived, nil
	case strings.Contains(out, "panic: ") && slices.Contains(events["=== RUN"], test):
		return Killed, []string{test} // Not by itself: the process died under it.
	}
	return NotRun, nil
}
