package sim

import (
	"slices"
	"time"
)

// election judges what observers saw: only leaders that there are, with what they have proclaimed, tokens that never
// fall, each change in time, and in the end that nobody leads.
func (j *judge) election(object int, calls []*Call) {
	for _, who := range j.watched {
		if who.object != object {
			continue
		}
		var seen []sight
		for _, s := range j.sights {
			if s.object == object && s.client == who.client {
				seen = append(seen, s)
			}
		}
		j.sane(seen, calls)
		for _, c := range calls {
			j.noticed(who, seen, c, calls)
		}
	}
}

// sane judges one observer's sights.
func (j *judge) sane(seen []sight, calls []*Call) {
	var last uint64
	for _, s := range seen {
		token := s.leader.Token
		if token == 0 {
			continue
		}
		if token < last && !j.turnedBack() {
			j.violate("leaders fall: %v, after token %d", s, last)
		}
		last = max(last, token)
		i := slices.IndexFunc(calls, func(c *Call) bool { return slices.Contains(c.Values, s.leader.Value) })
		switch {
		case i < 0:
			j.violate("nobody has proclaimed that: %v", s)
		case calls[i].Begin > s.at:
			j.violate("seen before it was proclaimed: %v", s)
		case calls[i].Hold != nil && calls[i].Hold.Token != token:
			j.violate("a value under another's token: %v\n\tof %v", s, calls[i])
		}
	}
}

// noticed judges that an observer saw in time that a call led, with its last value, and that it did so no more, where
// nothing was wrong.
func (j *judge) noticed(who watched, seen []sight, c *Call, calls []*Call) {
	if c.Hold == nil || c.Dead || j.dies(who.client) || who.from+j.settlingTime(who.client) > c.Begin {
		return
	}
	within := handOff + 4*j.far() + j.unseen(j.plan.Length)
	at := func(t time.Duration) (now sight) {
		for _, s := range seen {
			if s.at <= t {
				now = s
			}
		}
		return now
	}
	quiet := func(from, to time.Duration) bool {
		return j.touched(who.client, c.Object, from, to, nil) == nil && j.touched(c.Client, c.Object, from, to, nil) == nil
	}
	if by := c.End + within; by < c.Hold.End && quiet(c.Begin, by) {
		if s := at(by); s.leader.Token != c.Hold.Token {
			j.violate("not noticed by client %d until %v: %v\n\tit has %v", who.client, by, c, s)
		}
	}
	if by := c.Proclaimed + within; c.Proclaimed > 0 && by < c.Hold.End && quiet(c.Begin, by) {
		if s := at(by); s.leader.Value != c.Values[len(c.Values)-1] {
			j.violate("proclaimed, and not noticed by client %d until %v: %v\n\tit has %v", who.client, by, c, s)
		}
	}
	// The next leader says so itself, when it has heard that it leads.
	if by := c.Hold.End + within; quiet(c.Begin, by) && !c.Hold.lost() && !j.waits(calls, c.Hold.End) {
		if s := at(by); s.leader.Token == c.Hold.Token {
			j.violate("still seen to lead by client %d at %v: %v", who.client, by, c)
		}
	}
}

// dies tells whether a client died.
func (j *judge) dies(client int) bool {
	return slices.ContainsFunc(j.touches, func(t *Touch) bool { return t.Kind.deadly() && t.Client == client })
}

// waits tells whether somebody campaigned at a moment, or was still in the queue: dead, or by a network that had a fault.
func (j *judge) waits(calls []*Call, at time.Duration) bool {
	return slices.ContainsFunc(calls, func(c *Call) bool {
		lingers := c.Hold == nil && c.End > at-aftermath && j.touched(c.Client, c.Object, c.Begin, at, nil) != nil
		return c.Begin <= at && (c.End > at || c.Dead || lingers)
	})
}
