package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// details tell of a name what there is to know. Tables give way to a width, if there is one.
func details(n inspect.Listed, value *string, who words.Roll, width int) []string {
	i := n.Info
	lines := []string{line("%s %s", n.Kind, n.Name)}
	fact := func(label, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s %s", label, line(format, args...)))
	}
	switch {
	case n.Err != nil:
		fact("error", "%s", words.OneLine(n.Err.Error()))
		return lines
	case n.Kind == lua.Countdown.Kind || n.Kind == lua.Barrier.Kind:
		fact("state", "%s", words.Gathering(n))
	case n.Kind == lua.Semaphore.Kind:
		resized := ""
		if i.Stated != 0 && i.Stated != i.Limit {
			resized = fmt.Sprintf(", resized: the newest program states %d", i.Stated)
		}
		fact("permits", "%d of %d held%s", i.Used, i.Limit, resized)
	case n.Kind == lua.RWLock.Kind && i.Held && i.Holder.Permits == 1:
		fact("readers", "%d", i.Used)
	case n.Kind == lua.RWLock.Kind && i.Held:
		fact("writer", "1")
	}
	if !i.Held && i.State == "" {
		fact("holder", "none, the last token was %d", i.Token)
	}
	if p := i.Previous; !p.Orderly() && p.Kind != lease.EndingUnknown {
		fact("previous", "%v: it was not released", p)
	}
	if value != nil {
		fact("value", "%s", strconv.Quote(*value))
	}
	if i.Held && len(i.Holders) == 1 && n.Kind != lua.Barrier.Kind {
		lines = append(lines, heldBy(n, who)...)
	} else if i.Held {
		lines = append(lines, indent("    ", holders(n, who), width)...)
		if more := words.Untold(i); more > 0 && n.Kind == lua.Semaphore.Kind {
			lines = append(lines, fmt.Sprintf("    … and more, with %d of the permits", more))
		} else if more > 0 {
			lines = append(lines, fmt.Sprintf("    … and %d more", more))
		}
	}
	if i.State == "" || n.Kind == lua.Countdown.Kind {
		fact("waiting", "%d", i.Waiting)
	}
	if len(i.Queue) > 0 {
		lines = append(lines, indent("    ", waiters(i, who, time.Now()), width)...)
		if more := i.Waiting - len(i.Queue); more > 0 {
			lines = append(lines, fmt.Sprintf("    … and %d more", more))
		}
	}
	if len(i.Suspects) > 0 {
		fact("suspects", "%s: they let a lease run out, and get nothing until they answer again", strings.Join(i.Suspects, ", "))
	}
	return lines
}

// heldBy tells of the one who holds.
func heldBy(n inspect.Listed, who words.Roll) (lines []string) {
	h := n.Info.Holder
	fact := func(label, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s %s", label, line(format, args...)))
	}
	if known := who.Who(h.Client, h.Who); known != "" {
		name, host, pid := words.Parts(known)
		fact("holder", "%s on host %s, process %d", name, host, pid)
	} else {
		fact("holder", "not known")
	}
	fact("client", "%s", h.Client)
	if as := words.Incarnation(h.Incarnation, time.Now()); as != "" {
		fact("identity", "%s", as)
	}
	if h.InTransit {
		fact("transit", "%s", "handed over by this client, and not adopted yet: it is nobody's")
	}
	if h.Rests {
		fact("taken", "%s", words.Rests(h))
	} else {
		fact("held", "%s", words.Since(h.Since, time.Now()))
		fact("lease", "%s", leaseLeft(h))
	}
	fact("token", "%d", h.Token)
	if h.Idle {
		fact("use", "idle: no call uses it, and its client keeps it for the next one")
	}
	if h.Wants {
		fact("wants", "to be told when somebody waits")
	}
	if h.Entries > 1 {
		fact("entered", "%d times", h.Entries)
	}
	return lines
}

func leaseLeft(h lease.Holder) string {
	if h.Left <= 0 {
		return fmt.Sprintf("run out %s ago: free for whoever asks next", words.Ago(-h.Left))
	}
	if h.InTransit {
		return words.Ago(h.Left) + " left, then the queue is served"
	}
	return words.Ago(h.Left) + " left, unless it is renewed"
}

// holders are a table of several that hold, or of the parties at a barrier.
func holders(n inspect.Listed, who words.Roll) table {
	party := n.Kind == lua.Barrier.Kind
	t, now := table{{"NAME", "HOST", "PROCESS", "PERMITS", "SINCE", "FOR", "LEASE LEFT", "TOKEN", "CLIENT"}}, time.Now()
	if party {
		t = table{{"NAME", "HOST", "PROCESS", "SINCE", "FOR", "LEASE LEFT", "CLIENT"}}
	}
	for _, h := range n.Info.Holders {
		cells := known(who.Who(h.Client, h.Who))
		if !party {
			cells = append(cells, fmt.Sprint(h.Permits))
		}
		cells = append(cells, words.Clock(h.Since, now), words.Ago(now.Sub(h.Since)), words.Ago(h.Left))
		if !party {
			cells = append(cells, fmt.Sprint(h.Token))
		}
		t = append(t, append(cells, h.Client, words.Incarnation(h.Incarnation, now)))
	}
	return t.withIdentities()
}

// withIdentities is a table whose last cells tell of identities: without them, if there are none.
func (t table) withIdentities() table {
	for i, cells := range t[1:] {
		if cells[len(cells)-1] != "" {
			t[0] = append(t[0], "IDENTITY")
			return t
		}
		t[i+1] = cells[:len(cells)-1]
	}
	return t
}

// known are the cells for the name, the host and the process of who a client is.
func known(who string) []string {
	if who == "" {
		return []string{"-", "-", "-"}
	}
	name, host, pid := words.Parts(who)
	return []string{name, host, fmt.Sprint(pid)}
}

// waiters are a table of the queue, as it was at a time.
func waiters(i lease.Info, who words.Roll, seen time.Time) table {
	t := table{{"PLACE", "SINCE", "FOR", "NAME", "HOST", "PROCESS", "CLIENT"}}
	for place, w := range i.Queue {
		cells := append([]string{fmt.Sprint(place + 1), words.Clock(seen.Add(-w.Wait), seen), words.Ago(w.Wait)}, known(who.Who(w.Client, w.Who))...)
		t = append(t, append(cells, w.Client, words.Incarnation(w.Incarnation, seen)))
	}
	return t.withIdentities()
}

// indent moves a table to the right.
func indent(by string, t table, width int) (indented []string) {
	if width > 0 {
		width = max(width-len(by), 1)
	}
	for _, line := range t.lines(width) {
		indented = append(indented, by+line)
	}
	return indented
}
