package wire

// Modes of an ask.
const (
	Try   = "try"   // now or never, without a trace
	Look  = "look"  // without a place in the queue: the client cannot hear yet
	Wait  = "wait"  // with a place in the queue
	Drain = "drain" // a try for all permits that are free
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

// PhaseIdle is the phase of a hold that its client keeps for its next call.
const PhaseIdle = "idle"

// PhaseExpired is what an inspection says of a name that rests after a hold that was not released.
const PhaseExpired = "expired"

// EndRests is what the end of a hold that was used says, after which the name stays taken for some time.
const EndRests = "yes"

// PhaseWants is how the phase of a hold ends whose holder is to be told when somebody waits.
const PhaseWants = "wants"

// Phases of the holds that one script renews.
const (
	RenewHeld  = 'h'
	RenewFinal = 'f'
	RenewStill = 's' // held, with the lease that is there already, by a client that knows that the key outlives it by Least
	RenewWants = 'w' // held, by a client that has said that it wants to be told when somebody waits
	RenewIdle  = 'i' // the same, and nobody uses the hold now
)

// StateMoved is the reason for which a ticket was refused from which the hold has moved.
const StateMoved = "moved"

// StateRests is what a move says of a hold after whose end the name stays taken for some time.
const StateRests = "rests"
