// Package report makes a page and charts out of what a run of bench has written.
package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// Own is the lock that the others are compared with.
const Own = "headwaiter"

// Read reads results out of files.
func Read(files ...string) (bench.Report, error) {
	var all []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return bench.Report{}, fmt.Errorf("report: %w", err)
		}
		all = append(all, string(text))
	}
	return bench.ReadReport(strings.NewReader(strings.Join(all, "\n")))
}

// write makes a file.
func write(name string, fill func(out *os.File) error) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		return fmt.Errorf("report: %s: %w", filepath.Base(name), err)
	}
	return nil
}

// view is a report with what the pages ask for again and again.
type view struct{ bench.Report }

// find returns a result.
func (v view) find(lock, work string) (bench.Result, bool) {
	i := slices.IndexFunc(v.Results, func(r bench.Result) bool { return r.Contender == lock && r.Work.String() == work })
	if i < 0 || v.Results[i].Rounds == 0 {
		return bench.Result{}, false
	}
	return v.Results[i], true
}

// locks are the contenders that have a result of one of the works, except [Kept].
func (v view) locks(works ...string) (names []string) {
	for _, c := range v.Environment.Contenders {
		if c.Name == Kept {
			continue
		}
		for _, work := range works {
			if _, ok := v.find(c.Name, work); ok {
				names = append(names, c.Name)
				break
			}
		}
	}
	return names
}

// contended are the works in which clients contend for one lock without holding it, and their numbers of clients.
func (v view) contended() (works []string, clients []int) {
	for _, r := range v.Results {
		if r.ID == "W4" && r.Arrival == 0 && !slices.Contains(works, r.Work.String()) {
			works = append(works, r.Work.String())
			clients = append(clients, r.Clients)
		}
	}
	return works, clients
}

// usual is the work that is looked at more closely: that with 8 clients, or the last.
func (v view) usual() string {
	works, clients := v.contended()
	for i, n := range clients {
		if n == 8 {
			return works[i]
		}
	}
	if len(works) == 0 {
		return ""
	}
	return works[len(works)-1]
}
