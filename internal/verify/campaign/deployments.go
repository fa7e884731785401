// Servers runs the tests of package deploy on each server that scripts/server can fetch, and on the one that is installed, or
// on those that are named. It writes a row for each into docs/deploy.md. What cannot be fetched is left out by name. It fails
// if a test does.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

const (
	// suite is the folder whose tests are run.
	suite = "internal/verify/deploy"
	// brief are the tests of the short form: all primitives, what the page says of rights, a master that dies, a slot that moves.
	brief = "TestConformance$/^(single|RESP2_only|Sentinel|cluster)$|TestTheRightsOfTheOptions|TestEachRightOfAClusterIsNeeded|" +
		"TestFailoversUnderLoad/cluster/0|TestFailoversUnderLoad/by_hand/1|TestAHoldOutlastsTheMoveOfItsSlot|TestAHoldIsKnownToTheReplicas|TestAServerThatComesUpWithItsData"
	// installed is the name of the server that no script fetches.
	installed = "installed"
	page      = "docs/deploy.md"
	head      = "| server | version | on | deployments | cases | differences |\n| --- | --- | --- | --- | --- | --- |\n"
	patience  = "30m"
)

func main() {
	short := flag.Bool("short", false, "run some tests, and write no page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := matrix(ctx, *short, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		stop()
		os.Exit(1)
	}
}

func matrix(ctx context.Context, short bool, names []string) error {
	folder, err := os.MkdirTemp("", "servers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "deploy.test")
	if said, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./"+suite).CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, said)
	}
	if len(names) == 0 {
		all, err := exec.CommandContext(ctx, "scripts/server").Output()
		if err != nil {
			return fmt.Errorf("scripts/server: %w", err)
		}
		names = append([]string{installed}, strings.Fields(string(all))...)
	}
	rows := map[string]string{}
	var failed []string
	for _, name := range names {
		r, err := try(ctx, program, name, short)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			fmt.Printf("%s is left out: %v\n", name, err)
			continue
		}
		rows[name] = fmt.Sprintf("| %s | %s | %s | %d | %d of %d | %s |\n", name, r.version, time.Now().Format("2 January 2006"),
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
	version string
	cases   map[string]bool // those that have no cases of their own, and whether they passed
	passed  int
	failed  []string
	output  []byte
	err     error // how the tests ended
}

var (
	versioned = regexp.MustCompile(`^(\w+) server v=(\S+)`)
	usual     = regexp.MustCompile(`(?m)^ *(=== |--- PASS).*\n`)
	verdict   = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): (\S+)`)
)

// try runs the tests on a server. The error says why it cannot be had.
func try(ctx context.Context, program, name string, short bool) (run, error) {
	path := "redis-server"
	if name != installed {
		var why bytes.Buffer
		fetch := exec.CommandContext(ctx, "scripts/server", name)
		fetch.Stderr = &why
		found, err := fetch.Output()
		if err != nil {
			lines := strings.Split(strings.TrimSpace(why.String()), "\n")
			return run{}, errors.New(lines[len(lines)-1])
		}
		path = strings.TrimSpace(string(found))
	}
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	is := versioned.FindSubmatch(said)
	if err != nil || is == nil {
		return run{}, fmt.Errorf("%s --version: %q, %w", path, said, err)
	}
	r := run{version: string(is[1]) + " " + string(is[2]), cases: map[string]bool{}}
	tests := exec.CommandContext(ctx, program, "-test.count=1", "-test.v", "-test.timeout", patience)
	if short {
		tests.Args = append(tests.Args, "-test.run", brief)
	}
	tests.Dir, tests.Env = suite, append(os.Environ(), "HEADWAITER_REDIS_SERVER="+path)
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
	return r, nil
}

// deployments are those on which the server was tried.
func (r run) deployments() (found []string) {
	for name := range r.cases {
		if _, rest, ok := strings.Cut(name, "TestConformance/"); ok {
			d, _, _ := strings.Cut(rest, "/")
			if d = strings.ReplaceAll(d, "_", " "); !slices.Contains(found, d) {
				found = append(found, d)
			}
		}
	}
	return found
}

// differences are what was not tried on a server, or failed there.
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
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ")
}

// write puts the rows into the table of the page, in place of older ones of the same servers.
func write(rows map[string]string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), head)
	old, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		return fmt.Errorf("%s has no table %q", page, head)
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
	return os.WriteFile(page, []byte(before+head+all.String()+"\n"+after), 0o644)
}
