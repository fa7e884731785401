package lua

// Semaphore is the protocol of the fair semaphore. Its asks end with the limit, and so do its checks, after the tickets:
// the first client to come after the server has forgotten the lock makes it anew.
var Semaphore = &Protocol{
	Kind:    "semaphore",
	Ask:     mortal(load("semaphore/ask")),
	End:     load("semaphore/end"),
	Renew:   load("semaphore/renew"),
	Check:   mortal(load("semaphore/check")),
	Checks:  load("semaphore/checks"),
	Force:   once(load("semaphore/force")),
	Bury:    load("semaphore/bury"),
	Inspect: load("semaphore/inspect"),
	Endings: permitEndings,
	Renewed: []string{"holders"},
	Dated:   true,
}

// RWLock is the protocol of the fair read-write lock: a semaphore of [wire.AllReaders] permits. A reader takes one and a
// writer all.
var RWLock = &Protocol{
	Kind:    "rwlock",
	Ask:     Semaphore.Ask,
	End:     Semaphore.End,
	Renew:   Semaphore.Renew,
	Check:   Semaphore.Check,
	Checks:  Semaphore.Checks,
	Force:   Semaphore.Force,
	Bury:    Semaphore.Bury,
	Inspect: Semaphore.Inspect,
	Endings: permitEndings,
	Renewed: Semaphore.Renewed,
}

// Resize changes the limit of a semaphore, Downgrade turns a writer into a reader.
var (
	Resize    = requestOnce("semaphore/resize", headOnly)
	Downgrade = request("rwlock/downgrade", headOnly)
)

// permitEndings are the keys of a lock that many hold at a time.
var permitEndings = []string{"queue", "suspects", "holders"}
