package report

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// block is a part of a page that a run fills: all that stands between its two marks.
var block = regexp.MustCompile(`(?s)(<!-- bench: ([a-z-]+) -->\n)(.*?)(<!-- /bench -->)`)

// Fill writes what a run tells into the blocks of pages, and changes nothing else of them. A page without a block, and a
// block of a name that is not known, is an error, and leaves the pages as they are.
func Fill(r bench.Report, pages ...string) error {
	known := blocks(r)
	filled := make([]string, len(pages))
	for i, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if !block.Match(text) {
			return fmt.Errorf("report: %s has no block for figures: <!-- bench: NAME --> and <!-- /bench -->", page)
		}
		for _, found := range block.FindAllSubmatch(text, -1) {
			if _, ok := known[string(found[2])]; !ok {
				return fmt.Errorf("report: %s: there is no block %q", page, found[2])
			}
		}
		filled[i] = block.ReplaceAllStringFunc(string(text), func(whole string) string {
			parts := block.FindStringSubmatch(whole)
			return parts[1] + known[parts[2]] + parts[4]
		})
	}
	for i, page := range pages {
		if err := os.WriteFile(page, []byte(filled[i]), 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// blocks are what pages can have of a run, by name.
func blocks(r bench.Report) map[string]string {
	v := view{r}
	return map[string]string{"summary": v.summary(), "engines": v.engines(), "reached": v.reached()}
}

// source is the run in half a sentence.
func (v view) source() string {
	e := v.Environment
	return fmt.Sprintf("One run of `make bench`, %s, commit %s, %d cores", e.At.Format("2 January 2006"), or(e.Commit, "unknown"), e.CPUs)
}

// summary says in how many pairs this project's lock is ahead, and where it is not.
func (v view) summary() string {
	ahead, level, behind := 0, 0, []string{}
	for _, c := range v.rivals() {
		if strings.HasPrefix(c.Contender, Own+"-") {
			continue // An adapter of this project.
		}
		switch speed := c.Speed(); {
		case speed.Low > 1:
			ahead++
		case speed.High < 1:
			behind = append(behind, fmt.Sprintf("%s %s in %v", c.Contender, short(speed.Median), c.Work))
		default:
			level++
		}
	}
	text := fmt.Sprintf("%s. In each of %d cells, headwaiter and another lock took turns. headwaiter is ahead in %d and level in %d.",
		v.source(), ahead+level+len(behind), ahead, level)
	if len(behind) > 0 {
		text += fmt.Sprintf(" It is behind in %d, with these shares of the other's speed: %s.", len(behind), strings.Join(behind, ", "))
	}
	return text + "\n"
}

// engines are this project's locks on other engines and on several masters, beside the one on Redis.
func (v view) engines() string {
	t := Table{Heads: []string{"lock", "cycle", "hand-off", "hand-offs: `fairlock` is so many times as fast"}}
	ms := func(perSecond float64) string {
		if perSecond <= 0 {
			return none
		}
		return Short(1e3/perSecond) + " ms"
	}
	const handOff = "W4 C=8"
	first := []string{"`fairlock`", none, none, "1"}
	if r, ok := v.find(Own, "W1"); ok {
		first[1] = ms(r.Figures.Rate)
	}
	if r, ok := v.find(Own, handOff); ok {
		first[2] = ms(r.Figures.Passed)
	}
	t.Rows = append(t.Rows, first)
	for _, entry := range v.Environment.Contenders {
		redlock := strings.HasPrefix(entry.Name, Own+"-"+bench.KindRedlock)
		if !strings.HasPrefix(entry.Name, Own+"-") || ours(entry.Name) && !redlock {
			continue
		}
		row := []string{strings.TrimSuffix(entry.About, " locks"), none, none, none}
		for _, c := range v.Compared {
			if c.Contender != entry.Name {
				continue
			}
			_, other := c.Median(rate)
			switch c.AgainstWork.String() {
			case "W1":
				row[1] = ms(other)
			case handOff:
				row[2], row[3] = ms(other), Times(c.Speed())
			}
		}
		t.Rows = append(t.Rows, row)
	}
	var b strings.Builder
	markdownTable(&b, t)
	return fmt.Sprintf("%s:\n\n%s", v.source(), b.String())
}
