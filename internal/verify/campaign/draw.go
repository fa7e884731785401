package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// Of a picture: its width, the room for names at the left and above, and the height of a row.
const (
	wide, left, top, row = 1000, 170, 40, 22
	// least is how much of a history is drawn at least.
	least = 400 * time.Millisecond
)

// The colours of what a worker does, and how wide the name of a fault is.
const waiting, holding, releasing, room = "#cfe0f3", "#17508f", "#8db4de", 130

// titled is the name of a worker for readers.
func titled(worker string) string {
	if parts := strings.SplitN(worker, ".", 3); len(parts) == 3 {
		return fmt.Sprintf("process %s, client %s", parts[0], parts[1])
	}
	return worker
}

// drawn is the history to draw: the lock with most holds, and from when to when: around the fault after which it took
// longest until somebody held.
func (s story) drawn() (h *check.History, from, to time.Duration) {
	h = slices.MaxFunc(s.histories, func(a, b *check.History) int {
		if (a.Permits == 1) != (b.Permits == 1) {
			return int(b.Permits - a.Permits)
		}
		return len(a.Holds) - len(b.Holds)
	})
	var got []time.Duration
	for _, x := range h.Holds {
		got = append(got, x.Got)
	}
	slices.Sort(got)
	from, gap := got[0], time.Duration(0)
	for _, f := range s.faults {
		at := time.Duration(f.At)
		if i, _ := slices.BinarySearch(got, at); i > 0 && i < len(got) && got[i]-at > gap {
			from, gap = at, got[i]-at
		}
	}
	shown := max(least, gap*5/4)
	return h, from - shown/8, from + shown*7/8
}

// draw draws who waited, who held and what happened.
func (s story) draw() []byte {
	h, from, to := s.drawn()
	scale := (wide - left - 40) / float64(to-from)
	x := func(at time.Duration) float64 {
		at = min(max(at, from), to)
		return left + float64(at-from)*scale
	}
	high := top + len(h.Workers)*row + 52
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", wide, high)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", wide, high)
	for i, w := range h.Workers {
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`+"\n", top+i*row+15, html.EscapeString(titled(w)))
	}
	bar := func(lane int, begin, end time.Duration, colour, what string) {
		if end > from && begin < to {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`+"\n",
				x(begin), top+lane*row+3, max(0.5, x(end)-x(begin)), row-6, colour, what)
		}
	}
	for _, d := range h.Holds {
		bar(d.Lane, d.Called, d.Got, waiting, fmt.Sprintf("waits %v", d.Got-d.Called))
		bar(d.Lane, d.Got, d.Releasing, holding, fmt.Sprintf("holds %v with token %d", d.Releasing-d.Got, d.Token))
		if d.Released != judge.Never {
			bar(d.Lane, d.Releasing, d.Released, releasing, fmt.Sprintf("releases in %v", d.Released-d.Releasing))
		}
	}
	told := map[string]float64{}
	last, level := -1000.0, 0
	for _, f := range s.faults {
		at := time.Duration(f.At)
		if at < from || at > to {
			continue
		}
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#c0271a" stroke-width="1.5"/>`+"\n", x(at), x(at), top-2, top+len(h.Workers)*row)
		if before, ok := told[f.Fault]; ok && x(at) < before+room {
			continue // Its name is there.
		}
		if level++; x(at) > last+room || level > 2 {
			level = 0
		}
		last = x(at)
		told[f.Fault] = last
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#c0271a">%s</text>`+"\n", min(last, wide-room), top-6-level*12, html.EscapeString(f.Fault))
	}
	step := 100 * time.Millisecond
	if to-from > 10*step {
		step *= 5
	}
	for t := time.Duration(0); t <= to-from; t += step {
		at := x(from + t)
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#999"/>`+"\n", at, at, high-52, high-46)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%d ms</text>`+"\n", at, high-32, t.Milliseconds())
	}
	for i, k := range []struct{ colour, what string }{{waiting, "waits"}, {holding, "holds, and is certain of it"}, {releasing, "releases"}, {"#c0271a", "a fault takes effect"}} {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="10" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", left+i*200, high-15, k.colour, left+20+i*200, high-6, k.what)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
