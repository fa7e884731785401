package lua

// A Protocol is what one primitive runs: its scripts, and the kind that keeps its keys apart from those of
// the others.
type Protocol struct {
	Kind    string // in keys: prefix:<kind>:{name}
	Ask     *Script
	End     *Script
	Renew   *Script
	Check   *Script
	Force   *Script
	Inspect *Script
}

// Probe asks the server what of the protocol it does not allow.
var Probe = load("waitqueue/probe")

// Fairlock is the protocol of the fair queued lock.
var Fairlock = &Protocol{
	Kind:    "lock",
	Ask:     load("fairlock/ask"),
	End:     load("fairlock/end"),
	Renew:   load("fairlock/renew"),
	Check:   load("fairlock/check"),
	Force:   load("fairlock/force"),
	Inspect: load("fairlock/inspect"),
}

// Keys are the names in Redis of one lock. All share the hash tag {name}, so they live in one slot.
type Keys struct {
	Lock     string
	Queue    string
	Suspects string
}

// Keys returns the keys of the lock with the given name. The name must not be empty nor begin with a
// closing brace, which would break the hash tag.
func (p *Protocol) Keys(prefix, name string) Keys {
	lock := prefix + ":" + p.Kind + ":{" + name + "}"
	return Keys{Lock: lock, Queue: lock + ":queue", Suspects: lock + ":suspects"}
}

// All returns the keys in the order in which the scripts want them.
func (k Keys) All() []string { return []string{k.Lock, k.Queue, k.Suspects} }

// Channel returns the wake channel of one client for this lock.
func (k Keys) Channel(client string) string { return k.Lock + ":wake:" + client }

// Modes of an ask.
const (
	Try  = "try"  // now or never, without a trace
	Look = "look" // without a place in the queue: the client cannot hear yet
	Wait = "wait" // with a place in the queue
)

// Modes of a check.
const (
	Hears  = "hears"  // the client has a subscription
	Proven = "proven" // the subscription was made since the client was suspected, and carried an echo
	Deaf   = "deaf"   // the client has none: its tickets do not stay queued
)

// Phases of a hold: what its end without a release says about the client.
const (
	PhaseHeld  = "held"
	PhaseFinal = "final" // the maximum hold: running out is no reason to suspect the client
)
