package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// A part is the tests of one kind.
type part struct{ name, folder, tests, does string }

var parts = []part{
	{"clients", "chaos", faults("clients"), "processes with locks, semaphores and read-write locks, some killed, stopped, starved, closed; calls that give up; clocks that jump"},
	{"servers", "chaos", faults("servers"), "the same load on servers that restart, forget, stall, refuse, fill up, are demoted, cut connections"},
	{"network", "chaos", faults("network"), "the same load on networks that lose, delay, double and cut"},
	{"primitives", "check", `InTrouble$`, "locks, cohorts, several names, batches, stripes, elections, reentrant and read-write locks and semaphores, half of the clients on a network in trouble"},
	{"failovers", "chaos", faults("failovers"), "masters that are replaced and slots that move: Sentinel, a cluster, by hand"},
	{"soak", "chaos", faults("soak"), "sixteen workers, one lock, waiters that give up and die: order and memory"},
}

// faults are the cases of a part in the table of package chaos.
func faults(part string) string { return "^TestFaults$/^" + part + "$" }

func names(parts []part) (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

const (
	// shortest and longest are how long the soak may last.
	shortest = 20 * time.Second
	longest  = 20 * time.Minute
	// limit is how long the tests of a part may last, in addition to the soak's time.
	limit = 90 * time.Minute
)

// A campaign is what is to be done.
type campaign struct {
	lasts                                time.Duration
	run, page, failed, histories, folder string
	long                                 bool
	least                                int
	parts                                []part
	servers                              []server
	programs                             map[string]string // by folder
	kept                                 map[string][]evidence.Line
}

// start runs parts until the time is over, and writes the page. It fails where a case did.
func (c *campaign) start(ctx context.Context, only string, servers []string) error {
	for _, p := range parts {
		if only == "" || slices.Contains(strings.Split(only, ","), p.name) {
			c.parts = append(c.parts, p)
		}
	}
	if len(c.parts) == 0 {
		return fmt.Errorf("there is no part %q but %s", only, strings.Join(names(parts), ", "))
	}
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return err
	}
	build, err := c.build(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(build)
	if c.run != "" {
		if err := c.narrow(ctx); err != nil {
			return err
		}
	}
	s := summary{began: time.Now(), parts: c.parts, partial: c.run != "", load: []string{load()}, commit: evidence.Commit()}
	if c.servers, s.missing, err = serversOf(ctx, servers); err != nil {
		return err
	}
	for i := 0; c.goesOn(i, s.holds, time.Since(s.began)); i++ {
		on, p, long := c.turn(i)
		failed, err := c.play(ctx, &s, on, p, long)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("the tests of %s cannot be started: %w", p.name, err)
		}
		fmt.Printf("%s on %s: %d acquisitions so far, %d failed cases\n", p.name, on.version, s.holds, len(s.failures))
		for _, f := range failed {
			fmt.Printf("  %s: %s\n", f.test, f.why)
		}
	}
	s.took, s.load = time.Since(s.began), append(s.load, load())
	if c.histories != "" {
		if err := c.keep(s); err != nil {
			return err
		}
	}
	if c.page != "" {
		if err := errors.Join(s.write(c.page), s.record(c.failed)); err != nil {
			return err
		}
	}
	fmt.Print(s.text())
	if len(s.failures) > 0 {
		return fmt.Errorf("%d cases have failed; what they have left is in %s", len(s.failures), c.folder)
	}
	return nil
}

// goesOn reports whether there is a turn number i, after so many acquisitions and so much time.
func (c *campaign) goesOn(i, holds int, took time.Duration) bool {
	least := 1
	if c.histories != "" || c.least > 0 {
		least = len(c.parts) * len(c.servers)
	}
	return i < least || holds < c.least || took < c.lasts
}

// turn is what has its turn as number i: all parts have been on all servers after as many turns as there are pairs, and
// after few turns many parts have been on some server. It says whether the part comes in its long form.
func (c *campaign) turn(i int) (on server, p part, long bool) {
	all := len(c.servers)
	seen := i >= all*len(c.parts) || c.long && i >= len(c.parts)
	return c.servers[i%all], c.parts[(i%all+i/all)%len(c.parts)], seen && c.least == 0
}

// build compiles the tests of all parts into a folder.
func (c *campaign) build(ctx context.Context) (folder string, err error) {
	if folder, err = os.MkdirTemp("", "campaign"); err != nil {
		return "", err
	}
	c.programs = map[string]string{}
	for _, p := range c.parts {
		if c.programs[p.folder] == "" {
			if c.programs[p.folder], err = build(ctx, folder, p.folder); err != nil {
				return "", errors.Join(err, os.RemoveAll(folder))
			}
		}
	}
	return folder, nil
}

// narrow leaves of each part the tests that are wanted, and leaves out parts that have none.
func (c *campaign) narrow(ctx context.Context) error {
	wanted, err := regexp.Compile(c.run)
	if err != nil {
		return err
	}
	all := c.parts
	c.parts = nil
	for _, p := range all {
		args := []string{"-test.list", p.tests}
		if p.tests == faults(p.name) {
			args = []string{"-faults.list"}
		}
		said, err := exec.CommandContext(ctx, c.programs[p.folder], args...).Output()
		if err != nil {
			return fmt.Errorf("the tests of %s: %w", p.name, err)
		}
		var tests []string
		for name := range strings.Lines(string(said)) {
			name = strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
			part, fault, inTable := strings.Cut(name, "/")
			if (!inTable || part == p.name) && wanted.MatchString(cmp.Or(fault, name)) {
				tests = append(tests, regexp.QuoteMeta(cmp.Or(fault, name)))
			}
		}
		if len(tests) > 0 {
			which := "^(" + strings.Join(tests, "|") + ")$"
			if p.tests == faults(p.name) {
				which = p.tests + "/" + which
			}
			p.tests = which
			c.parts = append(c.parts, p)
		}
	}
	if len(c.parts) == 0 {
		return fmt.Errorf("no test of these parts matches %s", c.run)
	}
	return nil
}

// span is how long the soak lasts.
func (c *campaign) span() time.Duration {
	if len(c.parts) == 1 {
		return max(shortest, c.lasts)
	}
	return min(max(shortest, c.lasts/10), longest)
}

// play runs a part on a server, and adds what came of it. The histories and the words of tests that failed stay in the
// folder. The error is why they could not be started.
func (c *campaign) play(ctx context.Context, s *summary, on server, p part, long bool) ([]failure, error) {
	base := filepath.Join(c.folder, fmt.Sprintf("%s-%s-%s", s.began.UTC().Format("20060102-150405"), on.name, p.name))
	seen, said := base+".jsonl", base+".txt"
	args := []string{"-test.count=1", "-test.v", "-test.timeout", (limit + c.span()).String(), "-test.run", p.tests}
	if p.name == "soak" {
		args = append(args, "-soak.for", c.span().String())
	}
	tests := exec.CommandContext(ctx, c.programs[p.folder], args...)
	path, err := filepath.Abs(seen)
	if err != nil {
		return nil, err
	}
	tests.Dir = filepath.Join("internal/verify", p.folder)
	tests.Env = append(os.Environ(), "HEADWAITER_REDIS_SERVER="+on.path, evidence.Variable+"="+path)
	if long {
		tests.Env = append(tests.Env, "CHAOS_LONG=1", "DEPLOY_ROUNDS=20")
	}
	output, ends := tests.CombinedOutput()
	if tests.ProcessState == nil {
		return nil, ends
	}
	lines, err := read(seen)
	failed := s.add(on, p, lines, output, errors.Join(ends, err))
	if c.histories != "" {
		c.choose(lines)
	}
	if len(failed) == 0 {
		// What is left of it is in the way of nothing.
		_ = os.Remove(seen)
	} else if err := os.WriteFile(said, output, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
	}
	return failed, nil
}

// read reads evidence. Tests that have seen nothing have written none.
func read(file string) ([]evidence.Line, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decode(f)
}

func decode(r io.Reader) (lines []evidence.Line, err error) {
	for d := json.NewDecoder(bufio.NewReader(r)); ; {
		var l evidence.Line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
}

// A failure is a case that has failed.
type failure struct{ test, why string }

var (
	marked = regexp.MustCompile(`^\s*=== (?:RUN|NAME|CONT|PAUSE)\s+(\S+)`)
	ended  = regexp.MustCompile(`^\s*--- (PASS|FAIL): (\S+)`)
	said   = regexp.MustCompile(`^\s+\w+_test\.go:\d+: *(.*)`)
	reason = regexp.MustCompile(`^\s+(?:Error|Messages):\s+(.*)`)
)

// caseOf is the case that a test is part of: one of the table of package chaos, or a top-level test.
func caseOf(test string) string {
	parts := strings.Split(test, "/")
	if parts[0] == "TestFaults" && len(parts) > 2 {
		return parts[1] + "/" + parts[2]
	}
	return parts[0]
}

// failures are the cases that have failed by what they said, each with the reason that the first of its failed parts gave, or the last that it said. Tests that ended badly without saying which of them has failed are one failure.
func failures(output []byte, err error) (all []failure) {
	reasons, last, panics := map[string]string{}, map[string]string{}, ""
	test := ""
	for line := range strings.Lines(string(output)) {
		line = strings.TrimRight(line, "\n")
		if m := marked.FindStringSubmatch(line); m != nil {
			test = m[1]
		} else if m := reason.FindStringSubmatch(line); m != nil {
			reasons[test] = strings.TrimPrefix(reasons[test]+"; "+m[1], "; ")
		} else if m := said.FindStringSubmatch(line); m != nil && m[1] != "" {
			last[test] = m[1]
		} else if strings.HasPrefix(line, "panic: ") && panics == "" {
			panics = line + " "
		} else if m := ended.FindStringSubmatch(line); m != nil && m[1] == "FAIL" {
			top := caseOf(m[2])
			if top == "TestFaults" {
				continue
			}
			i := slices.IndexFunc(all, func(f failure) bool { return f.test == top })
			if i < 0 {
				i = len(all)
				all = append(all, failure{test: top})
			}
			if all[i].why == "" {
				all[i].why = cmp.Or(reasons[m[2]], last[m[2]])
			}
		}
	}
	if err != nil && len(all) == 0 {
		all = append(all, failure{"all", panics + err.Error()})
	}
	return all
}
