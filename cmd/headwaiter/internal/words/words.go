// Package words says in one line what an inspection has found, in the words that the commands and the console share.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Ago is a span as people read it at night: with two units at most.
func Ago(d time.Duration) string {
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

// Clock is a time by the clock of this machine's time zone, with the date where it is a day away or more.
func Clock(t, now time.Time) string {
	if now.Sub(t).Abs() >= 24*time.Hour {
		return t.Local().Format(time.DateTime)
	}
	return t.Local().Format(time.TimeOnly)
}

// Since says since when something lasts, and for how long.
func Since(t, now time.Time) string {
	return "since " + Clock(t, now) + ", for " + Ago(now.Sub(t))
}

// Summary says in one line who holds.
func Summary(n inspect.Listed, who Roll) string {
	i := n.Info
	switch {
	case n.Err != nil:
		return "? " + OneLine(n.Err.Error())
	case i.State != "":
		return Gathering(n)
	case !i.Held:
		return "-"
	case i.Holder.Rests && n.Kind != "semaphore":
		return Rests(i.Holder)
	case i.Holder.Left <= 0:
		return who.Of(i.Holder) + ", whose lease has run out"
	}
	switch text := who.Of(i.Holder); {
	case i.Holder.InTransit:
		return "in transit from " + text
	case n.Kind == "rwlock" && i.Holder.Permits == 1:
		return fmt.Sprintf("%d read, %s", i.Used, text)
	case n.Kind == "rwlock":
		return "writes: " + text
	case n.Kind == "semaphore":
		if i.Holder.Rests {
			text = Rests(i.Holder)
		}
		return fmt.Sprintf("%d of %d held, %s", i.Used, i.Limit, text)
	default:
		return text
	}
}

// Rests says until when a name stays taken whose hold is over.
func Rests(h lease.Holder) string {
	how := "released"
	if h.Expired {
		how = "its lease ran out"
	}
	now := time.Now()
	return "until " + Clock(now.Add(h.Left), now) + ", " + how
}

// Gathering is what there is to say of a latch or a barrier.
func Gathering(n inspect.Listed) string {
	i := n.Info
	if i.State == wire.StateUnset {
		return "not set yet"
	}
	if n.Kind == "barrier" {
		return fmt.Sprintf("%s: %d of %d have come", i.State, i.Used, i.Limit)
	}
	return fmt.Sprintf("%s: %d of %d left to count", i.State, i.Used, i.Limit)
}

// Untold is how many permits, or parties, those have that hold and are not among the holders that an inspection tells.
func Untold(i lease.Info) int64 {
	untold := i.Used
	for _, h := range i.Holders {
		untold -= h.Permits
	}
	if !i.Held || len(i.Holders) == 0 {
		return 0 // What is used is what is left to count, or nothing.
	}
	return max(untold, 0)
}

// Hears says when a holder knows that its hold was released by force. Of a redlock it is a vote, at one node; there
// are others that are not known here.
func Hears(kind string, h lease.Holder) string {
	if kind == lua.Redlock.Kind {
		return "its holder loses the vote of one node of several, and goes on while a majority votes for it: to end the hold, release it at each node"
	}
	f := strings.Split(h.Ticket, ":")
	if h.Rests {
		return "its hold was over"
	}
	if len(f) == 6 {
		if ms, err := strconv.ParseInt(f[4], 10, 64); err == nil {
			// Who does not hear learns of it by a renewal, which is a third of the lease away at the most.
			return "its holder is told at once, or within " + Ago(time.Duration(ms)*time.Millisecond/3) + " if it does not hear"
		}
	}
	return "its holder is told"
}

// OneLine keeps an error that is several joined ones in one line.
func OneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }
