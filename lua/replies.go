package lua

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// A Head is what the replies of all kinds say.
type Head struct {
	Status  Status
	Now     int64 // server µs
	Flags   int64
	Skipped int      // waiters of clients that do not live
	Expired int      // leases that ran out
	States  []string // of the tickets, or why the request was refused
}

// Has reports whether the reply carries the flag.
func (h *Head) Has(flag int64) bool { return h.Flags&flag != 0 }

// Head is what a reply of any kind says.
func (t *Tuple) Head() Head {
	return Head{t.Status, t.Now, t.Flags, t.Skipped, t.Expired, t.States}
}

// A Reply is the answer of a script that serves a queue. A field that a script has nothing to say about is zero.
type Reply struct {
	Status  Status
	Now     int64  // server µs
	Token   uint64 // the last that the lock has given
	Until   int64  // server µs: the end of the present lease, or of the mark behind which the lock is free
	Place   int64  // how many are ahead, the holder among them; -1: not queued
	Waiting int    // tickets, or an estimate of the clients, that wait
	Arrival int64  // with which the ticket waits
	Flags   int64
	Skipped int
	Expired int
	Grants  []Grant // to tickets of the calling client
	States  []string
}

// Decode reads the reply of a script that serves a queue.
func (s *Script) Decode(res rueidis.RedisResult) (Reply, error) {
	t, err := s.Tuple(res)
	return Reply(t), err
}

// Complete adds what follows from the ticket: see [Tuple.Complete].
func (r *Reply) Complete(hold, grant time.Duration) { (*Tuple)(r).Complete(hold, grant) }

// Reply is a tuple of a protocol with a queue as its reply; nil of one with events.
func (p *Protocol) Reply(t *Tuple) *Reply {
	if p.Broadcast {
		return nil
	}
	return (*Reply)(t)
}

// Has reports whether the reply carries the flag.
func (r *Reply) Has(flag int64) bool { return r.Flags&flag != 0 }

// Head is what a reply of any kind says.
func (r *Reply) Head() Head { return (*Tuple)(r).Head() }

// Owner is the ticket that holds, if a try that failed was told; "" if not.
func (r *Reply) Owner() string {
	if r.Status != Busy || len(r.States) == 0 {
		return ""
	}
	return r.States[0]
}

// Drained is how many permits a drain got that was granted: it has no place in the queue, and says that instead.
func (r *Reply) Drained() int64 { return r.Place }

// An EventReply is the answer of a script to waiters for an event: the next generation of a latch, of a barrier,
// or of who leads.
type EventReply struct {
	Head
	Generation int64 // the present one
	Awaited    int64 // the generation that the ticket waits for, or knows
	Index      int   // of a barrier: how many were still to come when the ticket came
	Until      int64 // server µs: when to look again at the latest; 0 if nothing says when
	Waiting    int   // clients, or an estimate of them, that wait
}

// DecodeEvent reads the reply of a script of a protocol with events.
func (p *Protocol) DecodeEvent(s *Script, res rueidis.RedisResult) (EventReply, error) {
	t, err := s.Tuple(res)
	return p.Event(&t), err
}

// Event is the reply that a tuple of a protocol with events is.
func (p *Protocol) Event(t *Tuple) EventReply {
	r := EventReply{Head: t.Head(), Generation: int64(t.Token), Awaited: t.Arrival, Index: int(t.Place), Until: t.Until, Waiting: t.Waiting}
	if p.Latest {
		r.Generation = t.Arrival // The token is that of the leader.
	}
	return r
}

// Token is the highest token that a reply of the protocol tells of; 0 if it tells of none.
func (p *Protocol) Token(t *Tuple) uint64 {
	if p.Broadcast && !p.Latest {
		return 0
	}
	return t.Token
}

// A Request is a script that waits for nothing, with the kind of its reply.
type Request[R any] struct {
	*Script
	read func(t *Tuple) (R, error)
}

// Of is the reply that a tuple is.
func (q Request[R]) Of(t *Tuple) (R, error) { return q.read(t) }

// Decode reads the reply of the script.
func (q Request[R]) Decode(res rueidis.RedisResult) (R, error) {
	t, err := q.Tuple(res)
	r, strange := q.read(&t)
	return r, cmp.Or(err, strange)
}

// request is a script whose replies are all of one kind.
func request[R any](name string, read func(t *Tuple) (R, error)) Request[R] {
	return Request[R]{load(name), read}
}

// requestOnce is request for a script of which each request has its effect once (lib/once.lua).
func requestOnce[R any](name string, read func(t *Tuple) (R, error)) Request[R] {
	return Request[R]{once(load(name)), read}
}

// headOnly is the kind of a reply that says no more than all do.
func headOnly(t *Tuple) (Head, error) { return t.Head(), nil }

// A LatchReply is the answer to a change of a latch.
type LatchReply struct {
	Head
	Left int64 // the count
}

func ofLatch(t *Tuple) (LatchReply, error) { return LatchReply{t.Head(), max(t.Place, 0)}, nil }

// A LeaderReply says who leads. If the status is Unset, nobody does, and only the generation counts.
type LeaderReply struct {
	Head
	Generation int64
	Token      uint64
	Value      string // what the leader has proclaimed
	Who        string // the client, for operators
	Since      int64  // server µs
}

func ofLeader(t *Tuple) (LeaderReply, error) {
	r := LeaderReply{Head: t.Head(), Generation: t.Arrival, Token: t.Token}
	if r.Status != Done {
		return r, nil
	}
	if len(r.States) != 3 {
		return r, fmt.Errorf("the server answered %d states of a leader, not 3: is a client of another version using the same names?", len(r.States))
	}
	r.Value, r.Who = r.States[0], r.States[1]
	var err error
	if r.Since, err = strconv.ParseInt(r.States[2], 10, 64); err != nil {
		return r, fmt.Errorf("the server says that the leader is there since %q, which is no time in µs: %w", r.States[2], err)
	}
	return r, nil
}

// An AheadReply says how many wait before a call that holds its vote.
type AheadReply struct {
	Head
	Before int64 // with an earlier arrival
	Same   int   // with the same
}

func ofAhead(t *Tuple) (AheadReply, error) { return AheadReply{t.Head(), t.Place, t.Waiting}, nil }
