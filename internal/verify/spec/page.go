package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed page.tmpl
var page string

// pageOf writes the page of all results into the frame that page.tmpl is. It says of what files it is.
func pageOf(results []Result, of string) string {
	var table, whole, ways strings.Builder
	for _, r := range results {
		if r.Off == "" {
			if r.Way != "" {
				continue
			}
			whole.WriteString(r.row() + "\n")
			continue
		}
		table.WriteString(r.row() + "\n")
		if r.Found != "" {
			ways.WriteString(r.section() + "\n")
		}
	}
	return strings.NewReplacer("{{sum}}", of, "{{table}}\n", table.String(), "{{whole}}\n", whole.String(), "{{ways}}\n", strings.TrimSuffix(ways.String(), "\n")).Replace(page)
}

// row is a line of the tables.
func (r Result) row() string {
	title := r.Scope.Title
	switch {
	case r.Names != nil:
		title = r.Names.Title
	case r.Kept != nil:
		title = r.Kept.Title
	}
	if r.Off == "" {
		lives := ""
		if r.Lives {
			lives = "yes"
		}
		return fmt.Sprintf("| %s | %d | %d | %s |", title, r.States, r.Depth, lives)
	}
	if r.Way != "" {
		title += "; on one way"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", r.Off, without[r.Off], title, r.found())
}

// section is the way to what a run has found.
func (r Result) section() string {
	return fmt.Sprintf("### %s: %s\n\n```text\n%s```\n", r.Off, r.found(), r.way())
}

// missing says what of some results is not on the page.
func missing(text string, results []Result) error {
	for _, r := range results {
		if r.Off == "" && r.Way != "" {
			continue
		}
		if !strings.Contains(text, r.row()+"\n") || r.Found != "" && !strings.Contains(text, r.section()) {
			return fmt.Errorf("spec/README.md does not have what was found: run make spec\n%s\n%s", r.row(), r.way())
		}
	}
	return nil
}

// without says what happens where a rule does not hold, or a slip is made.
var without = map[string]string{
	"R1":  "requests on a connection overtake each other, and an end is sent once, whatever is still under way",
	"R2":  "a client counts as hearing until the end of its subscription is confirmed",
	"R3":  "only a release serves the queue: asks, checks and the leaving of a waiter do not",
	"R4":  "a head is granted unasked; if PUBLISH then counts nobody, the grant is undone and the next one served",
	"R5":  "a head that belongs to the calling client is asked for like any other, and granted by message",
	"R6":  "silent heads are dropped, even if there are several and nobody is heard",
	"R7":  "a request takes effect however late it runs",
	"R8":  "the notice of a grant for a ticket that holds or is ending is given back",
	"R9":  "leaving takes a ticket out of the queue only; releasing and giving back free it only if it holds",
	"R10": "no client is suspected, and none doubts its subscription",
	"R11": "who hands a hold over ends when that is answered, what is adopted stays in transit, and nothing is ended after a hand-over that came too late",

	"R1Order":     "requests on a connection overtake each other",
	"R1Repeat":    "an end is sent once, whatever is still under way",
	"R3Ask":       "an ask does not serve the queue",
	"R3Check":     "a check does not serve the queue",
	"R3Leave":     "a waiter that leaves does not serve the queue",
	"R8Held":      "the notice of a grant for a ticket that holds is given back",
	"R8Ending":    "one for a ticket that is ending is given back",
	"R10Suspects": "the server suspects nobody",
	"R11Ends":     "who hands a hold over ends when that is answered",
	"R11Once":     "what is adopted stays in transit",
	"R11End":      "nothing is ended after a hand-over that came too late, though an old ask may have taken the lock again",
	"R10Doubt":    "a client that missed a message, or is a suspect, goes on with its connection",

	"EndWhenAnswered":  "whether an end must be repeated is decided when its answer comes",
	"LapseForgets":     "what may still run under the number that a ticket had before it lapsed is not ended",
	"LateArrivalStays": "a queued ticket keeps an arrival that is later than its own",
	"StaleProof":       "an echo clears a mark that is newer than it; the code still does that, which costs one more grant lease",
	"MateAsksLater":    "the next leader of a cohort asks after the end of the last",
	"MateIsForgotten":  "nobody leads after the end of the last",
	"RefusedAgain":     "a ticket that comes back to a queue with a limit is counted as a new one",
	"DeadWait":         "the dead count as waiters",
	"WishStays":        "the script that tells a holder that somebody waits leaves its wish at the hold, so that no renewal looks again",

	"OneScript":    "the tickets of a call come into the queues one by one",
	"Bound":        "what is granted while others are waited for is kept",
	"ByClock":      "a use has the next token, however short a time has passed since the grant",
	"Reserves":     "where the client does not tell, the server takes the token of the grant for the last",
	"TellsLast":    "an end does not tell the last token that was used",
	"AsksFirst":    "a hold that was waited for is used again before a renewal has told of the tickets behind it",
	"GivesBack":    "an idle hold is kept on when its client is told that somebody waits",
	"LooksAtClock": "a use begins without a look at the clock",

	"KeepsArrival": "what was given back is asked for again after all others",
}
