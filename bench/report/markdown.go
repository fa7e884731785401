package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

const (
	// head is what a page says before any figure; turns and floored say how it was measured.
	head  = "# %s; change nothing here. %s The **cycle** floor is a `SET NX PX` and a compare-and-delete by a script. The **message** floor is a message that a script publishes and a subscriber answers. A client is one instance of a library with its own connections. [bench/doc.go](%s) has the works and the method.\n\n"
	turns = "Two locks run in turn, in rounds. Each round has new clients, and a floor before and after. A figure is the median of the ratios within each of at least seven rounds, with its 95 % interval. " +
		"Rates are of one machine and one hour: do not compare them with those of another page."
	floored = "A slice of each work stands between two floors, which are the least that the same server and connections need. " +
		"A figure is the ratio to the floor within a round. Rates are of one machine and one hour: do not compare them with those of another page."
	source = "https://github.com/headwaiter/headwaiter/blob/main/bench/doc.go"
)

// Markdown writes the report of a run, with all sections. Pictures are linked where a chart has one in the folder of that
// name; none if it is empty.
func Markdown(out io.Writer, r bench.Report, pictures string) error {
	return markdown(out, r, Sections(r), pictures, source)
}

// Page writes the page of the documentation: the sections that compare locks.
func Page(out io.Writer, r bench.Report, pictures string) error {
	if err := markdown(out, r, paged(r), pictures, "../bench/doc.go"); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\nMore of a run, such as latency, commands and bytes, is in `bench-results/report.md` after `make bench`.\n")
	return err
}

// paged are the sections of the page. Of the locks it describes those that it names.
func paged(r bench.Report) []Section {
	all := slices.DeleteFunc(Sections(r), func(s Section) bool { return s.Detail })
	named := map[string]bool{Own: true}
	for _, s := range all {
		for _, row := range s.Table.Rows {
			for _, cell := range row {
				named[cell] = named[cell] || s.Title != locksTitle
			}
		}
	}
	for i, s := range all {
		if s.Drawn {
			all[i].Table = Table{}
		}
		if s.Title == locksTitle {
			all[i].Table.Rows = slices.DeleteFunc(s.Table.Rows, func(row []string) bool { return !named[row[0]] })
		}
	}
	return all
}

// Paged are the charts of the page.
func Paged(r bench.Report) []Chart {
	shown := map[string]bool{}
	for _, s := range paged(r) {
		for _, id := range s.Charts {
			shown[id] = true
		}
	}
	return slices.DeleteFunc(Charts(r), func(c Chart) bool { return !shown[c.ID] })
}

func markdown(out io.Writer, r bench.Report, sections []Section, pictures, method string) error {
	var b strings.Builder
	how := floored
	if len(r.Compared) > 0 {
		how = turns
	}
	title := "Benchmarks\n\nFor sceptics who ask how fast the lock is, and next to which others. Written by the benchmark (`make bench`)"
	if len((view{r}).linked()) > 0 {
		title = "Over a network\n\nFor who chooses a lock: what each needs of the way between client and server. Written by the benchmark (`make network`)"
	}
	fmt.Fprintf(&b, head, title, how, method)
	for _, fact := range Facts(r.Environment) {
		fmt.Fprintf(&b, "- %s\n", fact)
	}
	charts := map[string]Chart{}
	for _, c := range Charts(r) {
		charts[c.ID] = c
	}
	note := "" // Charts next to each other have it once.
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		for _, text := range s.Text {
			fmt.Fprintf(&b, "%s\n\n", text)
		}
		for _, id := range s.Charts {
			if c, ok := charts[id]; ok && pictures != "" {
				fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", c.Title, pictures, c.ID)
				if c.Note != note {
					fmt.Fprintf(&b, "%s\n\n", c.Note)
				}
				note = c.Note
			}
		}
		if len(s.Table.Rows) > 0 {
			markdownTable(&b, s.Table)
		}
	}
	// A section without a table ends in a blank line, and the next begins with one.
	if _, err := io.WriteString(out, strings.ReplaceAll(b.String(), "\n\n\n", "\n\n")); err != nil {
		return fmt.Errorf("report: markdown: %w", err)
	}
	return nil
}

// table is a table alone.
func table(t Table) string {
	var b strings.Builder
	markdownTable(&b, t)
	return b.String()
}

func markdownTable(b *strings.Builder, t Table) {
	line := func(cells []string) {
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	line(t.Heads)
	rule := make([]string, len(t.Heads))
	for i := range rule {
		rule[i] = "---:"
		if i == 0 || t.Heads[i] == "work" || t.Heads[i] == "lock" || strings.HasPrefix(t.Heads[i], "wh") {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
}

// MarkdownFile writes the report of a run into a file.
func MarkdownFile(name string, r bench.Report, pictures string) error {
	return write(name, func(out *os.File) error { return Markdown(out, r, pictures) })
}

// PageFile writes the page of the documentation into a file.
func PageFile(name string, r bench.Report, pictures string) error {
	return write(name, func(out *os.File) error { return Page(out, r, pictures) })
}
