package lua

import (
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
	Party     = 'b' // one that meets others at a barrier, waits at a latch, or observes an election
)

// AllReaders is what a writer takes of a read-write lock, of which a reader takes 1.
const AllReaders = 1 << 30

// A Ticket is what one waiting call is called in the queue. Its text carries what whoever hands on must
// know to grant the right thing.
type Ticket struct {
	Client  string
	Number  uint64
	Kind    byte
	Permits int64
	Lease   time.Duration // whole milliseconds
	Grant   time.Duration // whole milliseconds: how long a grant by message lasts
}

// String returns client:number:kind:permits:lease:grant, with times in ms.
func (t Ticket) String() string {
	var room [128]byte // On the stack: what is longer costs an allocation more.
	b := append(append(room[:0], t.Client...), ':')
	b = append(strconv.AppendUint(b, t.Number, 10), ':', t.Kind, ':')
	b = append(strconv.AppendInt(b, t.Permits, 10), ':')
	b = append(strconv.AppendInt(b, t.Lease.Milliseconds(), 10), ':')
	return string(strconv.AppendInt(b, t.Grant.Milliseconds(), 10))
}

// TicketClient returns the client of a ticket.
func TicketClient(ticket string) string {
	client, _, _ := strings.Cut(ticket, ":")
	return client
}

// KeptBy reports whether a ticket is of a client that keeps its hold between two calls.
func KeptBy(ticket string) bool { return strings.Contains(ticket, ":"+string(Kept)+":") }

// TicketLease returns the lease of a ticket, 0 if that is not the text of one.
func TicketLease(ticket string) time.Duration {
	lease, _ := TicketTerms(ticket)
	return lease
}

// TicketTerms returns the lease of a ticket and that of a grant by message, 0 if it is not the text of one.
func TicketTerms(ticket string) (lease, grant time.Duration) {
	fields := strings.Split(ticket, ":")
	if len(fields) != 6 {
		return 0, 0
	}
	ms, _ := strconv.ParseInt(fields[4], 10, 64)
	first, _ := strconv.ParseInt(fields[5], 10, 64)
	return time.Duration(ms) * time.Millisecond, time.Duration(first) * time.Millisecond
}
