package notify

import "github.com/headwaiter/headwaiter/observe"

// messages are what the log says of each event: always the same words, so that a log can be grouped by them. The name, the
// times and the numbers are attributes.
var messages = map[observe.EventKind]string{
	observe.Began:         "headwaiter: asks for a name",
	observe.Queued:        "headwaiter: waits in the queue",
	observe.WaitedLong:    "headwaiter: has waited for long, and still waits",
	observe.Granted:       "headwaiter: holds a name",
	observe.Entered:       "headwaiter: entered its hold again",
	observe.Passed:        "headwaiter: may pass",
	observe.Failed:        "headwaiter: did not get a name",
	observe.Renewed:       "headwaiter: renewed a lease",
	observe.RenewalFailed: "headwaiter: a renewal failed, and is repeated until the lease is over",
	observe.HeldLong:      "headwaiter: has held a name for long, and still holds it",
	observe.Wanted:        "headwaiter: somebody waits for a name that is held",
	observe.Released:      "headwaiter: released a name",
	observe.Lost:          "headwaiter: lost a hold",
	observe.HandedOver:    "headwaiter: handed a hold over, for another process to adopt",
	observe.HandedOff:     "headwaiter: handed a name on to another client",
	observe.Skipped:       "headwaiter: skipped dead clients in a queue",
	observe.Expired:       "headwaiter: found leases that had run out",
	observe.Woken:         "headwaiter: a message came",
	observe.Rejoined:      "headwaiter: a ticket was missing from its queue, and is back in its place",
	observe.Missed:        "headwaiter: found a grant by a check, because its message was lost or late",
	observe.Suspected:     "headwaiter: this client let a lease run out, by the word of the server",
	observe.GivenBack:     "headwaiter: released a grant that came after its call had ended",
	observe.Differs:       "headwaiter: clients state different numbers of permits, and the number of the newest client counts",
	observe.Died:          "headwaiter: ended what a dead client with the same identity had left",
	observe.Replaced:      "headwaiter: another client has taken the identity of this one, which can lock nothing any more",
	observe.TwoMasters:    "headwaiter: the address leads to two masters, so two clients can hold one lock",
}
