// Explore goes through all that can happen to a few clients of one name: real cores ([core.Lock], [core.Cohort]), the model of
// the scripts, and a network that delays, loses and cuts, as far as a scope lets it. docs/explore.md says more.
//
// Where something is wrong it prints the shortest way to that in words, and the command that follows the way again.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

func main() {
	name := flag.String("scope", "", "go through the scopes alone whose titles have this in them; with all of a title, through that one")
	deep := flag.Int("depth", 0, "how many steps deep to go; 0: to the end")
	wide := flag.Bool("wide", false, "also the scopes that take minutes each")
	page := flag.String("page", "", "write what was gone through into the table, and what it comes to into this page")
	table := flag.String("table", "internal/verify/explore/scopes.tsv", "the table of all scopes, with -page")
	seeds := flag.Int("walks", 0, "how many walks to make through each large world, instead of the search")
	first := flag.Uint64("seed", 1, "the seed of the first walk")
	steps := flag.String("way", "", "follow a way through the scope")
	flag.Parse()
	status := 0
	switch {
	case *seeds > 0:
		status = walkAll(*name, *first, *seeds)
	case *steps != "":
		status = again(*name, *steps)
	default:
		status = searchAll(chosen(*name, *wide), *deep, *table, *page)
	}
	os.Exit(status)
}

// chosen are the scopes that are meant by a part of their titles, or by all of one.
func chosen(name string, wide bool) (some []*scope) {
	for _, s := range scopes {
		if s.Title == name {
			return []*scope{s}
		}
		if strings.Contains(s.Title, name) && (wide || !s.Wide) {
			some = append(some, s)
		}
	}
	return some
}

func searchAll(some []*scope, deep int, table, page string) (status int) {
	var rows []string
	whole := time.Now()
	for _, s := range some {
		began := time.Now()
		r := (&search{scope: s, deep: deep}).run()
		took := time.Since(began)
		fmt.Printf("%s: %d states, %d steps, depth %d, %.1f s, %.0f steps/s\n", s.Title, r.states, r.edges, r.depth, took.Seconds(), float64(r.edges)/took.Seconds())
		if r.found != nil {
			status = 1
			told, _ := s.follow(r.found.way)
			fmt.Printf("\nfound: %s\n\n%s\n\n%s\n", r.found.what, strings.Join(told, "\n"), s.command(r.found.way))
		}
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%d", s.Title, r.states, r.edges, r.depth))
	}
	if page != "" && status == 0 {
		ran := fmt.Sprintf("The latest run went through %d of them in %v, on %s, commit %s.\n",
			len(rows), time.Since(whole).Round(time.Second), whole.UTC().Format("2 January 2006"), evidence.Commit())
		if err := fill(table, page, ran, rows); err != nil {
			fmt.Fprintln(os.Stderr, "explore:", err)
			return 1
		}
	}
	return status
}

const (
	tableHead   = "scope\tstates\tsteps\tdepth\n"
	totalBegins = "<!-- explore -->\n"
	totalEnds   = "<!-- /explore -->\n"
)

// fill writes the table of all scopes, and into a page what they come to and how they were gone through. Rows of scopes that were not gone through stay.
func fill(table, page, ran string, rows []string) error {
	old, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	for _, s := range scopes {
		for line := range strings.Lines(string(old)) {
			title := s.Title + "\t"
			if strings.HasPrefix(line, title) && !slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, title) }) {
				rows = append(rows, strings.TrimSpace(line))
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), totalBegins)
	_, after, ok2 := strings.Cut(rest, totalEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for what was gone through", page)
	}
	return errors.Join(
		os.WriteFile(table, []byte(tableHead+strings.Join(rows, "\n")+"\n"), 0o644),
		os.WriteFile(page, []byte(before+totalBegins+total(rows)+ran+totalEnds+after), 0o644))
}

// total is what the rows of a table come to.
func total(rows []string) string {
	var states, steps, deepest, most int
	var largest string
	for _, row := range rows {
		cells := strings.Split(row, "\t")
		n, _ := strconv.Atoi(cells[1])
		m, _ := strconv.Atoi(cells[2])
		deep, _ := strconv.Atoi(cells[3])
		states, steps, deepest = states+n, steps+m, max(deepest, deep)
		if n > most {
			most, largest = n, cells[0]
		}
	}
	return fmt.Sprintf("%d scopes, %d states, %d steps, at most %d steps deep. The largest, with %d states: %s.\n", len(rows), states, steps, deepest, most, largest)
}

// rank is where the scope of a row comes.
func rank(row string) int {
	return slices.IndexFunc(scopes, func(s *scope) bool { return strings.HasPrefix(row, s.Title+"\t") })
}

// command is what follows a way again.
func (s *scope) command(w way) string {
	var all []string
	for _, n := range w {
		all = append(all, strconv.Itoa(n))
	}
	return fmt.Sprintf("go run ./internal/verify/explore -scope %q -way %s", s.Title, strings.Join(all, ","))
}

// again follows a way.
func again(name, steps string) (status int) {
	some := chosen(name, true)
	if len(some) != 1 {
		fmt.Fprintln(os.Stderr, "explore: a way goes through one scope: -scope with its title")
		return 2
	}
	var w way
	for one := range strings.SplitSeq(steps, ",") {
		n, err := strconv.Atoi(one)
		if err != nil {
			fmt.Fprintln(os.Stderr, "explore:", err)
			return 2
		}
		w = append(w, n)
	}
	told, bad := some[0].follow(w)
	fmt.Println(strings.Join(told, "\n"))
	if bad != "" {
		fmt.Println("found:", bad)
		return 1
	}
	return 0
}

// walkAll walks through the large worlds, on one processor.
func walkAll(name string, first uint64, seeds int) (status int) {
	for _, s := range walks {
		if !strings.Contains(s.Title, name) {
			continue
		}
		began, total := time.Now(), 0
		for seed := first; seed < first+uint64(seeds); seed++ {
			_, steps, bad := s.walk(seed, true)
			if total += steps; bad != "" {
				told, _, _ := s.walk(seed, false)
				fmt.Printf("found: %s\n\n%s\n\ngo run ./internal/verify/explore -scope %q -walks 1 -seed %d\n", bad, strings.Join(told, "\n"), s.Title, seed)
				status = 1
				break
			}
		}
		fmt.Printf("%s: %d steps, %.0f steps/s\n", s.Title, total, float64(total)/time.Since(began).Seconds())
	}
	return status
}
