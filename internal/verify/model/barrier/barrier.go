// Package barrier is the protocol of the cyclic barrier told a second time, as plain Go: what the scripts of
// lua/barrier must answer, store and publish.
package barrier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	outcomes = 64           // of earlier generations that are kept
	spare    = stage.Minute // how long the keys outlive the leases of the waiters
	ghost    = 120000       // for how many ms it is known that a ticket has ended, or was asked for again
	tripped  = 'T'
	broken   = 'B'
)

// A Barrier is one barrier as Redis keeps it.
type Barrier struct {
	// Generation is 0 where there is no barrier; then the fields down to Horizon are empty. First is the
	// one with which the keys began.
	Generation, First int64
	Parties           int64
	Broken            bool
	Acting            string // the last to come, while its action runs
	Arrived           int64
	Lifetime          int64 // ms
	// Past has T or B for each earlier generation, the newest first. Ended is when the last one ended,
	// Horizon when the one before did.
	Past           string
	Ended, Horizon int64

	Leases   map[string]int64   // of the present generation
	Arrivals map[string]Arrival // of the present generation
	Last     map[string]Arrival // of the generation before
	Calls    stage.Calls

	ends [4]int64 // when the keys expire: lock, leases, arrivals, last
	stage.Channel
}

// An Arrival is the arrival of one ticket.
type Arrival struct {
	Index, Since int64
	Who          string
}

// New returns a barrier that nobody ever used.
func New() *Barrier {
	return &Barrier{Leases: map[string]int64{}, Arrivals: map[string]Arrival{}, Last: map[string]Arrival{}}
}

// The numbers of the keys.
const (
	Lock = iota
	Leases
	Arrivals
	Last
	Calls
)

// Expire removes the keys whose time has come.
func (b *Barrier) Expire(now int64) {
	for key, end := range b.ends {
		if end != 0 && end <= now {
			b.Lose(key)
		}
	}
	b.Calls.Expire(now)
}

// Lose removes a key.
func (b *Barrier) Lose(key int) {
	switch key {
	case Lock:
		*b = Barrier{
			Leases: b.Leases, Arrivals: b.Arrivals, Last: b.Last, Calls: b.Calls, ends: b.ends, Channel: b.Channel,
		}
	case Leases:
		clear(b.Leases)
	case Arrivals:
		clear(b.Arrivals)
	case Last:
		clear(b.Last)
	case Calls:
		b.Calls = stage.Calls{}
		return
	}
	b.ends[key] = 0
}

// State is what the keys of a server should hold.
func (b *Barrier) State(now int64) stage.State {
	hash := map[string]string{}
	if b.Generation != 0 {
		for field, value := range map[string]int64{
			"generation": b.Generation, "first": b.First, "parties": b.Parties, "arrived": b.Arrived, "lifetime": b.Lifetime,
		} {
			hash[field] = stage.Decimal(value)
		}
	}
	if b.Past != "" {
		hash["past"], hash["ended"], hash["horizon"] = b.Past, stage.Decimal(b.Ended), stage.Decimal(b.Horizon)
	}
	if b.Broken {
		hash["broken"] = "1"
	}
	if b.Acting != "" {
		hash["acting"] = b.Acting
	}
	came := func(arrivals map[string]Arrival) map[string]string {
		text := map[string]string{}
		for ticket, a := range arrivals {
			text[ticket] = fmt.Sprintf("%d %d %s", a.Index, a.Since, a.Who)
		}
		return text
	}
	return stage.State{
		stage.Fields(hash, b.ends[Lock], now), stage.Scores(b.Leases, b.ends[Leases], now),
		stage.Fields(came(b.Arrivals), b.ends[Arrivals], now), stage.Fields(came(b.Last), b.ends[Last], now),
		stage.Scores(b.Calls.Until, b.Calls.Ends, now),
	}
}

// byLease are the tickets of the present generation, that whose lease ends first at the head.
func (b *Barrier) byLease() []string {
	return slices.SortedFunc(maps.Keys(b.Leases), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.Leases[x], b.Leases[y]), strings.Compare(x, y))
	})
}

// certain reports whether no keys were lost.
func (b *Barrier) certain() bool {
	return b.Arrived == int64(len(b.Arrivals)) && b.Arrived == int64(len(b.Leases))
}

// late is how many parties have leases that have run out.
func (b *Barrier) late(now int64) (n int) {
	for _, until := range b.Leases {
		if until <= now {
			n++
		}
	}
	return n
}

// View is what an inspection shows at a time, of at most that many parties.
func (b *Barrier) View(now int64, most int) lua.View {
	v := lua.View{Token: uint64(b.Generation), Limit: b.Parties, State: "open"}
	switch {
	case b.Generation == 0:
		v.State = "unset"
		return v
	case b.Broken || !b.certain() || b.late(now) > 0:
		v.State = "broken"
		return v
	}
	v.Used, v.Waiting = b.Arrived, int(b.Arrived)
	if b.Arrived == 0 {
		return v
	}
	tickets := b.byLease()
	for _, ticket := range tickets[:min(len(tickets), most)] {
		h := lua.Holder{
			Ticket: ticket, Until: b.Leases[ticket], Since: b.Arrivals[ticket].Since, Permits: 1, Phase: "waiting",
			Token: uint64(b.Generation), Count: 1, Who: b.Arrivals[ticket].Who,
		}
		if b.Acting == ticket {
			h.Phase = "acting"
		}
		v.Holders = append(v.Holders, h)
	}
	return v
}

// fate is what a generation is to one who has arrived in it: tripped, broken, 0 while it is the present one
// and unbroken. It is false where nothing is known of it.
func (b *Barrier) fate(generation int64) (fate byte, known bool) {
	switch ago := int(b.Generation - generation); {
	case b.Generation == 0 || ago < 0 || ago > len(b.Past):
		return 0, false
	case ago > 0:
		return b.Past[ago-1], true
	case b.Broken:
		return broken, true
	}
	return 0, true
}
