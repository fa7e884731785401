package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// details tell of a name what there is to know.
func details(n inspect.Listed, value *string, who roll) []string {
	i := n.Info
	lines := []string{line("%s %s", n.Kind, n.Name)}
	fact := func(label, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s %s", label, line(format, args...)))
	}
	switch {
	case n.Kind == lua.Countdown.Kind || n.Kind == lua.Barrier.Kind:
		fact("state", "%s", gathering(n))
	case n.Kind == lua.Semaphore.Kind:
		fact("permits", "%d of %d held", i.Used, i.Limit)
	case n.Kind == lua.RWLock.Kind && i.Held && i.Holder.Permits == 1:
		fact("readers", "%d", i.Used)
	case n.Kind == lua.RWLock.Kind && i.Held:
		fact("writer", "1")
	}
	if !i.Held && i.State == "" {
		fact("holder", "none, the last token was %d", i.Token)
	}
	if value != nil {
		fact("value", "%s", strconv.Quote(*value))
	}
	if i.Held && len(i.Holders) == 1 && n.Kind != lua.Barrier.Kind {
		lines = append(lines, heldBy(n, who)...)
	} else if i.Held {
		lines = append(lines, indent(holders(n, who).lines())...)
	}
	if i.State == "" || n.Kind == lua.Countdown.Kind {
		fact("waiting", "%d", i.Waiting)
	}
	if len(i.Queue) > 0 {
		lines = append(lines, indent(waiters(i, who).lines())...)
		if more := i.Waiting - len(i.Queue); more > 0 {
			lines = append(lines, fmt.Sprintf("    … and %d more", more))
		}
	}
	if len(i.Suspects) > 0 {
		fact("suspects", "%s: they let a lease run out, and are passed over until they are heard of", strings.Join(i.Suspects, ", "))
	}
	return lines
}

// heldBy tells of the one who holds.
func heldBy(n inspect.Listed, who roll) (lines []string) {
	h := n.Info.Holder
	fact := func(label, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s %s", label, line(format, args...)))
	}
	if known := who.who(h); known != "" {
		name, host, pid := parts(known)
		fact("holder", "%s on host %s, process %d", name, host, pid)
	} else {
		fact("holder", "not known")
	}
	fact("client", "%s", h.Client)
	fact("since", "%s", ago(time.Since(h.Since)))
	fact("lease", "%s", leaseLeft(h))
	fact("token", "%d", h.Token)
	if h.Entries > 1 {
		fact("entered", "%d times", h.Entries)
	}
	return lines
}

func leaseLeft(h lease.Holder) string {
	if h.Left <= 0 {
		return fmt.Sprintf("run out %s ago: free for whoever asks next", ago(-h.Left))
	}
	return ago(h.Left) + " left, unless it is renewed"
}

// holders are a table of several that hold, or of the parties at a barrier.
func holders(n inspect.Listed, who roll) table {
	t := table{{"HOLDER", "CLIENT", "PERMITS", "SINCE", "LEASE LEFT", "TOKEN"}}
	if n.Kind == lua.Barrier.Kind {
		t = table{{"PARTY", "CLIENT", "SINCE", "LEASE LEFT"}}
	}
	for _, h := range n.Info.Holders {
		cells := []string{orDash(who.who(h)), h.Client, fmt.Sprint(h.Permits), ago(time.Since(h.Since)), ago(h.Left), fmt.Sprint(h.Token)}
		if n.Kind == lua.Barrier.Kind {
			cells = []string{cells[0], cells[1], cells[3], cells[4]}
		}
		t = append(t, cells)
	}
	return t
}

// waiters are a table of the queue.
func waiters(i lease.Info, who roll) table {
	t := table{{"PLACE", "WAITED", "CLIENT"}}
	known := false
	for place, w := range i.Queue {
		t = append(t, []string{fmt.Sprint(place + 1), ago(w.Wait), w.Client, orDash(who[w.Client])})
		known = known || who[w.Client] != ""
	}
	if known {
		t[0] = append(t[0], "KNOWN AS")
		return t
	}
	for row := range t[1:] {
		t[row+1] = t[row+1][:3]
	}
	return t
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func indent(lines []string) (indented []string) {
	for _, line := range lines {
		indented = append(indented, "    "+line)
	}
	return indented
}
