package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// board is what the demo shows: who waits, who holds, and what happened last.
type board struct {
	title   string
	started time.Time
	seats   []*seat
	lines   []string // what happened, the newest last
	news    []news   // what is not among the lines yet
}

// news is a line that waits for those that happened before it: what two processes tell comes over two
// pipes, and a hold must not be shown before the release that it followed.
type news struct {
	at   time.Time
	line string
}

// settle moves the news from before a moment to the lines, in the order in which they happened, and
// returns them.
func (b *board) settle(before time.Time) []string {
	slices.SortStableFunc(b.news, func(x, y news) int { return x.at.Compare(y.at) })
	n := 0
	for n < len(b.news) && b.news[n].at.Before(before) {
		b.lines = append(b.lines, b.news[n].line)
		n++
	}
	b.news = b.news[n:]
	return b.lines[len(b.lines)-n:]
}

// seat is the place of one process on the board.
type seat struct {
	name   string
	pid    int
	kind   kind // of its last event
	since  time.Time
	called time.Time
	token  uint64
	waited time.Duration
	until  time.Time // when its lease ends unless renewed
	grants int
	note   string
}

func (b *board) seat(process string) *seat {
	i := slices.IndexFunc(b.seats, func(s *seat) bool { return s.name == process })
	return b.seats[i]
}

// waiting are the processes that wait, in the order of their calls, which is the queue as they know it.
func (b *board) waiting() []*seat {
	queue := slices.DeleteFunc(slices.Clone(b.seats), func(s *seat) bool { return s.kind != kindCalled })
	slices.SortFunc(queue, func(x, y *seat) int { return x.called.Compare(y.called) })
	return queue
}

// holder is the process that holds, nil if none does.
func (b *board) holder() *seat {
	for _, s := range b.seats {
		if s.kind == kindHeld {
			return s
		}
	}
	return nil
}

// add takes an event. Its line, if it is worth one, is among the news.
func (b *board) add(e event) {
	s := b.seat(e.Process)
	if text := b.words(s, e); text != "" {
		line := fmt.Sprintf("%7.3f s  %s  %s", max(0, e.At.Sub(b.started).Seconds()), s.name, text)
		b.news = append(b.news, news{e.At, line})
	}
	switch e.Kind {
	case kindRenewed:
		s.until = e.Deadline
		return
	case kindQueued, kindFreed:
		return // What the process does is the same as before.
	case kindCalled:
		s.called = e.At
	case kindHeld:
		s.grants++
		s.token, s.waited, s.until = e.Token, e.At.Sub(s.called), e.Deadline
	case kindReleased, kindLost:
		s.until = time.Time{}
	case kindKilled:
		s.note = "killed while it " + state(s.kind)
	}
	if s.kind != kindKilled { // What a killed process had said before it died may come after.
		s.kind, s.since = e.Kind, e.At
	}
}

// words says what an event means, before it is on the board.
func (b *board) words(s *seat, e event) string {
	switch e.Kind {
	case kindCalled:
		ahead := len(b.waiting())
		if b.holder() != nil {
			ahead++
		}
		return fmt.Sprintf("calls Lock, %d ahead", ahead)
	case kindHeld:
		return fmt.Sprintf("HOLDS by token %d, waited %s", e.Token, tty.Short(e.At.Sub(s.called)))
	case kindReleased:
		return fmt.Sprintf("releases after %s", tty.Short(e.At.Sub(s.since)))
	case kindLost:
		return "LOST: " + e.Text
	case kindFailed:
		return "FAILED: " + e.Text
	case kindKilled:
		text := fmt.Sprintf("KILLED while it %s (kill -9 %d)", state(s.kind), s.pid)
		if s.kind == kindHeld {
			text += fmt.Sprintf(", its lease ends in %s", tty.Short(s.until.Sub(e.At)))
		}
		return text
	}
	return ""
}

// state is what a process does after an event of this kind.
func state(k kind) string {
	switch k {
	case kindCalled:
		return "waits"
	case kindHeld, kindRenewed:
		return "HOLDS"
	case kindReady, kindReleased:
		return "idles"
	case kindGone:
		return "ended"
	case "":
		return "starts"
	}
	return string(k)
}
