// Mutants plants the seeded bugs of package mutants, and says which tests find them. It fails if one is not
// found.
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

	"github.com/headwaiter/headwaiter/internal/verify/mutants"
)

func main() {
	only := flag.String("only", "", "plant those alone whose names match this expression, and write no page")
	show := flag.Bool("show", false, "show how each test fails")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := plant(ctx, *only, *show); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func plant(ctx context.Context, only string, show bool) (err error) {
	all, err := chosen(only)
	if err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	var trees []*mutants.Tree
	defer func() {
		for _, tree := range trees {
			err = errors.Join(err, tree.Close())
		}
	}()
	for range min(runtime.NumCPU(), len(all)) {
		tree, err := mutants.Copy(ctx, dir)
		if err != nil {
			return err
		}
		trees = append(trees, tree)
	}
	fmt.Printf("%d mutants, %d at a time; first their tests without them\n", len(all), len(trees))
	if err := trees[0].Sound(ctx, all); err != nil {
		return err
	}
	results, err := each(ctx, trees, all, show)
	if err != nil {
		return err
	}
	found := 0
	for _, r := range results {
		if r.Verdict == mutants.Killed {
			found++
		}
	}
	fmt.Printf("\n%s\nkilled %d of %d\n", mutants.Table(results), found, len(results))
	if only == "" {
		if err := os.WriteFile(filepath.Join(dir, "docs", "mutants.md"), []byte(mutants.Page(results)), 0o644); err != nil {
			return err
		}
	}
	if found < len(results) {
		return fmt.Errorf("%d mutants are not found", len(results)-found)
	}
	return nil
}

// chosen returns the mutants whose names match.
func chosen(only string) ([]mutants.Mutant, error) {
	name, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	all, err := mutants.All()
	all = slices.DeleteFunc(all, func(m mutants.Mutant) bool { return !name.MatchString(m.Name) })
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no mutant has a name that matches %q", only)
	}
	return all, err
}

// each plants all mutants, each tree one at a time, and tells of each as its test has ended.
func each(ctx context.Context, trees []*mutants.Tree, all []mutants.Mutant, show bool) ([]mutants.Result, error) {
	results, errs := make([]mutants.Result, len(all)), make([]error, len(trees))
	next := make(chan int)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	for n, tree := range trees {
		work.Go(func() {
			for i := range next {
				r, err := tree.Plant(ctx, all[i])
				if err != nil {
					errs[n] = err
					stop()
					return
				}
				results[i] = r
				text := fmt.Sprintf("%-8s %4.0f s  %s  %s\n", r.Verdict, r.Took.Seconds(), r.Name, strings.Join(r.KilledBy, " "))
				if show || r.Verdict != mutants.Killed {
					text += r.Output + "\n"
				}
				fmt.Print(text)
			}
		})
	}
	for i := range all {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	work.Wait()
	return results, errors.Join(append(errs, ctx.Err())...)
}
