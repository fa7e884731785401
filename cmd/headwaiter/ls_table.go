package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lease"
)

// table is rows of cells; the first row is the head.
type table [][]string

// lines are the rows with their cells below each other.
func (t table) lines() (lines []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cells := range t {
		for i, cell := range cells {
			cells[i] = shown(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // To memory.
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// write prints the table. On a terminal a line does not go on in the next.
func (t table) write(out io.Writer) error {
	width := 0
	if onTerminal(out) {
		if w, _, err := term.GetSize(int(out.(*os.File).Fd())); err == nil {
			width = w
		}
	}
	var b strings.Builder
	for _, line := range t.lines() {
		if width > 0 {
			line = tty.Clip(line, width)
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// ago is a span as people read it at night: with two units at most.
func ago(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return strings.ReplaceAll(tty.Short(d), " ", "")
}

// roll is what is known of clients: of each its name@host#pid, from anything that it holds or waits for.
type roll map[string]string

func newRoll() roll { return roll{} }

// rolled is how many clients a roll knows at most. A watch of days sees many.
const rolled = 10_000

// read takes from an inspection what it says of clients.
func (r roll) read(i lease.Info) {
	for _, h := range i.Holders {
		r.note(h.Client, h.Who)
	}
	for _, w := range i.Queue {
		r.note(w.Client, w.Who)
	}
}

func (r roll) note(client, who string) {
	if who == "" {
		return
	}
	if len(r) >= rolled {
		clear(r)
	}
	r[client] = who
}

// of names a holder: by its client, if nothing else is known of it.
func (r roll) of(h lease.Holder) string {
	if who := r.who(h); who != "" {
		return who
	}
	return "client " + h.Client
}

// who is name@host#pid of a holder, or empty.
func (r roll) who(h lease.Holder) string {
	if h.Who != "" {
		return h.Who
	}
	return r[h.Client]
}

// parts are the name, the host and the process of who a client is.
func parts(who string) (name, host string, pid int) {
	name, rest, _ := strings.Cut(who, "@")
	host, number, _ := strings.Cut(rest, "#")
	_, _ = fmt.Sscan(number, &pid)
	return name, host, pid
}
