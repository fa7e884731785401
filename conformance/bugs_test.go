package conformance

import "strings"

// A bug is what is wrong with an engine.
type bug string

const (
	none bug = ""

	noExclusion   bug = "it grants whoever holds"
	oneSession    bug = "its session holds, not the call"
	newestFirst   bug = "the last that came is the first to hold"
	lateHandOff   bug = "waiters are served some time after a release"
	barges        bug = "calls overtake waiters"
	sameToken     bug = "all tokens are the same"
	triesWait     bug = "a try waits"
	triesQueue    bug = "a try that fails stays in the queue"
	neverFrees    bug = "a release frees nothing"
	freesAnothers bug = "the release of what is lost frees another's hold"

	ignoresContext bug = "a context that has ended may lock"
	ownErrors      bug = "the error of a wait does not wrap the context's"
	staysQueued    bug = "a call that gave up stays in the queue"
	forgetsGrant   bug = "a grant at once is forgotten if the call is cancelled"
	keepsGrant     bug = "a grant after a wait is forgotten if the call is cancelled"
	bothWays       bug = "a call that is cancelled returns lease and error"
	leavesSilently bug = "who leaves the queue lets nobody in"
	boundByContext bug = "a hold ends with the context of its call"
	noValues       bug = "the values of the context are lost"
	pastDeadline   bug = "the deadline of a hold has passed when it begins"
	repeatsRelease bug = "a release is sent twice"

	unlockForgotten bug = "an Unlock sends nothing"
	unlockTwiceSent bug = "an Unlock is sent twice"
	unlockOvertaken bug = "a call overtakes the Unlock of its client"
	unlockUnwaited  bug = "Close does not wait for an Unlock"
	unlockStops     bug = "what is unlocked never ends"

	handOverEnds bug = "a hand-over that is not supported ends the hold"
	handOverFree bug = "a hand-over is a release"
	adoptsTwice  bug = "a text is good twice"

	neverFull      bug = "a limit does not count"
	roomForOneMore bug = "a queue has room for one more than it should"
	roomOnce       bug = "the place of a call that gave up is not taken again"
	roomForNobody  bug = "a call that comes puts another out of a full queue"
	refusedStays   bug = "a call that is refused stays in the queue"

	keptForGood bug = "what is kept is held together with others"

	neverWanted   bug = "a holder is not told when somebody waits"
	wantedTooLate bug = "a holder is not told of who has waited since before it asks"
	wantedByTries bug = "a holder is told of tries"
	wantedEnds    bug = "a hold ends when somebody waits"
	noChannel     bug = "there is no channel to be told by"

	tellsNothing  bug = "a hold is not told how the one before ended"
	tellsReleases bug = "a hold is told that all others were released"
	tellsOld      bug = "a hold is told what the one before was told"
	tellsAll      bug = "who shares is told how the last hold ended"

	neverTells   bug = "a loss is not told"
	plainCause   bug = "the cause of a loss is no ErrLost"
	lateDeadline bug = "the holder learns too late that its lease is over"
	neverRenews  bug = "nothing is renewed"
	neverExpires bug = "no lease ever ends"
	deadHead     bug = "a dead client stays at the head"

	doReleasesFirst bug = "Do releases before its function"
	swallows        bug = "Do does not return what its function does"
	keepsPanicked   bug = "Do does not release after a panic"
	doAnyway        bug = "Do calls its function without the lock"
	doesNotListen   bug = "Do takes no notice of its context"
	doForgetsLoss   bug = "Do does not tell a loss"

	deafToClose  bug = "waits go on when the client closes"
	keepsClosed  bug = "a client that closes keeps what it holds"
	usableClosed bug = "a client can be used when it is closed"
	closesOnce   bug = "a second Close is an error"
	leakCall     bug = "each wait leaves a goroutine"
	leakClient   bug = "each client leaves a goroutine"

	waitsForAnswer  bug = "a release waits for an answer for ever"
	blamesOthers    bug = "a wait for a silent server says that others hold"
	blamesServer    bug = "a wait for others says that the server is silent"
	believesSilence bug = "a release that nobody answered succeeds"
	closesInTheEnd  bug = "Close waits for a silent server for ever"

	waitsForItself bug = "calls from within a hold wait for it"
	remembersHolds bug = "holds that are over are taken for deadlocks"
	shortNames     bug = "names are cut"
	anyName        bug = "every name is taken"
	oneKind        bug = "kinds of one name meet"

	neverEnters       bug = "a hold cannot be entered"
	entersAnew        bug = "to enter gives a new token"
	firstReleaseFrees bug = "the first release frees what was entered"
	entersInTurn      bug = "to enter waits for its turn"
	entersByClient    bug = "every call of the client enters"
	tellsOne          bug = "one lease on a hold is told of its loss"

	readersAlone         bug = "readers do not share"
	writersIgnoreReaders bug = "writers take no notice of readers"
	readersTokenLow      bug = "readers have no tokens"
	downgradesNothing    bug = "a downgrade lets nobody in"
	downgradeReleases    bug = "a downgrade releases"
	downgradesAnything   bug = "a downgrade does not look who holds"

	countHolders    bug = "a semaphore counts holders, not permits"
	smallFirst      bug = "small requests are served before large ones"
	serveOne        bug = "a release serves one"
	neverTooLarge   bug = "a request that never fits waits"
	takesAnything   bug = "counts are not looked at"
	resizesSilently bug = "a resize serves nobody"

	opensUnset   bug = "a latch that is not set is open"
	setsTwice    bug = "a latch can be set while it is closed"
	setsOnce     bug = "a latch cannot be set again"
	opensEarly   bug = "a latch opens one too early"
	countsTwice  bug = "two counts are told the same"
	cancelCounts bug = "a wait for a latch that is cancelled counts"

	samePlace        bug = "all parties have the same place"
	goesEarly        bug = "a barrier trips one too early"
	leavesQuietly    bug = "a party that gives up breaks nothing"
	resetsOnlyBroken bug = "a reset does nothing for waiting parties"
	staysBroken      bug = "a reset mends nothing"
	deadParty        bug = "a dead party is waited for"
)

// caught is how a bug is found: the case that finds it, and what that says.
type caught struct {
	bug        bug
	kind, name string
	says       string // or, after a slash, what it says where calls come in another order
}

// heard reports whether a text is what finds the bug.
func (c caught) heard(text string) bool {
	for says := range strings.SplitSeq(c.says, " / ") {
		if strings.Contains(text, says) {
			return true
		}
	}
	return false
}

func catches() []caught {
	var all []caught
	for kind, of := range map[string][]caught{
		"mutex": append(doorCatches(), mutexCatches()...), "reentrant": reentrantCatches(),
		"rwlock": rwlockCatches(), "semaphore": semaphoreCatches(), "latch": latchCatches(), "barrier": barrierCatches(),
	} {
		for _, c := range of {
			c.kind = kind
			all = append(all, c)
		}
	}
	return all
}

func doorCatches() []caught {
	return []caught{
		{noExclusion, "", "one holds at a time", "two hold at once"},
		{noExclusion, "", "what is held is busy", "to try for what another client holds: the call holds"},
		{triesWait, "", "what is held is busy", `does not wrap "busy"`},
		{triesQueue, "", "what is held is busy", "0 calls should wait"},
		{oneSession, "", "calls of one client exclude each other", "to try for what the same handle holds: the call holds"},
		{newestFirst, "", "holds are in the order of the calls", "in the order [5 4 3 2 1 0]"},
		{lateHandOff, "", "a try overtakes nobody who waits", "that somebody has waited for: the call holds"},
		{sameToken, "", "tokens rise", "by the same client is 1, the one before was 1"},

		{ignoresContext, "", "a context that has ended gets nothing", "a context that was cancelled: the call holds"},
		{ownErrors, "", "a wait ends with its deadline", `does not wrap "context deadline exceeded"`},
		{blamesServer, "", "a cancelled wait gives up its place", "says that the server does not answer"},
		{staysQueued, "", "a wait ends with its deadline", "0 calls should wait"},
		{staysQueued, "", "a cancelled wait gives up its place", "1 call should wait"},
		{forgetsGrant, "", "a call cancelled as it begins holds or has left", "to lock after a call that was cancelled"},
		{keepsGrant, "", "a wait cancelled as it is granted holds or has left", "to lock after a wait that was cancelled"},
		{bothWays, "", "a wait cancelled as it is granted holds or has left", "returned a lease with its error"},
		{boundByContext, "", "the context of a call does not bound its hold", "the context of its call has ended / ended with the context of its call"},
		{noValues, "", "the context of a call does not bound its hold", "has not the values"},

		{pastDeadline, "", "a release ends the context of the hold", "has ended as it begins"},
		{repeatsRelease, "", "a second release says so and frees nothing", "to try for what the next holds"},
		{neverFrees, "", "of many releases at once one is the release", "what was released should be free"},
		{pastDeadline, "", "a bound context ends with either of the two", "has ended from the beginning"},
		{neverTells, "", "a bound context ends with a loss", "the context did not end"},
		{neverTells, "", "a loss is told to its holder", "the context did not end"},
		{plainCause, "", "a loss is told to its holder", "is no lease.ErrLost"},
		{freesAnothers, "", "a release after a loss says so and frees nothing", "to try for what the next holds"},

		{unlockForgotten, "", "an Unlock gives back without a word", "to be next after an Unlock"},
		{neverWanted, "", "a holder that asks is told when somebody waits", "somebody waits: nobody has told"},
		{wantedTooLate, "", "a holder that asks is told when somebody waits", "since before: nobody has told"},
		{wantedByTries, "", "a holder that asks is told when somebody waits", "tries alone"},
		{wantedEnds, "", "a holder that asks is told when somebody waits", "has ended with that"},
		{noChannel, "", "an engine that cannot tell who waits has no channel", "it is promised"},
		{tellsNothing, "", "a hold is told how the one before it ended", `ended "unknown", not "released"`},
		{tellsReleases, "", "a hold is told how the one before it ended", `not "forced"`},
		{tellsOld, "", "a hold is told how the one before it ended", "it was told before"},
		{unlockTwiceSent, "", "a second Unlock does nothing", "to try for what the next holds"},
		{neverFrees, "", "an Unlock after a release does nothing", "to be next after a release"},
		{freesAnothers, "", "an Unlock after a loss does nothing", "after an Unlock that is to do nothing"},
		{unlockOvertaken, "", "no call overtakes the Unlock of its client", "right after an Unlock of the same client"},
		{unlockUnwaited, "", "a client that closes waits for its Unlocks", "that is closed"},
		{handOverEnds, "", "what cannot be handed over stays as it is", "could not be handed over has ended"},
		{unlockStops, "", "an Unlock that is cut off costs a lease", "after an Unlock that was cut off"},

		{neverRenews, "", "a hold is renewed", "in spite of renewals"},
		{neverRenews, "", "a hold that was waited for is renewed", "in spite of renewals"},
		{neverExpires, "", "a holder that is cut off loses its hold", "to be next when the lease of a client"},
		{lateDeadline, "", "a holder that is cut off loses its hold", "does not know that it lost"},
		{deadHead, "", "a waiter that is cut off holds up nobody", "to be next after a client that was cut off"},
		{deafToClose, "", "a client that is cut off can be closed", "to wait as the client closes, cut off"},
		{waitsForAnswer, "", "a release waits for a silent server no longer than the lease", "though the lease is over"},
		{believesSilence, "", "a release waits for a silent server no longer than the lease", "that nobody answered"},
		{blamesOthers, "", "a wait says that it was the server that was silent", `does not wrap "the server does not answer"`},
		{closesInTheEnd, "", "a client can be closed though the server is silent", "though the lease is over"},
		{deafToClose, "", "a client that closes gives everything back", "to wait as the client closes"},
		{keepsClosed, "", "a client that closes gives everything back", "when the client has closed"},
		{usableClosed, "", "a client that closes gives everything back", "to try with a client that is closed"},
		{closesOnce, "", "a client that closes gives everything back", "to close a client again: closed"},
		{leakCall, "", "calls and clients leave no goroutine behind", "calls should leave no goroutines"},
		{leakClient, "", "calls and clients leave no goroutine behind", "a client that is closed should leave no"},
	}
}

func mutexCatches() []caught {
	return []caught{
		{keptForGood, "", "what a client keeps is given back to who wants it", "to try for what a call uses"},
		{sameToken, "", "what a client keeps is given back to who wants it", "the token of a use"},
		{neverFull, "", "a full queue refuses at once, and nobody who waits", "though the queue is full"},
		{roomForOneMore, "", "a full queue refuses at once, and nobody who waits", "though the queue is full"},
		{roomOnce, "", "a full queue refuses at once, and nobody who waits", "2 calls should wait"},
		{roomForNobody, "", "a full queue refuses at once, and nobody who waits", `does not wrap "the queue is full"`},
		{refusedStays, "", "a full queue refuses at once, and nobody who waits", "2 calls should wait"},
		{handOverFree, "", "a hold is handed over once, ahead of the queue", "to adopt what was handed over"},
		{adoptsTwice, "", "a hold is handed over once, ahead of the queue", "to adopt once more"},
		{doReleasesFirst, "", "Do holds while its function runs", "to try while the function runs: the call holds"},
		{swallows, "", "Do holds while its function runs", "and returned <nil>"},
		{keepsPanicked, "", "Do releases when its function panics", "it should be free after a panic in Do"},
		{doAnyway, "", "Do calls nothing without a hold", "without a hold"},
		{doesNotListen, "", "Do ends the context of its function with the call's", "the context did not end"},
		{doForgetsLoss, "", "Do tells a loss", "the hold was lost"},
		{waitsForAnswer, "", "Do waits for a silent server no longer than the lease", "though the lease is over"},

		{waitsForItself, "", "a call from within its own hold is a deadlock", "to lock from within the hold"},
		{remembersHolds, "", "a call from within its own hold is a deadlock", "a hold that is over"},
		{shortNames, "", "any printable name is a name of its own", "next to the others"},
		{anyName, "", "what is no name is refused", "the call holds"},
		{noExclusion, "", "many names are held at once", "two hold one of many names"},
		{oneKind, "", "kinds of one name do not meet", "next to other kinds"},
	}
}

func reentrantCatches() []caught {
	return []caught{
		{neverEnters, "", "a hold is entered again by its context", "to enter again"},
		{entersAnew, "", "a hold is entered again by its context", "the tokens of one hold are"},
		{firstReleaseFrees, "", "the last release is that of the hold, whatever the order", "has ended with another"},
		{firstReleaseFrees, "", "an Unlock takes off one entry", "the Unlock of an inner hold"},
		{entersInTurn, "", "a hold is entered though others wait", "to enter while others wait"},
		{entersByClient, "", "only the context of a hold enters it", "without the context of the hold: the call holds"},
		{neverEnters, "", "Do enters a hold", "Do within Do has entered 0 times"},
		{tellsOne, "", "a loss ends every lease on a hold", "the context did not end"},
	}
}

func rwlockCatches() []caught {
	return []caught{
		{readersAlone, "", "readers hold together, a writer alone", "to try for reading while a reader holds"},
		{writersIgnoreReaders, "", "readers and writers keep apart under load", "a writer does not hold alone"},
		{barges, "", "readers and writers hold in the order of the calls", "while a writer waits: the call holds"},
		{leavesSilently, "", "a writer that leaves lets the readers behind it in", "when the writer ahead has left"},
		{readersTokenLow, "", "tokens of readers are between those of writers", "the tokens of readers are 1 and 1"},
		{downgradesNothing, "", "a downgrade lets readers in and no writer", "to read after a downgrade"},
		{downgradeReleases, "", "a downgrade lets readers in and no writer", "or ended the hold"},
		{downgradesAnything, "", "what is not held cannot be downgraded", "what was released: the call returned no error"},
		{waitsForItself, "", "a reader cannot become a writer", "from within a hold for reading"},
		{neverExpires, "", "a reader that is cut off lets writers in", "to write when the lease of a reader"},
	}
}

func semaphoreCatches() []caught {
	return []caught{
		{tellsAll, "", "an engine that does not remember says so", `ended "released`},
		{keepsPanicked, "", "Do releases when its function panics", "after a panic"},
		{doForgetsLoss, "", "Do tells a loss", "the hold was lost"},
		{countHolders, "", "never are more permits held than there are", "permits are held, of 4"},
		{countHolders, "", "permits are counted", "3 permits should be free"},
		{barges, "", "a small request does not overtake a large one", "2 calls should wait"},
		{smallFirst, "", "a small request does not overtake a large one", "2 permits should be free"},
		{serveOne, "", "a release serves all who fit", "with others that a release has served"},
		{unlockForgotten, "", "an Unlock gives all permits back", "after an Unlock of 3"},
		{leavesSilently, "", "a large request that leaves lets small ones in", "when the larger request ahead has left"},
		{neverTooLarge, "", "what never fits is refused at once", `does not wrap "too large"`},
		{takesAnything, "", "what never fits is refused at once", "to ask for 0 permits: the call holds"},
		{resizesSilently, "", "more permits serve those who wait, fewer keep others out", "that a resize has added"},
		{neverExpires, "", "permits of a client that is cut off come back", "when the lease of a client"},
	}
}

func latchCatches() []caught {
	return []caught{
		{opensUnset, "", "a latch that is not set is an error", "not set: the call returned no error"},
		{setsTwice, "", "only a count of at least one can be set, and only once", "a latch that is closed was set"},
		{opensEarly, "", "all wait for the last count, also those who come late", "with one left to count"},
		{countsTwice, "", "counts of many clients are each told apart", "twice or never"},
		{cancelCounts, "", "a wait that is cancelled changes nothing", "the call returned no error"},
		{setsOnce, "", "an open latch can be set again", "could not be set"},
		{deafToClose, "", "the waits of a client that closes end", "as the client closes"},
	}
}

func barrierCatches() []caught {
	return []caught{
		{samePlace, "", "parties go on together, each in its place", "the place of a party is 0 instead of 1"},
		{goesEarly, "", "nobody is a generation ahead", "a party went on when / twice or never"},
		{leavesQuietly, "", "a party that gives up breaks the barrier for all", "with a party that gives up"},
		{resetsOnlyBroken, "", "a reset breaks the barrier and lets it begin anew", "at a barrier that is reset"},
		{staysBroken, "", "a reset breaks the barrier and lets it begin anew", "that was reset: broken"},
		{leavesQuietly, "", "a party that closes breaks the barrier", "with a party whose client closes"},
		{deadParty, "", "a party that is cut off breaks the barrier", "with a party that is cut off"},
	}
}
