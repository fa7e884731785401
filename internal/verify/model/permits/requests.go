package permits

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Request is what a client asks of the server.
type Request = stage.Request[*Lock]

// An Ask is a request of semaphore/ask.
type Ask struct {
	Ticket    string
	Mode      string
	NotAfter  int64
	Arrival   int64
	Head      int64
	Floor     int64
	Uncounted bool
	Phase     string
	Who       string
	Limit     int64
	Born      int64       // server µs; 0: the limit cannot change
	Bound     *line.Bound // of a ticket that never had a place, if it has one
	FastPath  bool        // without the arguments that have their usual value
}

// An End is a request of semaphore/end.
type End struct {
	Ticket    string
	Token     int64 // 0: any
	Floor     int64
	Uncounted bool
	Note      string
	Rests     bool   // it was used: its permits stay taken for as long as its renewal has said
	How       string // of a write hold: how it ended, if it was not released
	FastPath  bool   // without the arguments that have their usual value
}

// A Renew is a request of semaphore/renew.
type Renew struct {
	Ticket   string
	Token    int64
	Lease    int64 // ms
	Phase    string
	Who      string
	NotAfter int64
	Least    int64 // ms from the grant for which the permits are to stay taken; 0: while they are held
	Stays    bool  // with the keys that it takes to say so first
	Wants    bool  // with the key of the queue, by a holder that wants to be told when somebody waits
}

// A Check is a request of semaphore/check.
type Check struct {
	Client    string
	Mode      string
	NotAfter  int64
	Floor     int64
	Uncounted bool
	Tickets   []lua.Arrival
	Bounds    map[string]line.Bound // of those that never had a place
	Heads     map[string]int64      // µs, of those that have a head start
	Limit     int64
	Born      int64

	Together bool // with those of other names, if there is no news
}

// A Force is a request of semaphore/force.
type Force struct {
	Ticket    string
	Floor     int64
	Uncounted bool
}

// A Resize is a request of semaphore/resize.
type Resize struct {
	Permits   int64
	Floor     int64
	Uncounted bool
}

// A Downgrade is a request of rwlock/downgrade.
type Downgrade struct {
	Ticket    string
	Token     int64
	Floor     int64
	Uncounted bool
	NotAfter  int64
}

// Script returns semaphore/ask.
func (Ask) Script() *lua.Script { return lua.Semaphore.Ask }

// Args returns what the script gets.
func (r Ask) Args() []string {
	args := stage.Args(r.Ticket, r.Bound.Mode(r.Mode), r.NotAfter, r.Who, states(r.Limit, r.Born))
	if r.Born == 0 {
		args = append(args, "")
	}
	switch {
	case !r.FastPath:
		return append(args, stage.Args(r.Floor, r.Arrival, r.Head, !r.Uncounted, r.Phase)...)
	case r.Floor != 0:
		return append(args, stage.Decimal(r.Floor))
	}
	return args
}

// states are the words by which a client states a limit.
func states(limit, born int64) []string {
	if born == 0 {
		return stage.Args(limit)
	}
	return stage.Args(limit, born)
}

// Script returns semaphore/end.
func (End) Script() *lua.Script { return lua.Semaphore.End }

// Args returns what the script gets.
func (r End) Args() []string {
	args := stage.Args(r.Ticket, r.Floor, r.Token, !r.Uncounted)
	switch {
	case r.FastPath && r.Note == "":
		return args[:min(len(args), 1+int(min(r.Floor, 1)))]
	case r.How != "":
		args = append(args, r.Note, map[bool]string{true: wire.EndRests}[r.Rests], r.How)
	case r.Rests:
		args = append(args, r.Note, wire.EndRests)
	case r.Note != "":
		args = append(args, r.Note)
	}
	return args
}

// Script returns semaphore/renew.
func (Renew) Script() *lua.Script { return lua.Semaphore.Renew }

// Args returns what the script gets.
func (r Renew) Args() []string {
	who := r.Who
	if r.Least > 0 {
		who = "~" + stage.Decimal(r.Least) + "~" + who
	}
	return stage.Args(r.Ticket, r.Token, r.Lease, r.Phase, who, r.NotAfter)
}

// Script returns semaphore/check.
func (Check) Script() *lua.Script { return lua.Semaphore.Check }

// Args returns what the script gets.
func (r Check) Args() []string {
	args := stage.Args(r.Client, r.Mode, r.NotAfter, r.Floor, !r.Uncounted, line.Brought(r.Tickets, r.Bounds, r.Heads))
	if len(r.Tickets) > 0 {
		args = append(args, states(r.Limit, r.Born)...)
	}
	return args
}

// Script returns semaphore/force.
func (Force) Script() *lua.Script { return lua.Semaphore.Force.Plain() }

// Args returns what the script gets.
func (r Force) Args() []string { return stage.Args(r.Ticket, r.Floor, !r.Uncounted) }

// Script returns semaphore/resize.
func (Resize) Script() *lua.Script { return lua.Resize.Plain() }

// Args returns what the script gets.
func (r Resize) Args() []string {
	return stage.Args(r.Permits, r.Floor, !r.Uncounted)
}

// Script returns rwlock/downgrade.
func (Downgrade) Script() *lua.Script { return lua.Downgrade.Script }

// Args returns what the script gets.
func (r Downgrade) Args() []string {
	return stage.Args(r.Ticket, r.Token, r.Floor, !r.Uncounted, r.NotAfter)
}
