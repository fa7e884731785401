package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// What a terminal understands.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	toLineEnd  = "\x1b[K"
	toEnd      = "\x1b[J"
	reset      = "\x1b[0m"

	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[1;32m"
	yellow = "\x1b[33m"
)

// row is a line of the screen.
type row struct{ text, style string }

// screen draws in the same place of a terminal again and again, and leaves the last drawing behind.
type screen struct {
	file  *os.File
	plain bool // without colours
	drawn int  // lines of the last drawing
}

// screenOn is the screen of a terminal, or false for anything else.
func screenOn(out io.Writer) (*screen, bool) {
	if !onTerminal(out) {
		return nil, false
	}
	return &screen{file: out.(*os.File), plain: os.Getenv("NO_COLOR") != ""}, true
}

// draw writes one frame over the last one, in one write so that it does not flicker. It asks for as many rows as there
// is room for.
func (s *screen) draw(render func(height int) []row) {
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	rows := render(height - 1)
	_, _ = io.WriteString(s.file, s.frame(rows, width, height)) // A terminal that is gone has nobody before it.
	s.drawn = len(rows)
}

// frame is what draws rows over the last drawing.
func (s *screen) frame(rows []row, width, height int) string {
	var frame strings.Builder
	frame.WriteString(hideCursor)
	if up := min(s.drawn, height-1); up > 0 {
		fmt.Fprintf(&frame, "\x1b[%dA", up)
	}
	frame.WriteString("\r")
	for _, r := range rows {
		text := clip(escaped(r.text), width-1)
		if r.style != "" && !s.plain && text != "" {
			text = r.style + text + reset
		}
		frame.WriteString(text + toLineEnd + "\n")
	}
	frame.WriteString(toEnd)
	return frame.String()
}

func (s *screen) close() { _, _ = io.WriteString(s.file, showCursor) }

// clip cuts a text to a width. It takes all that may be two columns wide for so wide: a line that went on in the next
// would have a row that begins as its text likes.
func clip(text string, width int) string {
	const wide = 0x1100 // and above, if anywhere
	for i, r := range text {
		width--
		if r >= wide {
			width--
		}
		if width < 0 {
			return text[:i]
		}
	}
	return text
}
