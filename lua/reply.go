package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Status of a reply.
type Status int64

// The numbers are those of lib/base.lua.
const (
	Granted Status = 1 // the ticket holds
	Waiting Status = 2 // it does not, and waits if it asked to
	Busy    Status = 3 // a try that failed
	Late    Status = 4 // the request ran after its not-after, and changed nothing
	Done    Status = 5
	Refused Status = 6 // not the owner; States[0] says why

	Excess   Status = 7  // it asks for more permits than there are; States[0] is the limit
	Mismatch Status = 8  // it states another limit or number of parties; States[0] is the one that counts
	Unset    Status = 9  // the latch has no count
	Broken   Status = 10 // the barrier is broken
	Acting   Status = 11 // all parties are here, and this one runs the action before it opens
	MoreKeys Status = 12 // UNUSUAL in the scripts: nothing was done, the request has to come with all keys
	Full     Status = 13 // there is no room in the queue for one with a bound
)

// Flags of a reply. The numbers are those of lib/base.lua and lib/hold.lua.
const (
	More      = 1   // the work was cut at its bound: look again at once
	Suspected = 2   // the calling client let a lease run out
	Stepped   = 4   // the server's clock stepped back, and a lease was cut to its length
	Handed    = 8   // granted to another client by message
	Unwoken   = 16  // PUBLISH was refused: the head must look by itself
	Uncounted = 32  // PUBSUB NUMSUB was refused: nobody is skipped
	Wanted    = 64  // somebody waits for what the ticket holds
	Differs   = 128 // clients state different numbers of permits
)

// What States says of a ticket, or for which reason it was refused.
const (
	StateQueued    = "queued"
	StateAgain     = "again" // it was unknown, and is queued again
	StateGranted   = "granted"
	StateEarlier   = "earlier" // granted before the check came
	StateGone      = "gone"
	StateExpired   = "expired"
	StateForced    = "forced"
	StateForgotten = "forgotten"
	StateExcess    = "excess" // it asks for more than the limit, followed by it
	StateBroken    = "broken"
	StateFull      = "full" // there is no room for it: followed by how many wait, and the arrival of the head
)

// What an inspection says of a latch that nobody has set, or of a barrier that nobody has used.
const StateUnset = "unset"

// A Grant says that a ticket holds, until a time of the server in µs.
type Grant struct {
	Ticket string
	Token  uint64
	At     int64 // server µs from which it counts: of the grant in a message, of the reply in a reply
	Until  int64 // server µs
}

// A Tuple is a reply as it comes: twelve words, of which the scripts of a queue say what their names say, and other
// scripts something else in the same places. What that is only the kinds of reply below know; the models of the scripts
// write tuples too.
type Tuple struct {
	Status  Status
	Now     int64
	Token   uint64
	Until   int64
	Place   int64
	Waiting int
	Arrival int64
	Flags   int64
	Skipped int
	Expired int
	Grants  []Grant
	States  []string
}

// Has reports whether the reply carries the flag.
func (t *Tuple) Has(flag int64) bool { return t.Flags&flag != 0 }

// Tuple reads the reply of a script. An error of Redis comes back as it is; a reply of another shape is
// an error that names the script.
func (s *Script) Tuple(res rueidis.RedisResult) (Tuple, error) {
	m, err := res.ToMessage()
	if err != nil {
		return Tuple{}, err
	}
	return s.decode(m)
}

func (s *Script) decode(m rueidis.RedisMessage) (Tuple, error) {
	var r Tuple
	if m.IsInt64() {
		n, err := m.AsInt64()
		if r = ofNumber(n); r.Status == 0 && err == nil {
			err = fmt.Errorf("lua: %s: reply %d: %w", s.Name, n, errShape)
		}
		return r, err
	}
	if m.IsString() {
		text, err := m.ToString()
		if r = ofText(text); r.Status == 0 && err == nil {
			err = fmt.Errorf("lua: %s: reply %q: %w", s.Name, text, errShape)
		}
		return r, err
	}
	fields, err := m.ToArray()
	if err != nil {
		return r, err
	}
	var n [10]int64
	words := min(len(fields), len(n))
	if words == 7 {
		words = 6 // The last is a text.
	}
	for i := range words {
		if n[i], err = fields[i].ToInt64(); err != nil {
			return r, fmt.Errorf("lua: %s: reply field %d: %w", s.Name, i+1, err)
		}
	}
	r = Tuple{
		Status: Status(n[0]), Now: n[1], Token: uint64(n[2]), Until: n[3],
		Place: n[4], Waiting: int(n[5]), Arrival: n[6],
		Flags: n[7], Skipped: int(n[8]), Expired: int(n[9]),
	}
	switch len(fields) {
	case 1, 2, 4, 8: // the short replies of the usual cases
		return r, nil
	case 6, 7: // and one that says the times by how far they are from now, perhaps with who holds
		r.Token, r.Until = uint64(r.Now-n[2]), r.Now+n[3]
		if r.Arrival = 0; r.Status == Waiting {
			r.Arrival = r.Now // It came to wait now.
		}
		if len(fields) == 7 {
			var owner string
			if owner, err = fields[6].ToString(); err != nil {
				return r, fmt.Errorf("lua: %s: reply field 7: %w", s.Name, err)
			}
			r.States = []string{owner}
		}
		return r, nil
	case 12:
		return r, s.decodeLists(&r, fields[10], fields[11])
	}
	return r, fmt.Errorf("lua: %s: reply of %d fields", s.Name, len(fields))
}

// Unusual reports whether a request without all keys was not enough, and has changed nothing.
func Unusual(res rueidis.RedisResult) bool {
	m, err := res.ToMessage()
	if err != nil || !m.IsInt64() {
		return false
	}
	n, err := m.AsInt64()
	return err == nil && Status(n) == MoreKeys
}

// ofNumber reads a reply of one number: without a status if that is no time, and not what stands for itself. What a time
// says in full is in [Tuple.Complete].
func ofNumber(n int64) Tuple {
	switch {
	case n == int64(Done) || n == int64(MoreKeys):
		return Tuple{Status: Status(n)}
	case n < 0:
		return Tuple{Status: Done, Now: -n, Token: uint64(-n), Place: -1, Flags: Handed}
	case n > int64(MoreKeys):
		return Tuple{Status: Granted, Now: n, Token: uint64(n)}
	}
	return Tuple{}
}

// ofText reads the reply to a ticket that came to wait now as the last, or for which there is no room in the queue: without
// a status if it is neither.
func ofText(text string) Tuple {
	var n [5]int64
	words := 0
	for more := true; more; words++ {
		var word string
		word, text, more = strings.Cut(text, " ")
		if words == len(n) {
			return Tuple{}
		}
		var err error
		if n[words], err = strconv.ParseInt(word, 10, 64); err != nil {
			return Tuple{}
		}
	}
	t := Tuple{Status: Waiting, Now: n[0], Token: uint64(n[1]), Until: n[2], Place: n[3], Waiting: int(n[3]), Arrival: n[0]}
	switch words {
	case 4:
		return t
	case 5:
		t.Status, t.Place, t.Arrival = Full, -1, n[0]-n[4]
		return t
	}
	return Tuple{}
}

// Complete adds to a reply of one time what follows from the ticket that it is about: when its hold ends, or a grant as
// long as its own to the next.
func (t *Tuple) Complete(hold, grant time.Duration) {
	switch {
	case t.Until != 0 || t.Now == 0 || t.Token == 0:
	case t.Status == Granted:
		t.Until = t.Now + hold.Microseconds()
	case t.Has(Handed):
		t.Until = t.Now + grant.Microseconds()
	}
}

// DecodeRenewals reads the reply of a script for several renewals: the server's time, when the leases end, and which of
// the holds, counted from 0, have to be asked for by themselves.
func (s *Script) DecodeRenewals(res rueidis.RedisResult, holds int) (now, ends int64, left []int, err error) {
	all, err := res.AsIntSlice()
	if err != nil {
		return 0, 0, nil, err
	}
	if len(all) < 2 {
		return 0, 0, nil, fmt.Errorf("lua: %s: %d fields: %w", s.Name, len(all), errShape)
	}
	for _, i := range all[2:] {
		if i < 1 || i > int64(holds) {
			return 0, 0, nil, fmt.Errorf("lua: %s: hold %d of %d: %w", s.Name, i, holds, errShape)
		}
		left = append(left, int(i-1))
	}
	return all[0], all[1], left, nil
}

// A Glance is what a look at several tickets says of one.
type Glance struct {
	Place int   // in the queue; -1: only a check of its own tells
	Until int64 // server µs: the end of the present lease
}

// DecodeChecks reads the reply of a script that looks at several tickets: the server's time, the highest token that it has
// seen, and what it says of each.
func (s *Script) DecodeChecks(res rueidis.RedisResult, tickets int) (now int64, token uint64, seen []Glance, err error) {
	all, err := res.AsIntSlice()
	if err != nil {
		return 0, 0, nil, err
	}
	if len(all) != 2+2*tickets {
		return 0, 0, nil, fmt.Errorf("lua: %s: %d fields: %w", s.Name, len(all), errShape)
	}
	for i := 2; i < len(all); i += 2 {
		seen = append(seen, Glance{int(all[i]), all[i+1]})
	}
	return all[0], uint64(all[1]), seen, nil
}

func (s *Script) decodeLists(r *Tuple, grants, states rueidis.RedisMessage) error {
	list, err := grants.ToArray()
	if err != nil || len(list)%3 != 0 {
		return fmt.Errorf("lua: %s: grants of the reply: %d fields: %w", s.Name, len(list), orShape(err))
	}
	for i := 0; i+2 < len(list); i += 3 {
		ticket, err1 := list[i].ToString()
		token, err2 := list[i+1].ToInt64()
		until, err3 := list[i+2].ToInt64()
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("lua: %s: grant in the reply: %w", s.Name, err)
		}
		r.Grants = append(r.Grants, Grant{Ticket: ticket, Token: uint64(token), At: r.Now, Until: until})
	}
	if r.States, err = states.AsStrSlice(); err != nil {
		return fmt.Errorf("lua: %s: states of the reply: %w", s.Name, err)
	}
	return nil
}

var errShape = errors.New("not what the scripts of this version answer: is there a proxy in between?")

func orShape(err error) error {
	if err == nil {
		return errShape
	}
	return err
}
