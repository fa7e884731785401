package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MessageKind is the first letter of what is published on a wake channel.
type MessageKind byte

// The kinds of message.
const (
	MessageGrant   MessageKind = 'G' // a ticket holds
	MessageSuspect MessageKind = 'S' // a lease ran out, and the client is suspected
	MessageForced  MessageKind = 'F' // a hold was released by force; on the channel of the client
	MessageLook    MessageKind = 'L' // look: another let a grant lapse, or a hold is in transit
	MessageEcho    MessageKind = 'E' // from a client to itself, to see whether it hears
	MessageExcess  MessageKind = 'X' // a ticket asks for more than the limit
	MessageOpen    MessageKind = 'O' // a generation of a latch or a barrier is open, or who leads has changed
	MessageBroken  MessageKind = 'B' // a generation of a barrier is broken, or a latch was removed
	MessageWanted  MessageKind = 'W' // somebody waits for what a client holds
)

// Event reports whether messages of the kind tell all who wait of an event, and grant nothing.
func (k MessageKind) Event() bool { return k == MessageOpen || k == MessageBroken }

// A Message is what a client hears on a wake channel.
type Message struct {
	Kind       MessageKind
	Grants     []Grant // for a grant: one or several
	Note       string  // for a grant: what the holder before wanted it to carry
	Ticket     string  // for MessageSuspect, MessageForced, MessageLook and MessageExcess
	Lock       string  // for MessageForced: the key of the lock
	Limit      int64   // for MessageExcess
	Generation int64   // for MessageOpen and MessageBroken
	Nonce      string  // for an echo
	Token      uint64  // for MessageWanted: the last that was given; holds that came later are not meant
}

// ParseMessage reads a message, or says that it is none: anybody with the right may publish anything.
func ParseMessage(text string) (Message, error) {
	kind, rest, ok := strings.Cut(text, " ")
	if !ok || len(kind) != 1 {
		return Message{}, fmt.Errorf("wire: message %.80q", text)
	}
	m := Message{Kind: MessageKind(kind[0])}
	var err error
	switch m.Kind {
	case MessageGrant:
		rest, m.Note, _ = strings.Cut(rest, " ~")
		m.Grants, err = parseGrants(rest)
		if before, ok := strings.CutPrefix(m.Note, EndingMark); ok && err == nil {
			m.Note, m.Grants[len(m.Grants)-1].Before = "", before
		}
	case MessageSuspect, MessageLook:
		m.Ticket = rest
	case MessageForced:
		if m.Ticket, m.Lock, ok = strings.Cut(rest, " "); !ok {
			err = errShape
		}
	case MessageExcess:
		ticket, limit, _ := strings.Cut(rest, " ")
		m.Ticket = ticket
		m.Limit, err = strconv.ParseInt(limit, 10, 54)
	case MessageOpen, MessageBroken:
		m.Generation, err = strconv.ParseInt(rest, 10, 54)
	case MessageEcho:
		m.Nonce = rest
	case MessageWanted:
		m.Token, err = strconv.ParseUint(rest, 10, 53)
	default:
		err = errShape
	}
	if err != nil {
		return m, fmt.Errorf("wire: message %.80q: %w", text, err)
	}
	return m, nil
}

// parseGrants reads what follows the letter of a grant: four words for each: the ticket, when, how
// far ahead of that the token is, and for how many ms.
func parseGrants(text string) ([]Grant, error) {
	grants := make([]Grant, 0, 1)
	for more := true; more; {
		var f [4]string
		for i := range f {
			if f[i], text, more = strings.Cut(text, " "); f[i] == "" {
				return nil, errShape
			}
		}
		at, err1 := strconv.ParseInt(f[1], 10, 54)
		ahead, err2 := strconv.ParseInt(f[2], 10, 54)
		lasts, err3 := strconv.ParseInt(f[3], 10, 43) // ms
		token, until := at+ahead, at+lasts*1000
		if err := errors.Join(err1, err2, err3); err != nil || token <= 0 || token >= 1<<53 || at < 0 || lasts <= 0 || until >= 1<<53 {
			return nil, orShape(err)
		}
		grants = append(grants, Grant{Ticket: f[0], Token: uint64(token), At: at, Until: until})
	}
	return grants, nil
}

// EchoMessage is what a client publishes to itself.
func EchoMessage(nonce string) string { return string(MessageEcho) + " " + nonce }

var errShape = errors.New("not a message of this version")

func orShape(err error) error {
	if err == nil {
		return errShape
	}
	return err
}
