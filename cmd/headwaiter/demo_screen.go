package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
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
	return &screenView{file: file, plain: os.Getenv("NO_COLOR") != ""}
}

// logView writes a line for each thing that happened.
type logView struct{ out io.Writer }

func (v *logView) happened(line string)   { fmt.Fprintln(v.out, line) }
func (v *logView) draw(*board, time.Time) {}
func (v *logView) close()                 {}

// screenView draws the board again and again in the same place.
type screenView struct {
	file  *os.File
	plain bool // without colours
	drawn int  // lines of the last drawing
}

// What a terminal understands.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	toLineEnd  = "\x1b[K"
	toEnd      = "\x1b[J"
	reset      = "\x1b[0m"
)

func (v *screenView) happened(string) {} // The next drawing has it.

// draw writes one frame over the last one, in one write so that it does not flicker.
func (v *screenView) draw(b *board, now time.Time) {
	width, height, err := term.GetSize(int(v.file.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	rows := render(b, now, height-1)
	var frame strings.Builder
	frame.WriteString(hideCursor)
	if up := min(v.drawn, height-1); up > 0 {
		fmt.Fprintf(&frame, "\x1b[%dA", up)
	}
	frame.WriteString("\r")
	for _, r := range rows {
		text := clip(r.text, width-1)
		if r.style != "" && !v.plain {
			text = r.style + text + reset
		}
		frame.WriteString(text + toLineEnd + "\n")
	}
	frame.WriteString(toEnd)
	_, _ = io.WriteString(v.file, frame.String())
	v.drawn = len(rows)
}

func (v *screenView) close() { _, _ = io.WriteString(v.file, showCursor+"\n") }

// row is a line of the screen.
type row struct{ text, style string }

const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[1;32m"
	yellow = "\x1b[33m"
)

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

// clip cuts a text to a width.
func clip(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:max(0, width)])
	}
	return text
}
