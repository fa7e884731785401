package console

import (
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// span is since when something lasts, and for how long.
type span struct{ ISO, Clock, For string }

// spanSince makes a span. Pages show its time by the browser's clock, and without scripts by this machine's.
func spanSince(t, now time.Time) *span {
	return &span{t.UTC().Format(time.RFC3339), words.Clock(t, now), words.Ago(now.Sub(t))}
}

// rowOf is a holder as pages show it.
func rowOf(h lease.Holder, who words.Roll) holderRow {
	known := who.Who(h.Client, h.Who)
	program, host, pid := words.Parts(known)
	row := holderRow{
		Who: tell(known), Program: tell(program), Host: tell(host), PID: pid, Client: tell(h.Client), Token: h.Token,
		Identity: tell(words.Incarnation(h.Incarnation, time.Now())),
		Permits:  h.Permits, Entries: h.Entries, Held: spanSince(h.Since, time.Now()), Left: words.Ago(h.Left),
		Gone: h.Left <= 0, LeftMS: max(h.Left, 0).Milliseconds(), LeaseMS: wire.TicketLease(h.Ticket).Milliseconds(),
	}
	if row.Gone {
		row.Left = words.Ago(-h.Left)
	}
	row.LeaseMS = max(row.LeaseMS, row.LeftMS, 1)
	return row
}
