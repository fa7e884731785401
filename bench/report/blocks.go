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
			if known[parts[2]] == "" {
				return whole // It is of a run of another kind.
			}
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

// blocks are what pages can have of a run, by name; empty what another kind of run fills.
func blocks(r bench.Report) map[string]string {
	v := view{r}
	found := map[string]string{"engines": "", "reached": "", "network": "", "redlock": "", "deaths": ""}
	if len(v.far()) > 0 {
		found["network"] = v.overview()
		return found
	}
	found["engines"], found["reached"] = v.engines(), v.reached()
	found["deaths"] = v.deaths()
	source := v.source()
	if len(v.rivals()) == 0 {
		source = v.sourceOf("bench-redlock")
	}
	if nodes := v.nodes(); len(nodes.Table.Rows) > 0 {
		found["redlock"] = fmt.Sprintf("%s. %s\n\n%s", source, strings.Join(nodes.Text, " "), table(nodes.Table))
	}
	return found
}

// source is the run in half a sentence.
func (v view) source() string { return v.sourceOf("bench") }

// sourceOf is the same for a run of another target.
func (v view) sourceOf(target string) string {
	e := v.Environment
	return fmt.Sprintf("One run of `make %s`, %s, commit %s, %d cores", target, e.At.Format("2 January 2006"), or(e.Commit, "unknown"), e.CPUs)
}

// engines are the pairs that help to choose an engine: the lock on Redis against the one on several masters and against
// what other engines offer, and the adapters against what they replace.
func (v view) engines() string {
	adapter := func(name string) bool { return strings.HasPrefix(name, Own+"-") && !ours(name) }
	chosen := map[string]bool{}
	for _, c := range v.Compared {
		if adapter(c.Against) {
			chosen[c.Contender] = true
		}
	}
	titles := map[string]string{Own: "`fairlock`"}
	for _, entry := range v.Environment.Contenders {
		if strings.HasPrefix(entry.Name, Own+"-") {
			titles[entry.Name] = strings.TrimSuffix(entry.About, " locks")
			if strings.HasPrefix(entry.Name, Own+"-"+bench.KindRedlock) {
				chosen[entry.Name] = true
			}
		}
	}
	var first, adapters [][]string
	rows := map[[2]string][]string{}
	for _, c := range v.Compared {
		column := map[string]int{"W1": 2, "W4 C=8": 3}[c.AgainstWork.String()]
		if column == 0 || !adapter(c.Against) && (c.Against != Own || !chosen[c.Contender]) {
			continue
		}
		key := [2]string{c.Against, c.Contender}
		if rows[key] == nil {
			rows[key] = []string{or(titles[c.Against], c.Against), or(titles[c.Contender], c.Contender), none, none}
			if c.Against == Own {
				first = append(first, rows[key])
			} else {
				adapters = append(adapters, rows[key])
			}
		}
		rows[key][column] = Times(c.Speed())
	}
	t := Table{Heads: []string{"lock", "times as fast as", "cycles", "hand-offs"}, Rows: append(first, adapters...)}
	return fmt.Sprintf("%s:\n\n%s", v.source(), table(t))
}
