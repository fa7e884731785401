package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// table is rows of cells; the first row is the head.
type table [][]string

// betweenCells is the space between two columns.
const betweenCells = 2

// lines are the rows with their cells below each other. Where there is a width, the widest columns give way to it.
func (t table) lines(width int) (lines []string) {
	for _, cells := range t {
		for i, cell := range cells {
			cells[i] = words.Shown(cell)
		}
	}
	if width > 0 {
		t.fit(width)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, betweenCells, ' ', 0)
	for _, cells := range t {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // To memory.
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if width > 0 {
			line = tty.Clip(line, width) // There may be more columns than it has room for.
		}
		lines = append(lines, line)
	}
	return lines
}

// leastCell is what a cell keeps at the least when it gives way.
const leastCell = 16

// fit shortens the cells of the widest column, again and again, until a row is no wider than that.
func (t table) fit(width int) {
	for {
		all, widest, most := 0, 0, 0
		for column := range t[0] {
			wide := 0
			for _, cells := range t {
				if column < len(cells) {
					wide = max(wide, tty.Width(cells[column]))
				}
			}
			if wide > most {
				widest, most = column, wide
			}
			all += wide + betweenCells
		}
		if all -= betweenCells; all <= width || most <= leastCell {
			return
		}
		room := max(most-(all-width), most*3/4, leastCell)
		for _, cells := range t {
			if widest < len(cells) {
				cells[widest] = middleOut(cells[widest], room)
			}
		}
	}
}

// middleOut shortens a text to room columns. Names differ at their ends more often than in their middles.
func middleOut(text string, room int) string {
	if tty.Width(text) <= room {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && tty.Width(string(runes))+tty.Width("…") > room {
		runes = slices.Delete(runes, len(runes)/2, len(runes)/2+1)
	}
	return string(slices.Insert(runes, (len(runes)+1)/2, '…'))
}

// widthOf is how wide a line may be: 0 where it is no terminal, and may be as wide as it is.
func widthOf(out io.Writer) int {
	if onTerminal(out) {
		if w, _, err := term.GetSize(int(out.(*os.File).Fd())); err == nil {
			return w
		}
	}
	return 0
}

// write prints the table. On a terminal a line does not go on in the next.
func (t table) write(out io.Writer) error {
	_, err := io.WriteString(out, strings.Join(t.lines(widthOf(out)), "\n")+"\n")
	return err
}
