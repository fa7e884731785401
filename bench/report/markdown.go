package report

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

const (
	// head is what the page says before any figure; turns and floored say how it was measured.
	head  = "# %s; change nothing here. %s The **cycle** floor is a `SET NX PX` and a compare-and-delete by a script, the **message** floor a message that a script publishes and a subscriber answers. A client is one instance of a library with connections of its own; the works are told in bench/doc.go.\n\n"
	turns = "Two locks run in turn, in rounds: a floor, headwaiter, the other, the other, headwaiter, a floor; in the next round the other is first and last. " +
		"The rounds of a pair are spread over the run, each with new clients and another Redis process (Redisson's Java machine stays, as it takes seconds to become fast). " +
		"What counts is the ratio within a round, since the speed of a machine changes from one round to the next; a figure is the median of at least seven such ratios with its 95 % interval. " +
		"Rates are of the same rounds, and of one machine and one hour: do not compare them with those of another page."
	floored = "A slice of each work stands between two floors, which are the least that the same server and connections need. " +
		"What counts is the ratio to the floor within a round; rates are of one machine and one hour: do not compare them with those of another page."
)

// Markdown writes the page. Pictures are linked where a chart has one in the folder of that name; none if it is empty.
func Markdown(out io.Writer, r bench.Report, pictures string) error {
	var b strings.Builder
	how := floored
	if len(r.Compared) > 0 {
		how = turns
	}
	title := "Benchmarks\n\nWritten by the benchmark (`make bench`)"
	if len((view{r}).linked()) > 0 {
		title = "Over a network\n\nFor who chooses a lock: what each needs of the way between client and server. Written by the benchmark (`make network`)"
	}
	fmt.Fprintf(&b, head, title, how)
	for _, fact := range Facts(r.Environment) {
		fmt.Fprintf(&b, "- %s\n", fact)
	}
	charts := map[string]Chart{}
	for _, c := range Charts(r) {
		charts[c.ID] = c
	}
	for _, s := range Sections(r) {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		for _, text := range s.Text {
			fmt.Fprintf(&b, "%s\n\n", text)
		}
		for _, id := range s.Charts {
			if c, ok := charts[id]; ok && pictures != "" {
				fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n%s\n\n", c.Title, pictures, c.ID, c.Note)
			}
		}
		markdownTable(&b, s.Table)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
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

// MarkdownFile writes the page into a file.
func MarkdownFile(name string, r bench.Report, pictures string) error {
	return write(name, func(out *os.File) error { return Markdown(out, r, pictures) })
}
