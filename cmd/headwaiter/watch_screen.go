package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// stage is where a scene is shown.
type stage interface {
	draw(s *scene, now time.Time)
	close()
}

// newStage draws a screen on a terminal and writes lines anywhere else.
func newStage(out io.Writer) stage {
	if onTerminal(out) {
		file := out.(*os.File)
		size := func() (width, height int, err error) { return term.GetSize(int(file.Fd())) }
		return screenStage{&tty.Screen{Out: file, Size: size, Plain: os.Getenv("NO_COLOR") != ""}}
	}
	return &lineStage{out: out}
}

// lineStage writes a line where something has changed.
type lineStage struct {
	out  io.Writer
	last string
}

func (v *lineStage) draw(s *scene, now time.Time) {
	changed := s.changed()
	if changed == v.last {
		return
	}
	v.last = changed
	text := s.state(now)
	if s.hands() {
		text += "; hand-offs " + s.handOffs.String()
	}
	if s.trouble != "" {
		text = "no answer: " + s.trouble
	}
	fmt.Fprintln(v.out, line("%s %s %s %s", now.Format("2006-01-02T15:04:05.000Z07:00"), s.kind, s.name, text))
}

func (v *lineStage) close() {}

// screenStage draws the scene.
type screenStage struct{ *tty.Screen }

func (v screenStage) draw(s *scene, now time.Time) {
	v.Screen.Draw(func(height int) []tty.Row { return s.rows(now, widthOf(v.Out), height) })
}

func (v screenStage) close() { v.Close() }

// rows are the scene as a screen of a height.
func (s *scene) rows(now time.Time, width, height int) []tty.Row {
	rows := []tty.Row{{Text: line("%s %s   %s   watched for %s", s.kind, s.name, s.redis, words.Ago(now.Sub(s.began))), Style: tty.Bold}}
	if s.trouble != "" {
		rows = append(rows, tty.Row{Text: line("no answer, what follows is %s old: %s", words.Ago(now.Sub(s.seen)), s.trouble), Style: tty.Red})
	}
	rows = append(rows, tty.Row{})
	fact := func(style, label, format string, args ...any) {
		rows = append(rows, tty.Row{Text: fmt.Sprintf("%-10s %s", label, line(format, args...)), Style: style})
	}
	if s.hands() {
		fact("", "hand-offs", "%s", s.handOffs.String())
	}
	switch {
	case s.info.State != "":
		fact("", "state", "%s", words.Summary(s.listed(), s.who))
	case s.info.Held:
		h, label := s.info.Holder, "held by"
		if s.rests() {
			label = "taken"
		}
		fact(tty.Green, label, "%s", words.Summary(s.listed(), s.who))
		fact("", "client", "%s", h.Client)
		fact("", "held", "%s", words.Since(h.Since, now))
		fact("", "lease", "%s", leaseLeft(h))
		fact("", "token", "%d", h.Token)
	default:
		fact(tty.Dim, "held by", "nobody")
		for range 4 { // The rest stays where it is.
			rows = append(rows, tty.Row{})
		}
	}
	fact(waitStyle(s.info.Waiting), "waiting", "%d", s.info.Waiting)
	if len(s.info.Queue) > 0 {
		for i, line := range indent("  ", waiters(s.info, s.who, s.seen), width) {
			style := ""
			if i == 0 {
				style = tty.Dim
			}
			rows = append(rows, tty.Row{Text: line, Style: style})
		}
	}
	if height = max(height, 1); len(rows) > height {
		hidden := len(rows) - height + 1
		rows = append(rows[:height-1], tty.Row{Text: fmt.Sprintf("  … %d more lines: make the window larger", hidden), Style: tty.Dim})
	}
	return rows
}

func waitStyle(waiting int) string {
	if waiting > 0 {
		return tty.Yellow
	}
	return tty.Dim
}
