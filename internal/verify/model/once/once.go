// Package once is lua/lib/once told a second time, as plain Go: what is answered, stored and published where requests
// that have no ticket come again, late, or one after the other in several lanes. What they do is in another model, the
// count-down latch's.
package once

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/latch"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	day = 24 * 60 * stage.Minute // nothing is noted for longer
	// overtaken is for how long it is noted that a request was overtaken, in ms.
	overtaken = 120_000
)

// A Latch is one latch, and what one client's requests about it were told.
type Latch struct {
	*latch.Latch
	Notes map[string]Note // by lane
	Until int64           // when the notes need not be known any more
	Ends  int64           // when their key expires
}

// A Note is of the last request in a lane.
type Note struct {
	Number int64
	Said   *wire.Tuple // nil: it was overtaken
}

// New returns a latch that nobody has used.
func New() *Latch { return &Latch{Latch: &latch.Latch{}, Notes: map[string]Note{}} }

// Expire removes the keys whose time has come.
func (l *Latch) Expire(now int64) {
	l.Latch.Expire(now)
	if l.Ends != 0 && l.Ends <= now {
		l.Forget()
	}
}

// Forget loses the notes.
func (l *Latch) Forget() { l.Notes, l.Until, l.Ends = map[string]Note{}, 0, 0 }

// State is what the keys of a server should hold.
func (l *Latch) State(now int64) stage.State {
	hash := map[string]string{}
	for lane, n := range l.Notes {
		hash[lane] = n.text()
		hash["until"] = stage.Decimal(l.Until)
	}
	return append(l.Latch.State(now), stage.Fields(hash, l.Ends, now))
}

func (n Note) text() string {
	if n.Said == nil {
		return stage.Decimal(n.Number)
	}
	state := ""
	if len(n.Said.States) > 0 {
		state = n.Said.States[0]
	}
	return fmt.Sprintf("%d %d %d %d %d %d %s", n.Number, n.Said.Status, n.Said.Token, n.Said.Place, n.Said.Arrival, n.Said.Flags, state)
}

// note keeps a note for at least ms, and with it all others.
func (l *Latch) note(lane string, n Note, ms, now int64) {
	span := min(max(l.Until-now, ms*stage.Millisecond), day)
	l.Notes[lane], l.Until, l.Ends = n, now+span, now+stage.Ceil(span)
}

// A Request is one of the client.
type Request = stage.Request[*Latch]

// A Once is a request to set, count down or remove.
type Once struct {
	Of       latch.Request
	Lane     string
	Number   int64
	NotAfter int64
	Repeats  int64 // ms
}

// Script returns the script of the request, which lua/lib/once runs.
func (r Once) Script() *lua.Script {
	for _, s := range scripts {
		if s.Plain() == r.Of.Script() {
			return s
		}
	}
	panic("once: a request that no script serves")
}

var scripts = []*lua.Script{lua.LatchSet.Script, lua.LatchDown.Script, lua.LatchRemove.Script}

// Args returns what the script gets.
func (r Once) Args() []string {
	return append(r.Of.Args(), fmt.Sprintf("%s %d %d %d", r.Lane, r.Number, r.NotAfter, r.Repeats))
}

// Run does what is asked unless it was done, or overtaken.
func (r Once) Run(l *Latch, now int64) wire.Tuple {
	if now > r.NotAfter { // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	last := l.Notes[r.Lane]
	switch {
	case last.Number == r.Number && last.Said != nil:
		said := *last.Said
		return wire.Tuple{Status: said.Status, Now: now, Token: said.Token, Place: said.Place, Arrival: said.Arrival, Flags: said.Flags, States: said.States}
	case last.Number >= r.Number:
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	said := r.Of.Run(l.Latch, now)
	l.note(r.Lane, Note{r.Number, &said}, r.Repeats, now)
	return said
}

// An Overtake ends requests of the client. Its script has the key of the notes alone.
type Overtake struct {
	Lane   string
	Number int64
}

// Run lets the request have no effect any more.
func (r Overtake) Run(l *Latch, now int64) {
	if l.Notes[r.Lane].Number < r.Number {
		l.note(r.Lane, Note{Number: r.Number}, overtaken, now)
	}
}
