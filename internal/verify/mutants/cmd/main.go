// Mutants runs the bugs of package mutants, and says which tests find them. It fails if one is not
// found.
//
// A run of all mutants that was interrupted goes on where it was, as long as no file has changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/mutants"
)

func main() {
	only := flag.String("only", "", "run those alone whose name, or whose test's folder, matches this expression, and write no page")
	show := flag.Bool("show", false, "show how each test fails")
	list := flag.Bool("list", false, "print what each mutant does, and run none")
	at := flag.Int("p", runtime.NumCPU()+1, "tests to run at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := chosen(*only)
	switch {
	case err != nil:
	case *list:
		fmt.Print(mutants.List(all))
	default:
		err = run(ctx, all, *only == "", *show, *at)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// chosen returns the mutants whose name or whose test's folder matches.
func chosen(only string) ([]mutants.Mutant, error) {
	name, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	all, err := mutants.All()
	all = slices.DeleteFunc(all, func(m mutants.Mutant) bool {
		return !name.MatchString(m.Name) && !name.MatchString(m.Package)
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no mutant has a name or a folder that matches %q", only)
	}
	return all, err
}

// run runs mutants, and writes the page if they are all that there are and all are killed.
func run(ctx context.Context, all []mutants.Mutant, whole, show bool, at int) (err error) {
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	commit, err := git(ctx, "describe", "--always", "--dirty", "--exclude=*")
	if err != nil {
		return err
	}
	log, err := openLog(ctx, root, whole)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close(err == nil)) }()
	fmt.Printf("%d mutants, %d tests at a time; %d lines of an earlier run\n", len(all), at, len(log.done))
	bed, err := mutants.Build(ctx, root, all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	fmt.Printf("compiled in %.0f s; now the tests without a mutant\n", log.took().Seconds())
	sick, err := unsound(ctx, bed, all, log, at)
	if err != nil {
		return err
	}
	fmt.Printf("the tests have run after %.0f s; now the mutants\n", log.took().Seconds())
	lived, err := plant(ctx, bed, slices.DeleteFunc(slices.Clone(all), func(m mutants.Mutant) bool {
		return slices.Contains(sick, test(m))
	}), log, show, at)
	if err != nil {
		return err
	}
	for _, m := range all {
		if slices.Contains(sick, test(m)) {
			lived = append(lived, m.Name)
		}
	}
	took := log.took()
	fmt.Printf("killed %d of %d in %.0f s\n", len(all)-len(lived), len(all), took.Seconds())
	if len(lived) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(lived, ", "))
	}
	if !whole {
		return nil
	}
	page := mutants.Page(all, mutants.Run{Day: time.Now(), Commit: commit, Took: took, Cores: runtime.NumCPU()})
	return os.WriteFile(filepath.Join(root, "docs", "mutants.md"), []byte(page), 0o644)
}

// test names the test of a mutant.
func test(m mutants.Mutant) string { return m.Package + " " + m.Test }

// unsound runs each test without a mutant, and returns those that fail.
func unsound(ctx context.Context, bed *mutants.Bed, all []mutants.Mutant, log *log, at int) (sick []string, err error) {
	var first []mutants.Mutant // of each test
	seen := map[string]bool{}
	for _, m := range all {
		if !seen[test(m)] && !log.done[soundly(m)] {
			first = append(first, m)
		}
		seen[test(m)] = true
	}
	var mu sync.Mutex
	err = each(ctx, first, at, func(ctx context.Context, m mutants.Mutant) error {
		r, err := bed.Sound(ctx, m)
		switch {
		case err != nil:
			return err
		case r.Verdict == mutants.Survived:
			fmt.Printf("passes   %5.1f s  %s\n", r.Took.Seconds(), test(m))
			return log.add(soundly(m))
		}
		fmt.Printf("does not pass without a mutant: %s (%s)\n%s\n", test(m), r.Verdict, r.Output)
		mu.Lock()
		defer mu.Unlock()
		sick = append(sick, test(m))
		return nil
	})
	return sick, err
}

// soundly is what the log says of a test that passes.
func soundly(m mutants.Mutant) string { return "passes " + test(m) }

// plant runs the mutants, tells of each when its test has ended, and returns the names of those that live.
func plant(ctx context.Context, bed *mutants.Bed, all []mutants.Mutant, log *log, show bool, at int) (lived []string, err error) {
	var mu sync.Mutex
	err = each(ctx, all, at, func(ctx context.Context, m mutants.Mutant) error {
		if log.done[m.Name] {
			return nil
		}
		r, err := bed.Run(ctx, m)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		text := fmt.Sprintf("%-8s %5.1f s  %s  %s\n", r.Verdict, r.Took.Seconds(), m.Name, strings.Join(r.KilledBy, " "))
		if show || r.Verdict != mutants.Killed {
			text += r.Output + "\n"
		}
		fmt.Print(text)
		if r.Verdict == mutants.Killed {
			return log.add(m.Name)
		}
		mu.Lock()
		defer mu.Unlock()
		lived = append(lived, m.Name)
		return nil
	})
	return lived, err
}

// each calls f for each mutant, some at a time, until one call fails.
func each(ctx context.Context, all []mutants.Mutant, at int, f func(context.Context, mutants.Mutant) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan mutants.Mutant)
	var work sync.WaitGroup
	for range at {
		work.Go(func() {
			for m := range next {
				if err := f(ctx, m); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, m := range all {
		select {
		case next <- m:
		case <-ctx.Done():
		}
	}
	close(next)
	work.Wait()
	return context.Cause(ctx)
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
