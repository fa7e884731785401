package lua

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// Decode reads the reply of a script that serves a queue.
func (s *Script) Decode(res rueidis.RedisResult) (wire.Reply, error) {
	t, err := s.Tuple(res)
	return wire.Reply(t), err
}

// Reply is a tuple of a protocol with a queue as its reply; nil of one with events.
func (p *Protocol) Reply(t *wire.Tuple) *wire.Reply {
	if p.Broadcast {
		return nil
	}
	return (*wire.Reply)(t)
}

// DecodeEvent reads the reply of a script of a protocol with events.
func (p *Protocol) DecodeEvent(s *Script, res rueidis.RedisResult) (wire.EventReply, error) {
	t, err := s.Tuple(res)
	return p.Event(&t), err
}

// Event is the reply that a tuple of a protocol with events is.
func (p *Protocol) Event(t *wire.Tuple) wire.EventReply {
	r := wire.EventReply{Head: t.Head(), Generation: int64(t.Token), Awaited: t.Arrival, Index: int(t.Place), Until: t.Until, Waiting: t.Waiting}
	if p.Latest {
		r.Generation = t.Arrival // The token is the leader's.
	}
	return r
}

// Token is the highest token that a reply of the protocol tells of; 0 if it tells of none.
func (p *Protocol) Token(t *wire.Tuple) uint64 {
	if p.Broadcast && !p.Latest {
		return 0
	}
	return t.Token
}

// A Request is a script that waits for nothing, with the kind of its reply.
type Request[R any] struct {
	*Script
	read func(t *wire.Tuple) (R, error)
}

// Of is the reply that a tuple is.
func (q Request[R]) Of(t *wire.Tuple) (R, error) { return q.read(t) }

// Decode reads the reply of the script.
func (q Request[R]) Decode(res rueidis.RedisResult) (R, error) {
	t, err := q.Tuple(res)
	r, strange := q.read(&t)
	return r, cmp.Or(err, strange)
}

// request is a script whose replies are all of one kind.
func request[R any](name string, read func(t *wire.Tuple) (R, error)) Request[R] {
	return Request[R]{load(name), read}
}

// requestOnce is request for a script whose requests each have their effect once (lib/once.lua).
func requestOnce[R any](name string, read func(t *wire.Tuple) (R, error)) Request[R] {
	return Request[R]{once(load(name)), read}
}

// headOnly is the kind of a reply that says no more than all do.
func headOnly(t *wire.Tuple) (wire.Head, error) { return t.Head(), nil }

// A LatchReply is the answer to a change of a latch.
type LatchReply struct {
	wire.Head
	Left int64 // the count
}

func ofLatch(t *wire.Tuple) (LatchReply, error) { return LatchReply{t.Head(), max(t.Place, 0)}, nil }

// A LeaderReply says who leads. If the status is Unset, nobody does, and only the generation counts.
type LeaderReply struct {
	wire.Head
	Generation int64
	Token      uint64
	Value      string // what the leader has proclaimed
	Who        string // the client, for operators
	Since      int64  // server µs
}

func ofLeader(t *wire.Tuple) (LeaderReply, error) {
	r := LeaderReply{Head: t.Head(), Generation: t.Arrival, Token: t.Token}
	if r.Status != wire.Done {
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
	wire.Head
	Before int64 // with an earlier arrival
	Same   int   // with the same
}

func ofAhead(t *wire.Tuple) (AheadReply, error) { return AheadReply{t.Head(), t.Place, t.Waiting}, nil }
