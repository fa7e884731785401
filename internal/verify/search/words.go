package search

import (
	"fmt"
	"strings"
)

// What traces say.

func (w *world) note(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf(format, args...))
	}
}

// noted is how many lines the trace has.
func (w *world) noted() int {
	if w.trace == nil {
		return 0
	}
	return len(*w.trace)
}

func (l link) String() string {
	return [...]string{"command", "renewal", "listening"}[l]
}

func (k kind) String() string {
	return [...]string{
		"", "ask", "check", "end", "echo", "renewal", "subscription", "end of the subscription",
		"reply to the ask", "reply to the check", "reply to the end", "reply to the renewal",
		"confirmation of its subscription", "confirmation of the end of its subscription",
		"grant", "notice of a lapse", "echo", "end of its connection",
	}[k]
}

func (m mode) String() string {
	return [...]string{
		"look", "wait", "hears", "proven", "deaf", "release", "leave", "give back",
		"granted", "queued", "not queued", "not the holder", "too late", "missed", "gone",
	}[m]
}

// name tells which message it is.
func (w *world) name(m *message) string {
	if w.trace == nil {
		return ""
	}
	var about []string
	for _, x := range append(m.tickets[:], m.grants[:]...) {
		if text := x.String(); x != 0 && !strings.Contains(strings.Join(about, " "), text) {
			about = append(about, text)
		}
	}
	text := fmt.Sprintf("the %v", m.kind)
	if len(about) > 0 {
		text += " of " + strings.Join(about, ", ")
	} else {
		text += " of " + letter(int(m.client))
	}
	if m.how == old {
		text += ", late"
	}
	return text
}

// told is a request, and what came of it.
func (w *world) told(q, r *message) string {
	text := w.name(q)
	switch q.kind {
	case qCheck:
		text += fmt.Sprintf(" (%v)", q.mode)
	case qAsk:
		text += fmt.Sprintf(" (%v)", q.mode)
	}
	if r.kind == noKind {
		return text
	}
	return text + ": " + w.answer(r)
}

// heard is what a client receives.
func (w *world) heard(m *message) string {
	if w.trace == nil {
		return ""
	}
	if m.kind == pGrant {
		return fmt.Sprintf("the grant of %v with token %d", m.grants[0], m.tokens[0])
	}
	if m.kind.link() == listener {
		return "the " + m.kind.String()
	}
	return w.name(m) + ": " + w.answer(m)
}

// answer is what a reply says.
func (w *world) answer(r *message) string {
	var says []string
	switch r.kind {
	case rEnd:
		says = append(says, map[mode]string{granted: "freed", refused: "it does not hold"}[r.mode])
	case rCheck:
		if r.mode == tooLate {
			says = append(says, r.mode.String())
			break
		}
		for k, x := range r.tickets {
			if x != 0 {
				says = append(says, fmt.Sprintf("%v %v", x, mode(r.also[k])))
			}
		}
	default:
		says = append(says, r.mode.String())
	}
	for i, x := range r.grants {
		if x != 0 {
			says = append(says, fmt.Sprintf("%v has token %d", x, r.tokens[i]))
		}
	}
	if r.suspected {
		says = append(says, "a suspect")
	}
	return strings.Join(says, ", ")
}
