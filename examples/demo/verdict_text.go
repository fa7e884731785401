package main

import (
	"fmt"
	"io"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// printed is how many faults of a kind are spelled out; the others are counted.
const printed = 5

// write prints the verdict for people.
func (v verdict) write(w io.Writer) {
	fmt.Fprintln(w, "verdict")
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "  %-18s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("grants", "%d, to %d processes", v.grants, v.processes)
	v.faults(w, "overlaps", "none", v.overlaps)
	inverted := "none"
	if len(v.late) > 0 {
		inverted = "none that counts; one call may have been held up on its way: " + v.late[0]
	}
	v.faults(w, "order inversions", inverted, v.inversions)
	v.faults(w, "tokens", fmt.Sprintf("rising, from %d to %d", v.first, v.last), v.falls)
	v.faults(w, "fenced counter", fmt.Sprintf("all %d writes kept", v.writes), v.counter)
	line("largest wait", "%s", tty.Short(v.largestWait))
	if n := len(v.handOffs); n > 0 {
		line("hand-off", "median %s, largest %s", tty.Short(v.handOffs[n/2]), tty.Short(v.handOffs[n-1]))
	}
	for _, d := range v.deaths {
		label, text := d.text()
		line(label, "%s", text)
	}
	if len(v.costly) > 0 {
		v.faults(w, "cost of the dead", "", v.costly)
	}
	if len(v.complaints) > 0 {
		v.faults(w, "also", "", v.complaints)
	}
	if v.ok() {
		line("result", "ok")
	} else {
		line("result", "FAULTY")
	}
}

// faults prints the faults of a kind, or what there is to say without any.
func (v verdict) faults(w io.Writer, label, none string, found []string) {
	if len(found) == 0 {
		fmt.Fprintf(w, "  %-18s %s\n", label, none)
		return
	}
	fmt.Fprintf(w, "  %-18s %d FAULTS\n", label, len(found))
	for i, f := range found {
		if i == printed {
			fmt.Fprintf(w, "    … and %d more\n", len(found)-printed)
			break
		}
		fmt.Fprintf(w, "    %s\n", tty.Escaped(f))
	}
}

// text is a death as a line of the verdict.
func (d death) text() (label, text string) {
	switch {
	case d.held && d.by == "":
		return "killed holder", fmt.Sprintf("%s; nobody held after it", d.process)
	case d.held:
		return "killed holder", fmt.Sprintf("%s; %s held %s after the end of its lease", d.process, d.by, tty.Short(d.cost))
	case d.by == "":
		return "killed waiter", fmt.Sprintf("%s; nobody held after it", d.process)
	}
	return "killed waiter", fmt.Sprintf("%s; passed over, %s held %s after the release", d.process, d.by, tty.Short(d.cost))
}
