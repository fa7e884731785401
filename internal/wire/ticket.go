package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind letters of a ticket.
const (
	Exclusive = 'x' // the whole lock
	Kept      = 'k' // the same, of a client that keeps it between two calls
	Permit    = 'p' // permits of a semaphore
	Read      = 'r' // one of many readers
	Write     = 'w' // all that readers could have
	Moving    = 't' // the whole lock, in transit from one process to another
	Resting   = 'z' // what stays taken for some time after its hold has ended, of no client
	Party     = 'b' // one that meets others at a barrier, waits at a latch, or observes an election
)

// AllReaders is what a writer takes of a read-write lock; a reader takes 1.
const AllReaders = 1 << 30

// A Ticket is what one waiting call is called in the queue. Its text carries what whoever hands on must
// know to grant the right thing.
type Ticket struct {
	Client  string
	Number  uint64
	Vote    string // what [VoteOf] reads, of a ticket that is one of several at servers that know nothing of each other
	Kind    byte
	Permits int64
	Lease   time.Duration // whole milliseconds
	Grant   time.Duration // whole milliseconds: how long a grant by message lasts
}

// String returns client:number:kind:permits:lease:grant, with times in ms.
func (t Ticket) String() string {
	var room [128]byte // On the stack: what is longer costs an allocation more.
	b := append(append(room[:0], t.Client...), ':')
	b = append(append(strconv.AppendUint(b, t.Number, 10), t.Vote...), ':', t.Kind, ':')
	b = append(strconv.AppendInt(b, t.Permits, 10), ':')
	b = append(strconv.AppendInt(b, t.Lease.Milliseconds(), 10), ':')
	return string(strconv.AppendInt(b, t.Grant.Milliseconds(), 10))
}

const (
	callDigits  = 15
	tokenDigits = 16 // A token is below 2^53.
	voteDigits  = callDigits + tokenDigits
	// MaxCall is above the number of every call.
	MaxCall = 1_000_000_000_000_000
)

// A Vote says which call a ticket is of, where one call asks several servers, and the token of its hold if it held already
// when it asked.
type Vote struct{ Call, Token uint64 }

// String is the vote as it is written after the number of a ticket: digits, always as many.
func (v Vote) String() string {
	return fmt.Sprintf("%0*d%0*d", callDigits, v.Call, tokenDigits, v.Token)
}

// CutVote returns the number of a ticket without the vote that may follow it.
func CutVote(number string) string {
	if len(number) > voteDigits {
		return number[:len(number)-voteDigits]
	}
	return number
}

// VoteOf returns the vote of a ticket; the zero Vote if it is none.
func VoteOf(ticket string) Vote {
	_, rest, _ := strings.Cut(ticket, ":")
	number, _, _ := strings.Cut(rest, ":")
	if len(number) <= voteDigits {
		return Vote{}
	}
	vote := number[len(number)-voteDigits:]
	call, _ := strconv.ParseUint(vote[:callDigits], 10, 64)
	token, _ := strconv.ParseUint(vote[callDigits:], 10, 64)
	return Vote{call, token}
}

// TicketClient returns the client of a ticket.
func TicketClient(ticket string) string {
	client, _, _ := strings.Cut(ticket, ":")
	return client
}

// KeptBy reports whether a ticket is of a client that keeps its hold between two calls.
func KeptBy(ticket string) bool { return strings.Contains(ticket, ":"+string(Kept)+":") }

// Nobody is in the place of the owner of a lock whose last hold was not released, until the next grant.
const Nobody = "-:0:z:1:0:0"

// Rests reports whether a ticket stands for a name that stays taken after its hold has ended.
func Rests(ticket string) bool { return strings.Contains(ticket, ":"+string(Resting)+":") }

// TicketLease returns the lease of a ticket, 0 if that is not the text of one.
func TicketLease(ticket string) time.Duration {
	lease, _ := TicketTerms(ticket)
	return lease
}

// TicketTerms returns the leases of a ticket and of a grant to it by message, 0 if it is not the text of a ticket.
func TicketTerms(ticket string) (lease, grant time.Duration) {
	fields := strings.Split(ticket, ":")
	if len(fields) != 6 {
		return 0, 0
	}
	ms, _ := strconv.ParseInt(fields[4], 10, 64)
	first, _ := strconv.ParseInt(fields[5], 10, 64)
	return time.Duration(ms) * time.Millisecond, time.Duration(first) * time.Millisecond
}
