// Package line is what the models of the fair lock and of permits share: the queue of a lock, and what the server knows of
// the clients that wait in it.
//
// A [Line] is what Redis keeps of them, [Notes] what the lock's hash says of its queue, a [Call] a script that runs.
package line

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Times are server µs, as everywhere in the protocol.
const (
	Spare       = stage.Minute           // how long keys outlive the last need of them (I6)
	LeastKept   = Spare * 3 / 4          // and from when on they are prolonged
	MostKept    = Spare * 5 / 4          // and cut to a minute
	Looks       = 512                    // heads after which a script looks no further (I7)
	LookBatch   = 128                    // how many at a time, after the first
	Drops       = 2048                   // tickets removed in one script
	ForgedAhead = 24 * 60 * stage.Minute // how far ahead of the clock a token cannot be
	AnswerTime  = stage.Second           // how long clients have to answer when they are called
	LongLook    = 2 * stage.Second       // the longest time between two looks of a client, of few
	LookEach    = 5 * stage.Millisecond  // and what each waiting client adds to it

	// SentBy is how long before its not-after a request was sent that says nothing of the tokens that its client has seen:
	// none is higher than the time of that.
	SentBy = 2997 * stage.Millisecond

	mostSpared  = 10 * stage.Second // for how long nobody is dropped at the most
	markLasts   = stage.Minute      // for how long after its end a mark still counts as used
	remembers   = 10 * stage.Minute // how long a suspect is remembered
	suspected   = stage.Minute      // and how long at the least, where nobody waits who came before
	callsListed = 2048              // tickets whose clients are called when a grant lapses
	callsMost   = 256               // and how many clients at the most
	exactSize   = 400               // up to this size of the queue a reply tells it exactly
	never       = math.MinInt64     // an arrival before all others
)

// Estimated is what Waiting of a reply of the models says where the scripts draw a sample.
const Estimated = -1

// SameReply compares the replies of a script and of the model.
func SameReply(want, got wire.Tuple) error {
	if want.Waiting == Estimated && got.Waiting > 0 {
		got.Waiting = Estimated
	}
	if w, g := stage.ReplyText(want), stage.ReplyText(got); w != g {
		return fmt.Errorf("  answers   %s\n  should be %s", g, w)
	}
	return nil
}

// A Line is the queue of a lock, and what the server knows of the clients in it.
type Line struct {
	Queue    []lua.Arrival    // by arrival, then by ticket
	Suspects map[string]int64 // clients, by time of the mark; one ahead is of a client that was called

	// When the keys expire; 0: never, or there is no such key.
	QueueEnds, SuspectsEnds int64

	// Hears holds the clients that subscribe to their wake channel.
	Hears map[string]bool
	// Mute makes the server refuse PUBLISH, Blind PUBSUB NUMSUB.
	Mute, Blind bool
	// Sent collects what is published.
	Sent []stage.Message
}

// New returns the line of a lock that nobody ever used.
func New() Line { return Line{Suspects: map[string]int64{}, Hears: map[string]bool{}} }

// Clone returns a copy that shares nothing.
func (l *Line) Clone() Line {
	c := *l
	c.Queue, c.Sent = slices.Clone(l.Queue), slices.Clone(l.Sent)
	c.Suspects, c.Hears = maps.Clone(l.Suspects), maps.Clone(l.Hears)
	return c
}

// Keys are what those of the queue and of the suspects should hold.
func (l *Line) Keys(now int64) []stage.Key {
	queue := map[string]int64{}
	for _, a := range l.Queue {
		queue[a.Ticket] = a.Arrival
	}
	return []stage.Key{stage.Scores(queue, l.QueueEnds, now), stage.Scores(l.Suspects, l.SuspectsEnds, now)}
}

// Tidy forgets the expiry of keys that are empty, which Redis removes.
func (l *Line) Tidy() {
	if len(l.Queue) == 0 {
		l.QueueEnds = 0
	}
	if len(l.Suspects) == 0 {
		l.SuspectsEnds = 0
	}
}

// Enqueue puts a ticket into the queue by its arrival, and reports false if it is there already: then the earlier
// of its arrivals counts.
func (l *Line) Enqueue(ticket string, arrival int64) bool {
	rank := l.Rank(ticket)
	if rank >= 0 && l.Queue[rank].Arrival <= arrival {
		return false
	}
	if rank >= 0 {
		l.Queue = slices.Delete(l.Queue, rank, rank+1)
	}
	a := lua.Arrival{Ticket: ticket, Arrival: arrival}
	i, _ := slices.BinarySearchFunc(l.Queue, a, Order)
	l.Queue = slices.Insert(l.Queue, i, a)
	return rank < 0
}

// Order is the order of the queue.
func Order(a, b lua.Arrival) int {
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), strings.Compare(a.Ticket, b.Ticket))
}

// Dequeue takes a ticket out of the queue, and reports whether it was there.
func (l *Line) Dequeue(ticket string) bool {
	i := l.Rank(ticket)
	if i < 0 {
		return false
	}
	l.Queue = slices.Delete(l.Queue, i, i+1)
	l.Tidy()
	return true
}

// Rank is how many tickets are ahead of one in the queue; -1 if it is not there.
func (l *Line) Rank(ticket string) int {
	return slices.IndexFunc(l.Queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
}

// Publish sends a message, unless the server refuses it, and reports whether it went.
func (l *Line) Publish(client, text string) bool {
	if l.Mute {
		return false
	}
	l.Sent = append(l.Sent, stage.Message{Client: client, Text: text})
	return true
}

// Notes are what the hash of a lock says in addition to its holders. What is zero is not there.
type Notes struct {
	Token  int64  // the last that was given
	High   int64  // the last arrival given, 1 if that is not known; 0: nobody waits
	Mark   int64  // until then nobody is dropped (R6)
	Scan   *Scan  // how far a pass came that was cut at its bound
	Kept   int64  // until then at the least all keys live
	Marked bool   // there may be suspects
	Forced string // the ticket that lost its hold by force
	Lapsed string // the ticket whose lease ran out
	Died   string // the client that was buried, the last that held
	Looked *Looked
}

// Looked is what a look at a full queue found: how many tickets it has not found alive, for how long the head had waited,
// and until when that counts.
type Looked struct{ Rest, Till, Waited int64 }

// A Scan is how far a pass over silent heads came.
type Scan struct {
	Silent  int    // clients that it found silent
	Arrival int64  // up to which nobody was alive
	One     string // the last of these clients
}

// Clone returns a copy that shares nothing.
func (n Notes) Clone() Notes {
	if n.Scan != nil {
		scan := *n.Scan
		n.Scan = &scan
	}
	if n.Looked != nil {
		looked := *n.Looked
		n.Looked = &looked
	}
	return n
}

// Fields returns the notes as Redis shows them.
func (n *Notes) Fields() map[string]string {
	f := map[string]string{}
	Texts(f, map[string]string{"forced": n.Forced, "lapsed": n.Lapsed, "died": n.Died})
	Numbers(f, map[string]int64{"token": n.Token, "high": n.High, "mark": n.Mark, "kept": n.Kept})
	if n.Marked {
		f["marked"] = "1"
	}
	if n.Scan != nil {
		f["scan"] = fmt.Sprintf("%d:%d:%s", n.Scan.Silent, n.Scan.Arrival, n.Scan.One)
	}
	if n.Looked != nil {
		f["looked"] = fmt.Sprintf("%d:%d:%d", n.Looked.Rest, n.Looked.Till, n.Looked.Waited)
	}
	return f
}

// Texts adds those that are not empty to the fields of a hash.
func Texts(f, texts map[string]string) {
	for name, text := range texts {
		if text != "" {
			f[name] = text
		}
	}
}

// Numbers adds those that are not 0 to the fields of a hash.
func Numbers(f map[string]string, numbers map[string]int64) {
	for name, n := range numbers {
		if n != 0 {
			f[name] = stage.Decimal(n)
		}
	}
}

// Reason is why a ticket does not, or no longer, hold.
func (n *Notes) Reason(ticket string) string {
	switch ticket {
	case n.Forced:
		return wire.StateForced
	case n.Lapsed:
		return wire.StateExpired
	}
	if n.Died != "" && n.Died == wire.TicketClient(ticket) {
		return wire.StateDied
	}
	return wire.StateForgotten
}

// Terms are what the text of a ticket says.
type Terms struct {
	Client       string
	Kind         byte
	Permits      int64
	Lease, Grant int64
}

// Read reads the text of a ticket, and reports false where it is none.
func Read(ticket string) (Terms, bool) {
	f := strings.Split(ticket, ":")
	if len(f) != 6 || len(f[2]) != 1 {
		return Terms{Client: f[0]}, false
	}
	var n [3]int64
	for i := range n {
		n[i], _ = strconv.ParseInt(f[3+i], 10, 64)
	}
	return Terms{f[0], f[2][0], n[0], n[1] * stage.Millisecond, n[2] * stage.Millisecond}, true
}
