package lua

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Protocol is what one primitive runs: its scripts, and the kind that keeps its keys apart from those of
// the others.
type Protocol struct {
	Kind  string // in keys: prefix:<kind>:{name}
	Ask   *Script
	End   *Script
	Renew *Script // nil where nothing is held
	// Renewals renews several holds, for all protocols that have it, in a cluster of one slot; nil where there is none.
	Renewals *Script
	Check    *Script
	// Checks looks at several tickets of one client as far as there is nothing to do and no news, for all protocols that have
	// it, in a cluster of one slot; nil where there is none.
	Checks  *Script
	Force   *Script
	Bury    *Script // nil where a dead client leaves nothing
	Inspect *Script

	// Endings are the endings of a lock's other keys, in the order in which the scripts want them; Renewed are
	// the ones that a renewal wants.
	Endings []string
	Renewed []string
	// Entries: a renewal tells how many times the hold was entered.
	Entries bool
	// Broadcast: one message on one channel is for all who wait, and nobody has a place in a queue.
	Broadcast bool
	// Dated: asks and checks say when their client was made, because what the newest client states counts.
	Dated bool
	// Latest: what waits for a generation goes on with any later one. Nobody needs to know how it ended.
	Latest bool
}

// FastPath reports whether asks, and ends, can come in short: without all arguments, and where one ticket holds at a time
// without all keys (see [Fallback]). Such an end reckons from the token of the grant, so the token of a hold must not have
// risen since, as it may with Redlock.
func (p *Protocol) FastPath() (asks, ends bool) {
	several := p.Ask == Semaphore.Ask
	return p.Ask == Fairlock.Ask || several, p.End == Fairlock.End && p.Renew == Fairlock.Renew || several
}

// SentBy is 3 ms after the sending of a request whose not-after is 3 s after it, in server µs, by the lowest estimate of
// the server's clock. It is sent_by of lib/rules.lua, which says what for.
func SentBy(notAfter int64) int64 { return notAfter - 2_997_000 }

// Several reports whether several tickets may hold at once.
func (p *Protocol) Several() bool { return len(p.Renewed) > 0 }

// Probe asks the server what of the protocol it does not allow.
var Probe = load("waitqueue/probe")

// Origin tells which master a server is.
var Origin = load("waitqueue/origin")

// Apart reports whether two answers to [Origin] are of two masters that have not taken over from each other. It
// reports false if an answer is empty.
func Apart(one, other string) bool {
	a, before, _ := strings.Cut(one, " ")
	b, earlier, _ := strings.Cut(other, " ")
	return a != "" && b != "" && a != b && a != earlier && b != before
}

// Aside tells when the server ran it.
var Aside = load("waitqueue/aside")

// Restart asks for how long the server has forgotten nothing. Its key is MarkKey.
var Restart = load("waitqueue/restart")

// Overtake ends requests that have no ticket: from then on they have no effect. Its key is [RequestsKey].
var Overtake = load("waitqueue/overtake")

// Introduce says who a client is, and finds out whether it was copied. Its key is ClientKey or LinkKey.
var Introduce = load("waitqueue/client")

// LinkKey is the key that has the links of a client at the node of a cluster that has a slot.
func LinkKey(prefix, client string, slot uint16) string {
	return prefix + ":client:{" + slotTags()[slot] + "}:" + client
}

// Introduction is what a client says of itself: who it is; if it has an identity, then that, and what tells its run from others,
// each after a unit separator.
func Introduction(who, identity, invocation string) string {
	if identity == "" {
		return who
	}
	return who + "\x1f" + identity + "\x1f" + invocation
}

// Introduced reads what a client has said of itself.
func Introduced(text string) (who, identity, invocation string) {
	who, rest, _ := strings.Cut(text, "\x1f")
	identity, invocation, _ = strings.Cut(rest, "\x1f")
	return who, identity, invocation
}

// ClientKey is the key that says who a client is, for operators.
func ClientKey(prefix, client string) string { return prefix + ":client:" + client }

// MarkKey is the key by which a server knows that it has its data of an earlier run. In a cluster each slot has one, so
// that it moves with what it vouches for.
func MarkKey(prefix string, slot uint16, cluster bool) string {
	if !cluster {
		return prefix + ":run"
	}
	return prefix + ":run:{" + slotTags()[slot] + "}"
}

// slotTags has a hash tag for each slot.
var slotTags = sync.OnceValue(func() *[Slots]string {
	found := new([Slots]string)
	for n, left := 0, Slots; left > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := Slot(tag); found[slot] == "" {
			found[slot] = tag
			left--
		}
	}
	return found
})

// Fairlock is the protocol of the fair queued lock.
var Fairlock = &Protocol{
	Kind:     "lock",
	Ask:      mortal(loadLogged("fairlock/ask")),
	End:      loadLogged("fairlock/end"),
	Renew:    load("fairlock/renew"),
	Renewals: load("fairlock/renewals"),
	Check:    mortal(loadLogged("fairlock/check")),
	Checks:   load("fairlock/checks"),
	Force:    once(loadLogged("fairlock/force")),
	Bury:     loadLogged("fairlock/bury"),
	Inspect:  load("fairlock/inspect"),
	Endings:  queueEndings,
}

// Reentrant is the protocol of the reentrant lock: the fair lock's, with counts.
var Reentrant = &Protocol{
	Kind:     "reentrant",
	Ask:      Fairlock.Ask,
	End:      Fairlock.End,
	Renew:    Fairlock.Renew,
	Renewals: Fairlock.Renewals,
	Check:    Fairlock.Check,
	Checks:   Fairlock.Checks,
	Force:    Fairlock.Force,
	Bury:     Fairlock.Bury,
	Inspect:  Fairlock.Inspect,
	Endings:  queueEndings,
	Entries:  true,
}

// queueEndings are the keys of a lock that one ticket holds at a time.
var queueEndings = []string{"queue", "suspects"}

// Keys are the names in Redis of one lock. All share the hash tag {name}, so they live in one slot.
type Keys struct {
	Lock     string
	Queue    string
	Suspects string
	Holders  string
	History  string // of a lock that keeps one; in none of the lists of keys
	// Entry is what a client knows the name by. Who campaigns and who observes share their keys and nothing else.
	Entry string

	all, renewed []string
	broadcast    bool
}

// Keys returns the keys of the lock with the given name. The name must not be empty nor begin with a
// closing brace, which would break the hash tag.
func (p *Protocol) Keys(prefix, name string) Keys {
	lock := prefix + ":" + p.Kind + ":{" + name + "}"
	k := Keys{
		Lock: lock, Queue: lock + ":queue", Suspects: lock + ":suspects", Holders: lock + ":holders", History: lock + ":history",
		Entry: lock, all: []string{lock}, renewed: []string{lock}, broadcast: p.Broadcast,
	}
	if p.Broadcast {
		k.Entry = k.Channel("")
	}
	for _, ending := range p.Endings {
		k.all = append(k.all, lock+":"+ending)
	}
	for _, ending := range p.Renewed {
		k.renewed = append(k.renewed, lock+":"+ending)
	}
	return k
}

// All returns the keys in the order in which the scripts want them.
func (k Keys) All() []string { return k.all }

// FastPath returns the keys of a request that will do in the usual case; all of them, where several tickets may hold.
func (k Keys) FastPath() []string {
	if len(k.renewed) > 1 {
		return k.all
	}
	return k.all[:2]
}

// Renewed returns the keys that a renewal wants. They exist while something is held: a script with an
// absent key is refused while a slot moves.
func (k Keys) Renewed() []string { return k.renewed }

// Wanting returns the keys of a renewal whose holder wants to be told when somebody waits: the usual keys and the queue,
// which need not exist.
func (k Keys) Wanting() []string { return append(k.renewed[:len(k.renewed):len(k.renewed)], k.Queue) }

// Staying returns the keys of a renewal that says for how long the name is to stay taken: the keys of [Keys.Wanting] and
// the suspects.
func (k Keys) Staying() []string { return append(k.Wanting(), k.Suspects) }

// RequestsKey is the key that records what the server has answered to a client's requests without a ticket for a lock.
func RequestsKey(lock, client string) string { return lock + ":requests:" + client }

// Channel returns the channel on which one client hears of this lock.
func (k Keys) Channel(client string) string {
	if k.broadcast {
		return k.Lock + ":wake"
	}
	return k.Lock + ":wake:" + client
}

// ClientChannel returns the channel on which a client hears of what it holds, whatever the names: that a hold was
// released by force. It is a plain channel in a cluster too.
func ClientChannel(prefix, client string) string { return prefix + ":wake:" + client }

// The key of a lock outlives a hold by Spare when a renewal prolongs it, and by Least at any time.
const (
	Spare = time.Minute
	Least = 45 * time.Second
)
