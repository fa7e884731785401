// Package latch is the protocol of the count-down latch told a second time, as plain Go: what the scripts of
// lua/countdown must answer, store and publish.
package latch

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Latch is one latch as Redis keeps it, and what the server knows of its clients.
type Latch struct {
	// Generation is 0 where there is no latch; then all of this is 0. First is the one with which the keys
	// began: of those before nothing is known. Initial is 0 where it is awaited and was not set yet.
	Generation, First int64
	Count, Initial    int64
	Lifetime          int64 // ms
	Ends              int64 // when the key expires

	Ears int // clients that listen

	stage.Channel
}

// Expire removes the keys whose time has come.
func (l *Latch) Expire(now int64) {
	if l.Ends != 0 && l.Ends <= now {
		l.Lose()
	}
}

// Lose forgets the latch.
func (l *Latch) Lose() {
	*l = Latch{Ears: l.Ears, Channel: l.Channel}
}

// State is what the keys of a server should hold.
func (l *Latch) State(now int64) stage.State {
	hash := map[string]string{}
	if l.Generation != 0 {
		for field, value := range map[string]int64{
			"count": l.Count, "initial": l.Initial, "generation": l.Generation, "first": l.First, "lifetime": l.Lifetime,
		} {
			hash[field] = stage.Decimal(value)
		}
	}
	return stage.State{stage.Fields(hash, l.Ends, now)}
}

// View is what an inspection shows.
func (l *Latch) View(int64) lua.View {
	v := lua.View{Token: uint64(l.Generation), Limit: l.Initial, Used: l.Count, State: "open"}
	if !l.Blind {
		v.Waiting = l.Ears
	}
	switch {
	case l.Initial == 0:
		v.State = "unset"
	case l.Count > 0:
		v.State = "closed"
	}
	return v
}

// used lets the latch live for its lifetime.
func (l *Latch) used(now int64) {
	if l.Generation != 0 {
		l.Ends = now + l.Lifetime*stage.Millisecond
	}
}

// hearing is how many clients wait, as far as the server tells.
func (l *Latch) hearing(uncounted bool) (clients int, flags int64) {
	switch {
	case uncounted:
		return 0, 0
	case l.Blind:
		return 0, wire.Uncounted
	}
	return l.Ears, 0
}

// passes reports whether one who has seen a generation, or none, may pass; known is false if it is not
// certain what became of that generation.
func (l *Latch) passes(seen int64) (passes, known bool) {
	switch {
	case seen == 0:
		return l.Initial != 0 && l.Count == 0, l.Initial != 0
	case seen == l.Generation:
		return l.Initial != 0 && l.Count == 0, true
	}
	known = l.First <= seen && seen < l.Generation
	return known, known
}

func (l *Latch) publish(kind wire.MessageKind, generation int64) (flags int64) {
	return l.Publish(fmt.Sprintf("%c %d", kind, generation))
}

func (l *Latch) reply(status wire.Status, now int64) wire.Tuple {
	return wire.Tuple{Status: status, Now: now, Token: uint64(l.Generation), Place: -1}
}
