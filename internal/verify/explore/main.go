// Command explore goes through worlds of real cores.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	name := flag.String("scope", "", "part of the title of the scopes to go through; empty: all")
	deep := flag.Int("depth", 0, "go no deeper; 0: as deep as there is")
	limit := flag.Int("states", 0, "stop after so many states; 0: never")
	seeds := flag.Int("walks", 0, "so many walks through each of the large worlds, in place of the search")
	first := flag.Uint64("seed", 1, "the first of them")
	steps := flag.String("way", "", "steps to follow, with commas between them")
	list := flag.Bool("fields", false, "")
	flag.Parse()
	if *list {
		fmt.Println(strings.Join(listFields(), "\n"))
		return
	}
	if *seeds > 0 {
		os.Exit(walkAll(*name, *first, *seeds))
	}
	bad := false
	for _, s := range scopes {
		if !strings.Contains(s.Title, *name) {
			continue
		}
		if *steps != "" {
			told, what := s.follow(parse(*steps))
			fmt.Println(strings.Join(told, "\n"))
			fmt.Println("found:", what)
			return
		}
		began := time.Now()
		r := (&search{scope: s, deep: *deep, limit: *limit}).run()
		took := time.Since(began)
		fmt.Printf("%s: %d states, %d steps, depth %d, whole %v, gets on %v, %v, %.0f steps/s\n",
			s.Title, r.states, r.edges, r.depth, r.whole, r.lives, took.Round(time.Millisecond), float64(r.edges)/took.Seconds())
		if r.last != nil {
			fmt.Printf("not whole: -scope %q -way %s\n", s.Title, text(r.last))
		}
		if r.found != nil {
			bad = true
			told, _ := s.follow(r.found.way)
			fmt.Printf("found: %s\n%s\n-scope %q -way %s\n", r.found.what, strings.Join(told, "\n"), s.Title, text(r.found.way))
		}
	}
	if bad {
		os.Exit(1)
	}
}

// walkAll walks through the large worlds, and returns the status of the program.
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
				fmt.Printf("found: %s\n%s\n-scope %q -walks 1 -seed %d\n", bad, strings.Join(told, "\n"), s.Title, seed)
				status = 1
				break
			}
		}
		fmt.Printf("%s: %d steps, %.0f steps/s\n", s.Title, total, float64(total)/time.Since(began).Seconds())
	}
	return status
}

func parse(text string) (w way) {
	for one := range strings.SplitSeq(text, ",") {
		n, _ := strconv.Atoi(one)
		w = append(w, n)
	}
	return w
}

func text(w way) string {
	var all []string
	for _, n := range w {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ",")
}
