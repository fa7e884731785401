package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// view shows the board to people.
type view interface {
	happened(line string)
	draw(b *board, now time.Time)
	close()
}

// newView redraws a screen on a terminal and writes a plain log anywhere else.
func newView(out io.Writer) view {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return &logView{out}
	}
	size := func() (width, height int, err error) { return term.GetSize(int(file.Fd())) }
	return screenView{&tty.Screen{Out: file, Size: size, Plain: os.Getenv("NO_COLOR") != ""}}
}

// logView writes a line for each thing that happened.
type logView struct{ out io.Writer }

func (v *logView) happened(line string)   { fmt.Fprintln(v.out, tty.Escaped(line)) }
func (v *logView) draw(*board, time.Time) {}
func (v *logView) close()                 {}

// screenView draws the board.
type screenView struct{ *tty.Screen }

func (v screenView) happened(string) {} // The next drawing has it.

func (v screenView) draw(b *board, now time.Time) {
	v.Draw(func(height int) []tty.Row { return render(b, now, height) })
}

func (v screenView) close() {
	v.Close()
	_, _ = io.WriteString(v.Out, "\n")
}

// render makes the screen out of the board: a head, a line for each process, and as many of the latest
// lines of the log as there is room for.
func render(b *board, now time.Time, height int) []tty.Row {
	rows := []tty.Row{
		{Text: fmt.Sprintf("%s   %.1f s", b.title, max(0, now.Sub(b.started).Seconds())), Style: tty.Bold},
		{},
		{Text: fmt.Sprintf("   %-8s %-22s %-18s %-10s %s", "pid", "state", "token", "waited", "grants"), Style: tty.Dim},
	}
	place := map[string]int{}
	for i, s := range b.waiting() {
		place[s.name] = i + 1
	}
	for _, s := range b.seats {
		rows = append(rows, s.render(place[s.name], now))
	}
	rows = append(rows, tty.Row{})
	room := max(0, min(10, height-len(rows)))
	lines := b.lines[max(0, len(b.lines)-room):]
	for _, line := range lines {
		rows = append(rows, tty.Row{Text: line, Style: tty.Dim})
	}
	for range room - len(lines) { // A screen of one height does not jump.
		rows = append(rows, tty.Row{})
	}
	return rows[:min(len(rows), max(height, 1))]
}

// render makes a process's line, given its place in the queue.
func (s *seat) render(place int, now time.Time) tty.Row {
	since := now.Sub(s.since)
	what, style, token, waited := state(s.kind), tty.Dim, "", ""
	if s.grants > 0 {
		token, waited = fmt.Sprint(s.token), tty.Short(s.waited)
	}
	switch {
	case s.note != "":
		what, style = s.note, tty.Red
		if s.until.After(now) {
			what = "killed; lease " + tty.Short(s.until.Sub(now))
		}
	case s.kind == kindCalled:
		what, style = fmt.Sprintf("waits, place %d", place), tty.Yellow
		token, waited = "", tty.Short(since)
	case s.kind == kindHeld:
		what, style = fmt.Sprintf("HOLDS for %s", tty.Short(since)), tty.Green
	}
	text := fmt.Sprintf("%s  %-8d %-22s %-18s %-10s %6d", s.name, s.pid, what, token, waited, s.grants)
	return tty.Row{Text: text, Style: style}
}
