package lua

// Barrier is the protocol of the cyclic barrier. A party's lease is prolonged by the checks of its client,
// so nothing is renewed.
//
// Messages of MessageOpen and MessageBroken are for the waiters in just that generation.
var Barrier = &Protocol{
	Kind:      "barrier",
	Ask:       mortal(load("barrier/ask")),
	End:       load("barrier/end"),
	Check:     load("barrier/check"),
	Bury:      load("barrier/bury"),
	Inspect:   load("barrier/inspect"),
	Endings:   []string{"leases", "arrivals", "last", "calls"},
	Broadcast: true,
}

// The scripts of the barrier that only it has.
var (
	BarrierOpen  = load("barrier/open")
	BarrierReset = requestOnce("barrier/reset", headOnly)
)
