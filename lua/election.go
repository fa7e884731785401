package lua

// Election is the protocol of candidates: the protocol of the fair lock, whose holder leads. The hash of the lock also
// keeps what the leader has proclaimed, so both expire together.
//
// The end of a leadership that nobody takes over is told to the observers.
var Election = &Protocol{
	Kind:     "election",
	Ask:      Fairlock.Ask,
	End:      load("election/end"),
	Renew:    Fairlock.Renew,
	Renewals: Fairlock.Renewals,
	Check:    Fairlock.Check,
	Checks:   Fairlock.Checks,
	Force:    once(load("election/force")),
	Bury:     load("election/bury"),
	Inspect:  Fairlock.Inspect,
	Endings:  queueEndings,
}

// Leadership is the protocol of the observers of an election. Nothing is held and nobody has a place.
//
// The generation rises with each proclamation: to the server's time in µs, and by two at least. While nobody leads
// whose proclamation that is, it is higher by one.
var Leadership = &Protocol{
	Kind:      Election.Kind,
	Ask:       load("election/ask"),
	Check:     load("election/check"),
	Broadcast: true,
	Latest:    true,
}

// The scripts of an election that wait for nothing.
var (
	ElectionProclaim = request("election/proclaim", headOnly)
	ElectionLeader   = request("election/leader", ofLeader)
)
