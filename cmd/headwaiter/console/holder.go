package console

import (
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// rowOf is a holder as pages show it.
func rowOf(h lease.Holder, who words.Roll) holderRow {
	known := who.Who(h.Client, h.Who)
	program, host, pid := words.Parts(known)
	row := holderRow{
		Who: tell(known), Program: tell(program), Host: tell(host), PID: pid, Client: tell(h.Client), Token: h.Token,
		Permits: h.Permits, Entries: h.Entries, Held: words.Ago(time.Since(h.Since)), Left: words.Ago(h.Left),
		Gone: h.Left <= 0, LeftMS: max(h.Left, 0).Milliseconds(), LeaseMS: lua.TicketLease(h.Ticket).Milliseconds(),
	}
	if row.Gone {
		row.Left = words.Ago(-h.Left)
	}
	row.LeaseMS = max(row.LeaseMS, row.LeftMS, 1)
	return row
}
