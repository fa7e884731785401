package tty

import (
	"fmt"
	"io"
	"strings"
)

// How a row may look.
const (
	Bold   = "\x1b[1m"
	Dim    = "\x1b[2m"
	Red    = "\x1b[31m"
	Green  = "\x1b[1;32m"
	Yellow = "\x1b[33m"
)

// ShowCursor makes the cursor visible again, which a [Screen] hides.
const ShowCursor = "\x1b[?25h"

const (
	hideCursor = "\x1b[?25l"
	toLineEnd  = "\x1b[K"
	toEnd      = "\x1b[J"
	reset      = "\x1b[0m"
)

// A Row is a line of the screen, and its look.
type Row struct{ Text, Style string }

// Styled is the text of the row, or what is left of it, in its look.
func (r Row) Styled(text string) string {
	if r.Style == "" || text == "" {
		return text
	}
	return r.Style + text + reset
}

// A Screen draws in the same place of a terminal again and again, and leaves the last drawing there.
type Screen struct {
	Out   io.Writer
	Size  func() (width, height int, err error)
	Plain bool // without colours
	drawn int  // lines of the last drawing
}

// Draw writes one frame over the last one, in one write so that it does not flicker. It asks for as many rows as there
// is room for.
func (s *Screen) Draw(render func(height int) []Row) {
	width, height, err := s.Size()
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	rows := render(height - 1)
	_, _ = io.WriteString(s.Out, s.frame(rows, width, height)) // A terminal that is gone has nobody before it.
	s.drawn = len(rows)
}

// frame is what draws rows over the last drawing.
func (s *Screen) frame(rows []Row, width, height int) string {
	var frame strings.Builder
	frame.WriteString(hideCursor)
	if up := min(s.drawn, height-1); up > 0 {
		fmt.Fprintf(&frame, "\x1b[%dA", up)
	}
	frame.WriteString("\r")
	for _, r := range rows {
		text := Clip(Escaped(r.Text), width-1)
		if !s.Plain {
			text = r.Styled(text)
		}
		frame.WriteString(text + toLineEnd + "\n")
	}
	frame.WriteString(toEnd)
	return frame.String()
}

// Close gives the cursor back.
func (s *Screen) Close() { _, _ = io.WriteString(s.Out, ShowCursor) }
