package lua

import (
	"math/rand/v2"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// Redlock is the protocol of one node of a Redlock: the protocol of the fair lock, with a token that may rise while it is
// held, to one that a quorum of nodes agrees on.
var Redlock = &Protocol{
	Kind:    "redlock",
	Ask:     Fairlock.Ask,
	End:     Fairlock.End,
	Renew:   load("redlock/renew"),
	Check:   Fairlock.Check,
	Checks:  Fairlock.Checks,
	Force:   Fairlock.Force,
	Bury:    Fairlock.Bury,
	Inspect: Fairlock.Inspect,
	Endings: queueEndings,
}

// Raise lets the token of a hold rise, Ahead counts the waiters with an earlier arrival.
var (
	Raise = request("redlock/raise", headOnly)
	Ahead = request("redlock/ahead", ofAhead)
)

// NewCall returns a number by chance for a call that asks several servers.
func NewCall() uint64 { return 1 + rand.Uint64N(wire.MaxCall-1) }
