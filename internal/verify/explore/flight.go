package main

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A flight is a request, its reply, or a message, on its way.
type flight struct {
	Kind     kind
	From     string
	Late     bool
	Owner    any // the call that waits for the answer
	Ask      *core.Acquire
	Check    *core.Check
	Release  *core.Release
	Renewal  *core.Renewal
	Transit  *lua.Transit
	Errand   *errand
	Attempt  core.Attempt
	NotAfter int64
	Floor    int64
	Nonce    string
	Left     bool      // nobody waits for the answer
	At       int       // which name it is about
	All      []*flight // of one for several names: what it asks for each

	Reply   *wire.Reply
	Message *wire.Message
}

// names says which tickets a request is about.
func (f *flight) names() string {
	if f.Errand != nil && f.Kind != endKind {
		return f.Errand.names()
	}
	switch f.Kind {
	case askAllKind, endAllKind:
		var all []string
		for _, one := range f.All {
			all = append(all, one.names())
		}
		return strings.Join(all, ", ")
	case askKind:
		return shortly(f.Ask.Text)
	case checkKind:
		var all []string
		for _, n := range f.Check.Named {
			all = append(all, shortly(n.Text))
		}
		return strings.Join(all, ", ")
	case endKind:
		return shortly(f.Release.Text)
	case renewKind, confirmKind:
		return shortly(f.Renewal.Text)
	case messageKind:
		if m := f.Message; m.Ticket != "" {
			return shortly(m.Ticket)
		} else if len(m.Grants) > 0 {
			var all []string
			for _, g := range m.Grants {
				all = append(all, shortly(g.Ticket))
			}
			return strings.Join(all, ", ")
		}
	}
	return ""
}

// about reports whether a flight is about a ticket.
func (f *flight) about(text string) bool {
	switch f.Kind {
	case askKind:
		return f.Ask.Text == text
	case endKind:
		return f.Release.Text == text
	case checkKind:
		for _, n := range f.Check.Named {
			if n.Text == text {
				return true
			}
		}
	}
	return false
}

const renumber = 1_000_000_000_000

// shortly is a ticket as the ways have it: A1, or A1/2 where it has another number since a grant ran out.
func shortly(text string) string {
	client, rest, _ := strings.Cut(text, ":")
	number, _, _ := strings.Cut(rest, ":")
	var n int64
	if _, err := fmt.Sscan(number, &n); err != nil {
		return text
	}
	if n >= renumber {
		return fmt.Sprintf("%s%d/%d", client, n%renumber, n/renumber+1)
	}
	return client + number
}

func (f *flight) what() string {
	name := f.names()
	if name != "" {
		name = " of " + name
	}
	switch f.Kind {
	case askKind:
		return "the acquire request" + name
	case askAllKind:
		return "the acquire request for several names" + name
	case checkKind:
		return "the check" + name
	case endKind:
		return "the release" + name
	case endAllKind:
		return "the release of several names" + name
	case renewKind, confirmKind:
		return "the renewal" + name
	case echoKind:
		return "the ping"
	case subscribeKind:
		return "the subscription"
	case unsubscribeKind:
		return "the end of the subscription"
	case goneKind:
		return "the end of the connection"
	case openKind:
		return "how the action ended"
	case forceKind:
		return "the release by force"
	case buryKind:
		return "the burial"
	}
	switch f.Message.Kind {
	case wire.MessageGrant:
		return "the grant" + name
	case wire.MessageSuspect:
		return "the message that a lease" + name + " ran out"
	case wire.MessageLook:
		return "the call to look"
	case wire.MessageEcho:
		return "the ping"
	case wire.MessageWanted:
		return "the message that somebody waits"
	case wire.MessageOpen, wire.MessageBroken:
		return "the news"
	case wire.MessageForced:
		return "the message that a hold was released by force" + name
	}
	return "the message"
}

// A plan is what happens to one of the things that are sent in a step.
type plan struct {
	nth int // from 1; 0: nothing happens
	do  mishap
}

type mishap uint8

const (
	nothing mishap = iota
	held           // it comes later
	twice          // a message comes, and once more later
	lost           // a message does not come
	cut            // the connection is, and what was on it is lost
	givenUp        // the connection is, and what was on it may still run
	mishaps
)

func (r *shared) tell(format string, args ...any) {
	if !r.mute {
		r.told = append(r.told, fmt.Sprintf(format, args...))
	}
}
