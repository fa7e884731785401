package main

import (
	"fmt"
	"io"
	"time"
)

// view shows the board to people.
type view interface {
	happened(line string)
	draw(b *board, now time.Time)
	close()
}

// newView redraws a screen on a terminal and writes a plain log anywhere else.
func newView(out io.Writer) view {
	if on, ok := screenOn(out); ok {
		return screenView{on}
	}
	return &logView{out}
}

// logView writes a line for each thing that happened.
type logView struct{ out io.Writer }

func (v *logView) happened(line string)   { fmt.Fprintln(v.out, escaped(line)) }
func (v *logView) draw(*board, time.Time) {}
func (v *logView) close()                 {}

// screenView draws the board.
type screenView struct{ *screen }

func (v screenView) happened(string) {} // The next drawing has it.

func (v screenView) draw(b *board, now time.Time) {
	v.screen.draw(func(height int) []row { return render(b, now, height) })
}

func (v screenView) close() {
	v.screen.close()
	_, _ = io.WriteString(v.file, "\n")
}

// render makes the screen out of the board: a head, a line for each process, and as many of the latest
// lines of the log as there is room for.
func render(b *board, now time.Time, height int) []row {
	rows := []row{
		{fmt.Sprintf("%s   %.1f s", b.title, max(0, now.Sub(b.started).Seconds())), bold},
		{},
		{fmt.Sprintf("   %-8s %-22s %-18s %-10s %s", "pid", "state", "token", "waited", "grants"), dim},
	}
	place := map[string]int{}
	for i, s := range b.waiting() {
		place[s.name] = i + 1
	}
	for _, s := range b.seats {
		rows = append(rows, s.render(place[s.name], now))
	}
	rows = append(rows, row{})
	room := max(0, min(10, height-len(rows)))
	lines := b.lines[max(0, len(b.lines)-room):]
	for _, line := range lines {
		rows = append(rows, row{line, dim})
	}
	for range room - len(lines) { // A screen of one height does not jump.
		rows = append(rows, row{})
	}
	return rows[:min(len(rows), max(height, 1))]
}

// render makes a process's line, given its place in the queue.
func (s *seat) render(place int, now time.Time) row {
	since := now.Sub(s.since)
	what, style, token, waited := state(s.kind), dim, "", ""
	if s.grants > 0 {
		token, waited = fmt.Sprint(s.token), short(s.waited)
	}
	switch {
	case s.note != "":
		what, style = s.note, red
		if s.until.After(now) {
			what = "killed; lease " + short(s.until.Sub(now))
		}
	case s.kind == kindCalled:
		what, style = fmt.Sprintf("waits, place %d", place), yellow
		token, waited = "", short(since)
	case s.kind == kindHeld:
		what, style = fmt.Sprintf("HOLDS for %s", short(since)), green
	}
	return row{fmt.Sprintf("%s  %-8d %-22s %-18s %-10s %6d", s.name, s.pid, what, token, waited, s.grants), style}
}
