package sim

import (
	"errors"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// What only a Redlock promises: a fault of one server, or of a client's way to one, costs nobody its hold and lets no
// second holder in. The exceptions have names in docs/redlock.md: more faults than one at a time, and a server that
// forgets the vote of a bare majority.

// voting are the options of a Redlock.
func (o Object) voting(lasts option.Every) []redlock.Option {
	opts := []redlock.Option{lasts}
	if o.Trusts {
		opts = append(opts, redlock.WithoutSafeRestart())
	}
	return opts
}

// cold reports whether a call is one of the first tries, and far from some servers: these do not know its scripts yet, so that
// an answer takes five round trips, and it may not wait for longer than 50 ms.
func (j *judge) cold(c *Call) bool {
	furthest := j.plan.Clients[c.Client].Latency * time.Duration(1+j.plan.Servers) / 2
	return c.tries() && c.Begin < time.Second && 10*furthest > 50*time.Millisecond
}

// early reports whether a call found no majority of servers that answer.
func (c *Call) early() bool {
	return errors.Is(c.Err, redlock.ErrNoQuorum) && !errors.Is(c.Err, lease.ErrClosed)
}

// spare reports whether the client that a server votes for has a majority of the others too, by one token: then it is no
// loss when that vote goes. It is asked when nothing moves.
func (w *world) spare(at int) bool {
	vote := func(s *server) (client int, token string) {
		key := w.plan.Objects[0].lock(0, 0)
		id, _, _ := strings.Cut(s.mini.HGet(key, "owner"), ":")
		return w.client(id), s.mini.HGet(key, "token")
	}
	client, token := vote(w.servers[at])
	if client == everyone {
		return true // It votes for nobody.
	}
	others := 0
	for i, s := range w.servers {
		if c, t := vote(s); i != at && c == client && t == token {
			others++
		}
	}
	return others > len(w.servers)/2
}

// voted completes a fault of one server, or of one way, of a Redlock.
func (w *world) voted(t *Touch, f Fault, single bool) {
	if w.plan.Servers > 1 && single {
		t.Single, t.Spare = true, w.spare(f.Server)
	}
}

// alone reports whether there was no fault but t from a time on until another.
func (j *judge) alone(t *Touch, from, to time.Duration) bool {
	for _, u := range j.touches {
		if u != t && u.From <= to && u.To+aftermath >= from {
			return false
		}
	}
	return true
}

// enough reports whether a Redlock must have gone on though it was touched: by one fault at one server alone, and with
// a majority of the others where it held.
func (j *judge) enough(from, to time.Duration) bool {
	for _, t := range j.touches {
		if t.From <= to && t.To+aftermath >= from {
			return t.Single && t.Spare && j.alone(t, from, to)
		}
	}
	return false
}
