package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// mostRows is how many clients a timeline has, those that held last.
	mostRows = 12
	// mostHandOffs is how many of the last hand-offs are told one by one.
	mostHandOffs = 20
	// wide is how many units a timeline is drawn across.
	wide = 1000
)

// timeline is the last holds of a name, by client.
type timeline struct {
	Span     string // how much time is drawn
	Since    *span  // from when on the console has looked
	Rows     []timelineRow
	More     int // clients that have no row
	HandOffs []handOff
}

type timelineRow struct {
	Client told
	Bars   []bar
}

// bar is a hold in units of the width.
type bar struct {
	From, Width float64
	Class       string // past, now or lapsed
	Title       string
}

// handOff is one of the last holds, in words.
type handOff struct {
	Held         *span
	From, To     told
	Token        uint64
	Still, Lapse bool
}

// timeline draws what is known.
func (h *history) timeline(began, now time.Time, who words.Roll) timeline {
	from := h.drawn(began, now)
	t := timeline{Span: words.Ago(now.Sub(from)), Since: spanSince(began, now)}
	holds := slices.Clone(h.holds)
	slices.SortStableFunc(holds, func(a, b hold) int { return a.from.Compare(b.from) })
	scale := wide / max(now.Sub(from).Seconds(), 1e-3)
	rows, order := map[string]*timelineRow{}, []string(nil)
	for _, o := range slices.Backward(holds) {
		client := wire.TicketClient(o.ticket)
		to := o.to
		if to.IsZero() {
			to = now
		}
		if to.Before(from) {
			continue
		}
		row := rows[client]
		if row == nil {
			row = &timelineRow{Client: tell(nameOf(client, who))}
			rows[client], order = row, append(order, client)
		}
		b := bar{Class: "past", Title: fmt.Sprintf("token %d, %s", o.token, words.Ago(to.Sub(o.from)))}
		switch {
		case o.lapsed:
			b.Class, b.Title = "lapsed", b.Title+", its lease ran out"
		case o.to.IsZero():
			b.Class, b.Title = "now", b.Title+" so far"
		}
		b.From = max(o.from.Sub(from).Seconds()*scale, 0)
		b.Width = max(to.Sub(from).Seconds()*scale-b.From, 2)
		b.From = min(b.From, wide-b.Width)
		row.Bars = append(row.Bars, b)
	}
	t.More = max(0, len(order)-mostRows)
	order = order[:len(order)-t.More]
	slices.SortFunc(order, func(a, b string) int { return strings.Compare(nameOf(a, who)+a, nameOf(b, who)+b) })
	for _, client := range order {
		t.Rows = append(t.Rows, *rows[client])
	}
	t.HandOffs = handOffs(holds, now, who)
	return t
}

// handOffs tells the last holds, the newest first.
func handOffs(holds []hold, now time.Time, who words.Roll) (told []handOff) {
	for i, o := range slices.Backward(holds) {
		if len(told) == mostHandOffs {
			break
		}
		next := handOff{
			Held: spanSince(o.from, now), To: tell(nameOf(wire.TicketClient(o.ticket), who)), Token: o.token,
			Still: o.to.IsZero(), Lapse: o.lapsed,
		}
		if !next.Still {
			next.Held.For = words.Ago(o.to.Sub(o.from))
		}
		if i > 0 {
			next.From = tell(nameOf(wire.TicketClient(holds[i-1].ticket), who))
		}
		told = append(told, next)
	}
	return told
}

// nameOf is who a client is, if that is known.
func nameOf(client string, who words.Roll) string {
	if known := who[client]; known != "" {
		return known
	}
	return "client " + client
}
