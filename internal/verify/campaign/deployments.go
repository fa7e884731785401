package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

const (
	// suite is the folder whose tests are run.
	suite    = "internal/verify/chaos"
	cases    = "^TestFaults$/^(deployments|failovers)$"
	table    = "docs/deploy.md"
	head     = "| server | version | on | deployments | cases | differences |\n| --- | --- | --- | --- | --- | --- |\n"
	patience = "30m"
)

// matrix runs deployments and failovers on each server, in their short form or whole. It fails if a test does.
func matrix(ctx context.Context, short bool, names []string) error {
	folder, err := os.MkdirTemp("", "servers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program, err := build(ctx, folder, "chaos")
	if err != nil {
		return err
	}
	servers, _, err := serversOf(ctx, names)
	if err != nil {
		return err
	}
	rows := map[string]string{}
	var failed []string
	for _, s := range servers {
		r, name := try(ctx, program, s, short), s.name
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rows[name] = fmt.Sprintf("| %s | %s | %s | %d | %d of %d | %s |\n", name, s.version, time.Now().Format("2 January 2006"),
			len(r.deployments()), r.passed, len(r.cases), r.differences())
		fmt.Print(rows[name])
		if len(r.failed) > 0 || r.err != nil {
			fmt.Printf("%s\n%v\n", usual.ReplaceAll(r.output, nil), r.err)
			failed = append(failed, name)
		}
	}
	if !short {
		if err := write(rows); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("tests failed on %s", strings.Join(failed, ", "))
	}
	return nil
}

// A run is what the tests found on one server.
type run struct {
	cases  map[string]bool // those that have no cases of their own, and whether they passed
	passed int
	failed []string
	output []byte
	err    error // how the tests ended
}

var (
	usual   = regexp.MustCompile(`(?m)^ *(=== |--- PASS).*\n`)
	verdict = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): (\S+)`)
)

// try runs the tests on a server.
func try(ctx context.Context, program string, s server, short bool) run {
	r := run{cases: map[string]bool{}}
	tests := exec.CommandContext(ctx, program, "-test.count=1", "-test.v", "-test.timeout", patience, "-test.run", cases)
	if short {
		tests.Args = append(tests.Args, "-test.short")
	}
	tests.Dir, tests.Env = suite, append(os.Environ(), "HEADWAITER_REDIS_SERVER="+s.path)
	r.output, r.err = tests.CombinedOutput()
	for _, found := range verdict.FindAllSubmatch(r.output, -1) {
		r.cases[string(found[2])] = string(found[1]) == "PASS"
	}
	for name := range r.cases {
		for i, c := range name {
			if c == '/' {
				delete(r.cases, name[:i])
			}
		}
	}
	for name, passed := range r.cases {
		if passed {
			r.passed++
		} else {
			r.failed = append(r.failed, name)
		}
	}
	slices.Sort(r.failed)
	return r
}

// deployments are those on which the server was tried.
func (r run) deployments() (found []string) {
	for name := range r.cases {
		if _, rest, ok := strings.Cut(name, "TestFaults/deployments/conformance/"); ok {
			d, _, _ := strings.Cut(rest, "/")
			if d = strings.ReplaceAll(d, "_", " "); !slices.Contains(found, d) {
				found = append(found, d)
			}
		}
	}
	return found
}

// differences are what was not tried on a server, or failed there, and how the tests ended if they broke off.
func (r run) differences() string {
	var all []string
	here := r.deployments()
	for _, d := range redistest.Deployments() { // Those of the installed one.
		if !slices.Contains(here, d.Name) {
			all = append(all, "not tried: "+d.Name)
		}
	}
	for _, name := range r.failed {
		all = append(all, "fails: "+strings.ReplaceAll(name, "_", " "))
	}
	if r.err != nil && len(r.failed) == 0 {
		all = append(all, "did not end: "+cell(r.err.Error()))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}

// write puts the rows into the table of the page, in place of older ones of the same servers.
func write(rows map[string]string) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), head)
	old, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		return fmt.Errorf("%s has no table %q", table, head)
	}
	for line := range strings.Lines(old + "\n") {
		if name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " "); rows[name] == "" {
			rows[name] = line
		}
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		all.WriteString(rows[name])
	}
	return os.WriteFile(table, []byte(before+head+all.String()+"\n"+after), 0o644)
}
