package main

import (
	"fmt"
	"io"
	"time"
)

// stage is where a scene is shown.
type stage interface {
	draw(s *scene, now time.Time)
	close()
}

// newStage draws a screen on a terminal and writes lines anywhere else.
func newStage(out io.Writer) stage {
	if on, ok := screenOn(out); ok {
		return screenStage{on}
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
	text := s.state()
	if s.hands() {
		text += "; hand-offs " + s.handOffs()
	}
	if s.trouble != "" {
		text = "no answer: " + s.trouble
	}
	fmt.Fprintln(v.out, line("%s %s %s %s", now.Format("2006-01-02T15:04:05.000Z07:00"), s.kind, s.name, text))
}

func (v *lineStage) close() {}

// screenStage draws the scene.
type screenStage struct{ *screen }

func (v screenStage) draw(s *scene, now time.Time) {
	v.screen.draw(func(height int) []row { return s.rows(now, height) })
}

// rows are the scene as a screen of a height.
func (s *scene) rows(now time.Time, height int) []row {
	rows := []row{{line("%s %s   %s   watched for %s", s.kind, s.name, s.redis, ago(now.Sub(s.began))), bold}}
	if s.trouble != "" {
		rows = append(rows, row{line("no answer, what follows is %s old: %s", ago(now.Sub(s.seen)), s.trouble), red})
	}
	rows = append(rows, row{})
	fact := func(style, label, format string, args ...any) {
		rows = append(rows, row{fmt.Sprintf("%-10s %s", label, line(format, args...)), style})
	}
	if s.hands() {
		fact("", "hand-offs", "%s", s.handOffs())
	}
	switch {
	case s.info.State != "":
		fact("", "state", "%s", summary(s.listed(), s.who))
	case s.info.Held:
		h := s.info.Holder
		fact(green, "held by", "%s", summary(s.listed(), s.who))
		fact("", "client", "%s", h.Client)
		fact("", "since", "%s", ago(time.Since(h.Since)))
		fact("", "lease", "%s", leaseLeft(h))
		fact("", "token", "%d", h.Token)
	default:
		fact(dim, "held by", "nobody")
		for range 4 { // The rest stays where it is.
			rows = append(rows, row{})
		}
	}
	fact(waitStyle(s.info.Waiting), "waiting", "%d", s.info.Waiting)
	if len(s.info.Queue) > 0 {
		for i, line := range waiters(s.info, s.who).lines() {
			style := ""
			if i == 0 {
				style = dim
			}
			rows = append(rows, row{"  " + line, style})
		}
	}
	if height = max(height, 1); len(rows) > height {
		hidden := len(rows) - height + 1
		rows = append(rows[:height-1], row{fmt.Sprintf("  … %d more lines: make the window larger", hidden), dim})
	}
	return rows
}

func waitStyle(waiting int) string {
	if waiting > 0 {
		return yellow
	}
	return dim
}
