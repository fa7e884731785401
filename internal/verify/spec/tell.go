package main

import (
	"fmt"
	"slices"
	"strings"
)

// What is told of a step, in English. The specification says it in tuples: a word, and what it is about.

func letter(client any) string { return string(rune('A' - 1 + int(client.(float64)))) }

// ticket is A1 for the first call of client A, and A1/2 for what goes on under its second number.
func ticket(id any) string {
	x := id.([]any)
	t, n := int(x[0].(float64)), int(x[1].(float64))
	name := fmt.Sprintf("%s%d", letter(float64(t/10)), t%10)
	if n >= 50 {
		return name + " in transit"
	}
	if n > 0 {
		name += fmt.Sprintf("/%d", n+1)
	}
	return name
}

// who is a client, or some tickets.
func who(set any) string {
	var all []string
	for _, x := range set.([]any) {
		if _, is := x.([]any); is {
			all = append(all, ticket(x))
		} else {
			all = append(all, letter(x))
		}
	}
	return strings.Join(all, ", ")
}

// message is what is under way.
func message(kind, lane any) string {
	switch {
	case lane == "r":
		return fmt.Sprintf("the reply to the %v", kind)
	case kind == "subscribed" || kind == "unsubscribed":
		return fmt.Sprintf("the notice that it is %v", kind)
	case kind == "subscribe":
		return "the subscription"
	case kind == "unsubscribe":
		return "the end of the subscription"
	case kind == "gone":
		return "the notice that its subscription is cut"
	case kind == "suspect":
		return "the notice that it is a suspect"
	case kind == "wanted":
		return "the word that somebody waits"
	}
	return fmt.Sprintf("the %v", kind)
}

// plain are the words that say all but whom they are about.
var plain = map[string]string{
	"asks": "%s asks", "joins": "%s waits in its client's cohort", "releases": "%s releases", "cancels": "%s gives up", "lease ends": "the lease of %s runs out",
	"hold lost": "%s is lost", "hands over": "%s hands its hold over", "adopts": "%s adopts a hold that was handed over",
}

var ofClients = map[string]string{
	"checks": "%s checks", "unsubscribes": "%s ends its subscription", "deaf": "%s does not trust its subscription any more, and makes a new connection",
	"no echo": "%s waits for its echo in vain, and makes a new connection", "dies": "%s dies", "stopped": "%s is stopped", "continued": "%s goes on",
	"half open": "%s hears nothing any more, and does not know", "subscription cut": "the server cuts the subscription of %s",
}

func say(told []any) string {
	word := told[0].(string)
	at := told[1:]
	switch {
	case plain[word] != "":
		return fmt.Sprintf(plain[word], ticket(at[0]))
	case ofClients[word] != "":
		return fmt.Sprintf(ofClients[word], letter(at[0]))
	}
	switch word {
	case "run":
		late := ""
		if at[3] == false {
			late = ", late"
		}
		return fmt.Sprintf("the server runs %s of %s%s%s", message(at[0], "q"), who(at[1]), late, bracket(at[2]))
	case "receive":
		return receives(at)
	case "held up":
		return fmt.Sprintf("held up: %s of %s", message(at[0], at[2]), letter(at[1]))
	case "at last":
		return fmt.Sprintf("what was held up goes on: %s of %s", message(at[0], at[2]), letter(at[1]))
	case "lost":
		return fmt.Sprintf("lost: %s to %s", message(at[0], "p"), letter(at[1]))
	case "cut":
		if at[1] == true {
			return letter(at[0]) + " gives up its connection; what was on it may still run"
		}
		return letter(at[0]) + " loses its connection, and what was on it"
	case "too late":
		return fmt.Sprintf("the not-after of the %v of %s passes", at[0], who(at[1]))
	case "holds":
		return fmt.Sprintf("%s holds with token %v", ticket(at[0]), at[1])
	case "by message":
		return fmt.Sprintf("%s is granted by message, token %v", ticket(at[0]), at[1])
	case "in the reply":
		return fmt.Sprintf("%s is granted in the reply, token %v", ticket(at[0]), at[1])
	case "moves to":
		return fmt.Sprintf("the hold belongs to %s, token %v", ticket(at[0]), at[1])
	case "dropped":
		return "dropped from the queue: " + who(at[0])
	case "no room":
		return "there is no room for " + ticket(at[0])
	case "give back":
		if at[1] == 0. {
			return ticket(at[0]) + " is ended once more"
		}
		return fmt.Sprintf("%s gives token %v back", ticket(at[0]), at[1])
	case "passes on":
		return fmt.Sprintf("%s passes its hold on, token %v", letter(at[0]), at[1])
	case "renewal":
		if at[1] == true {
			return ticket(at[0]) + " is renewed"
		}
		return ticket(at[0]) + " cannot be renewed: it does not hold"
	}
	return map[string]string{"mark ends": "the mark is over (R6)", "all subscriptions cut": "the server cuts all subscriptions"}[word]
}

func bracket(how any) string {
	if how == "" {
		return ""
	}
	return fmt.Sprintf(" (%v)", how)
}

func receives(at []any) string {
	whose := who(at[1])
	lane := any("p")
	if slices.Contains([]any{"ask", "check", "end"}, at[0]) {
		lane = "r"
	}
	text := fmt.Sprintf("%s receives %s", whose[:1], message(at[0], lane))
	if strings.ContainsAny(whose, "123456789") {
		text += " of " + whose
	}
	text += bracket(at[2])
	for _, g := range at[3].([]any) {
		grant := g.([]any)
		text += fmt.Sprintf(", %s has token %v", ticket(grant[0]), grant[1])
	}
	return text
}

// sayOfNames is the same for calls for several names.
func sayOfNames(told []any) string {
	call := fmt.Sprintf("call %v", told[1])
	names := fmt.Sprint(told[2:]...)
	if len(told) > 2 {
		if set, is := told[2].([]any); is {
			names = strings.Trim(strings.ReplaceAll(fmt.Sprint(set), " ", ", "), "[]")
		}
	}
	switch told[0] {
	case "asks":
		return call + " asks for " + names
	case "granted":
		return call + " has " + names
	case "gives back":
		return call + " gives back " + names
	case "skipped":
		return "the ticket of " + call + " for " + names + " is skipped"
	case "rejoins":
		return "the ticket of " + call + " for " + names + " comes back"
	}
	return call + " " + told[0].(string)
}

// ofKept is the same for a hold that is kept, of its client or of another.
var ofKept = map[string]string{
	"asks": "%s asks", "granted": "%s holds with token %v", "releases": "%s releases",
	"takes it up": "the keeper uses it again, with token %v", "gives back": "the keeper gives it back, and names token %v",
	"renews": "the keeper renews it (%v)", "rests": "the keeper keeps it", "is told": "the keeper is told that somebody waits", "has lost it": "the keeper's clock says that the lease is over",
	"is stopped": "the keeper is stopped", "goes on": "the keeper goes on",
}

func sayOfKept(told []any) string {
	word, at := told[0].(string), slices.Clone(told[1:])
	format := ofKept[word]
	if format == "" {
		return word
	}
	if strings.HasPrefix(format, "%s") {
		if at[0] = "the keeper"; told[1] != 9. {
			at[0] = fmt.Sprintf("client %v", told[1])
		}
	}
	return fmt.Sprintf(format, at...)
}

// way is the way to what was found: a line for each thing that is done or that happens, and what follows from it indented.
func (r Result) way() string {
	var b strings.Builder
	first := true
	for _, told := range r.Steps {
		if told == nil {
			first = true
			continue
		}
		text := ""
		switch {
		case r.Names != nil:
			text = sayOfNames(told)
		case r.Kept != nil:
			text = sayOfKept(told)
		default:
			text = say(told)
		}
		if !first {
			text = "    " + text
		}
		first = false
		b.WriteString(text + "\n")
	}
	return b.String()
}
