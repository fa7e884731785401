// Spec runs the checker over the specification in the folder spec: with all rules nothing may be found, and without
// each of them what the table in runs.go says. It writes spec/README.md, with what was found and how; with -check it
// wants to find on that page what it would write of the runs that take little. What the checker printed, and the cfg
// file of each run, which TLC takes too, are left in out/spec; -resume takes what is there of the same files.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	check := flag.Bool("check", false, "leave out what takes long, and hold the rest against the page instead of writing it")
	only := flag.String("only", "", "those alone whose names have this in them: it prints the way to what they find, and writes no page")
	checker := flag.String("tla", "bin/tla/bin/tla", "the command of the checker")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many runs at a time")
	wide := flag.Bool("wide", false, "make the runs that take hours, and write no page")
	cfgs := flag.Bool("cfg", false, "write the cfg files alone, and run nothing")
	resume := flag.Bool("resume", false, "take what earlier runs of the same files have left")
	flag.Parse()
	if err := do(*check, *wide, *only, *checker, *cfgs, *resume, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		os.Exit(1)
	}
}

func do(check, wide bool, only, checker string, cfgs, resume bool, jobs int) error {
	var chosen []Run
	for _, r := range runs {
		if r.Wide == wide && !(check && r.Long) && strings.Contains(r.Name, only) {
			chosen = append(chosen, r)
		}
	}
	dir := filepath.Join("out", "spec")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, r := range chosen {
		if err := os.WriteFile(r.file(dir), []byte(r.cfg()), 0o644); err != nil {
			return err
		}
	}
	if cfgs {
		return nil
	}
	results, err := each(chosen, checker, dir, resume, jobs)
	switch page := filepath.Join("spec", "README.md"); {
	case err != nil:
		return err
	case wide:
		return nil
	case only != "":
		for _, r := range results {
			fmt.Printf("\n%s\n%s", r.Name, r.way())
		}
		return nil
	case check:
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		return missing(string(text), results)
	default:
		of, err := sum("spec")
		if err != nil {
			return err
		}
		return os.WriteFile(page, []byte(pageOf(results, of)), 0o644)
	}
}

// each makes the runs, several at a time, and tells of each as it has ended.
func each(chosen []Run, checker, dir string, resume bool, jobs int) ([]Result, error) {
	results, errs := make([]Result, len(chosen)), make([]error, len(chosen))
	next := make(chan int)
	var work sync.WaitGroup
	for range jobs {
		work.Go(func() {
			for i := range next {
				begun := time.Now()
				results[i], errs[i] = chosen[i].make(checker, dir, resume)
				fmt.Printf("%5.0f s  %s: %s, %d states\n", time.Since(begun).Seconds(), chosen[i].Name, results[i].found(), results[i].States)
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	work.Wait()
	return results, errors.Join(errs...)
}

// A Result is what a run has found.
type Result struct {
	Run
	Found  string // the invariant that was violated, "deadlock", or "" for nothing
	States int
	Depth  int
	Steps  [][]any // what was done in each step of the way there
}

// found says it in a word or two.
func (r Result) found() string {
	return cmp.Or(map[string]string{
		"": "nothing", "deadlock": "stranded", "NoTwoBelievers": "two believers", "NoPhantom": "phantom holder", "NoOvertaking": "overtaken",
		"NoSecondLapse": "second lapse", "RefusedRightly": "wrongly refused", "ToldInTime": "untold", "TokensRise": "token not above", "NoGhost": "ghost in the queue", "SameOrder": "another order",
		"NothingKept": "kept from others",
	}[r.Found], r.Found)
}

// output is what the checker prints at its end.
type output struct {
	Status    string `json:"status"`
	Invariant string `json:"invariant_name"`
	Trace     []struct {
		State struct {
			Told [][]any `json:"told"`
		} `json:"state"`
	} `json:"trace"`
	Stats struct {
		States int `json:"states_explored"`
		Depth  int `json:"max_depth"`
	} `json:"stats"`
}

// remark is what changes nothing: comments, and space at the ends of lines.
var remark = regexp.MustCompile(`\(\*.*\*\)|\s*\\\*.*|(?m:\s+$)`)

// text is all that decides what a run finds, and the file of its module in a folder.
func (r Run) text(folder string) (file string, text []byte, err error) {
	file = filepath.Join(folder, r.module()+".tla")
	module, err := os.ReadFile(file)
	if r.Way != "" && err == nil {
		var base []byte
		base, err = os.ReadFile(filepath.Join(folder, "Headwaiter.tla"))
		module = append(module, base...)
	}
	return file, append(remark.ReplaceAll(module, nil), r.cfg()...), err
}

// sum is of the texts of all runs.
func sum(folder string) (string, error) {
	h := sha256.New()
	for _, r := range runs {
		if r.Wide {
			continue
		}
		_, text, err := r.text(folder)
		if err != nil {
			return "", err
		}
		_, _ = h.Write(text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// check runs the checker, and returns what it prints.
func (r Run) check(checker, dir string, resume bool) ([]byte, error) {
	spec, text, err := r.text("spec")
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(r.file(dir), "cfg") + "json"
	sum := fmt.Appendf(nil, "%x\n", sha256.Sum256(text))
	if kept, err := os.ReadFile(name); resume && err == nil && bytes.HasPrefix(kept, sum) {
		return kept[len(sum):], nil
	}
	var out, log bytes.Buffer
	cmd := exec.Command(checker, spec, "--config", r.file(dir), "--json", "--max-depth", "10000", "--max-states", "10000000")
	cmd.Stdout, cmd.Stderr = &out, &log
	failed := cmd.Run() // It exits with 1 if it finds something, too.
	i := bytes.IndexByte(out.Bytes(), '{')
	if i < 0 {
		return nil, fmt.Errorf("%s: %w\n%s%s", r.Name, cmp.Or(failed, errors.New("no answer")), out.String(), log.String())
	}
	return out.Bytes()[i:], os.WriteFile(name, append(sum, out.Bytes()[i:]...), 0o644)
}

// make makes the run. It fails unless that ends with what it should.
func (r Run) make(checker, dir string, resume bool) (Result, error) {
	result := Result{Run: r}
	text, err := r.check(checker, dir, resume)
	if err != nil {
		return result, err
	}
	var o output
	if err := json.Unmarshal(text, &o); err != nil {
		return result, fmt.Errorf("%s: %w\n%s", r.Name, err, text)
	}
	result.States, result.Depth = o.Stats.States, o.Stats.Depth
	switch o.Status {
	case "ok":
	case "deadlock":
		result.Found = "deadlock"
	case "invariant_violation":
		result.Found = o.Invariant
	default:
		return result, fmt.Errorf("%s: %s\n%s", r.Name, o.Status, text)
	}
	for _, s := range o.Trace[min(1, len(o.Trace)):] {
		result.Steps = append(result.Steps, s.State.Told...)
		result.Steps = append(result.Steps, nil)
	}
	if result.Found != r.Finds {
		return result, fmt.Errorf("%s: found %q, and not %q:\n%s", r.Name, result.Found, r.Finds, result.way())
	}
	return result, nil
}
