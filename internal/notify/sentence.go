package notify

import (
	"fmt"
	"regexp"
	"time"

	"github.com/headwaiter/headwaiter/observe"
)

// sentences name what sentence puts in by its number.
var sentences = map[observe.Moment]string{
	observe.Asked:         "asks for %[1]s",
	observe.Queued:        "waits for %[1]s behind %[2]d",
	observe.WaitedLong:    "has waited for %[1]s for %[3]v and still waits, behind %[2]d",
	observe.Granted:       "holds %[1]s after %[3]v",
	observe.Entered:       "entered its hold of %[1]s again",
	observe.Passed:        "%[1]s let it pass after %[3]v",
	observe.Failed:        "did not get %[1]s within %[3]v",
	observe.Renewed:       "renewed the lease of %[1]s when %[5]v of it were left",
	observe.RenewalFailed: "a renewal of %[1]s had no answer, and %[5]v of its lease are left",
	observe.HeldLong:      "has held %[1]s for %[4]v and still holds it",
	observe.Wanted:        "somebody waits for %[1]s, which is held for %[4]v by now",
	observe.Released:      "released %[1]s after %[4]v",
	observe.Lost:          "lost %[1]s after %[4]v",
	observe.HandedOver:    "handed %[1]s over after %[4]v, to whoever adopts it",
	observe.HandedOff:     "handed %[1]s on to another client",
	observe.Skipped:       "skipped %[6]d %[7]s of dead clients in the queue of %[1]s",
	observe.Expired:       "found %[6]d %[8]s of %[1]s that had run out",
	observe.Woken:         "a message about %[1]s came",
	observe.Rejoined:      "a ticket was not in the queue of %[1]s any more, and is back in its place",
	observe.Missed:        "no message told of a grant of %[1]s: a look found it",
	observe.Suspected:     "the server says that this client let a lease of %[1]s run out",
	observe.GivenBack:     "gave back a grant of %[1]s, because the call had ended",
}

// notBehind is what is left out where a place is not known.
var notBehind = regexp.MustCompile(`,? behind %\[2\]d`)

// sentence is what the log says of an observation. What it counts and measures is in the attributes too.
func sentence(o *observe.Observation) string {
	text := sentences[o.Moment]
	if o.Place < 0 {
		text = notBehind.ReplaceAllString(text, "")
	}
	if o.Err != nil {
		text += ": %[9]v"
	}
	return fmt.Sprintf("headwaiter: "+text, o.Name, o.Place, short(o.Waited), short(o.Held), short(o.Margin), o.Count,
		number(o.Count, "ticket"), number(o.Count, "lease"), o.Err)
}

// short is a duration to three digits or so.
func short(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func number(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}
