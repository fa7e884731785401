package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// Tuple reads the reply of a script. An error of Redis comes back as it is; a reply of another shape is
// an error that names the script.
func (s *Script) Tuple(res rueidis.RedisResult) (wire.Tuple, error) {
	m, err := res.ToMessage()
	if err != nil {
		return wire.Tuple{}, err
	}
	return s.decode(m)
}

func (s *Script) decode(m rueidis.RedisMessage) (wire.Tuple, error) {
	var r wire.Tuple
	if m.IsInt64() {
		n, err := m.AsInt64()
		if s.asks && n < 0 {
			r = wire.Tuple{Status: wire.Granted, Now: -n, Token: uint64(-n), States: unknownBefore}
		} else if r = ofNumber(n); r.Status == 0 && err == nil {
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
	r = wire.Tuple{
		Status: wire.Status(n[0]), Now: n[1], Token: uint64(n[2]), Until: n[3],
		Place: n[4], Waiting: int(n[5]), Arrival: n[6],
		Flags: n[7], Skipped: int(n[8]), Expired: int(n[9]),
	}
	switch len(fields) {
	case 1, 2, 4, 8: // the short replies of the usual cases
		return r, nil
	case 6, 7: // and one that says the times by how far they are from now, perhaps with who holds
		r.Token, r.Until = uint64(r.Now-n[2]), r.Now+n[3]
		if r.Arrival = 0; r.Status == wire.Waiting {
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

// Fallback reports whether a request without all keys was not enough, and has changed nothing.
func Fallback(res rueidis.RedisResult) bool {
	m, err := res.ToMessage()
	if err != nil || !m.IsInt64() {
		return false
	}
	n, err := m.AsInt64()
	return err == nil && wire.Status(n) == wire.MoreKeys
}

// unknownBefore is what the reply to an ask says in full that is below 0. Nobody writes to it.
var unknownBefore = []string{wire.EndingMark + wire.UnknownBefore}

// ofNumber reads a reply of one number: without a status if that is no time, and not what stands for itself. What a time
// says in full is in [wire.Tuple.Complete].
func ofNumber(n int64) wire.Tuple {
	switch {
	case n == int64(wire.Done) || n == int64(wire.MoreKeys):
		return wire.Tuple{Status: wire.Status(n)}
	case n < 0:
		return wire.Tuple{Status: wire.Done, Now: -n, Token: uint64(-n), Place: -1, Flags: wire.Handed}
	case n > int64(wire.MoreKeys):
		return wire.Tuple{Status: wire.Granted, Now: n, Token: uint64(n)}
	}
	return wire.Tuple{}
}

// ofText reads the reply to a ticket that was granted with a token that is no time of now, that came to wait now as the last, or
// for which there is no room in the queue: without a status if it is none of these.
func ofText(text string) wire.Tuple {
	var n [5]int64
	words := 0
	for more := true; more; words++ {
		var word string
		word, text, more = strings.Cut(text, " ")
		if words == len(n) {
			return wire.Tuple{}
		}
		var err error
		if n[words], err = strconv.ParseInt(word, 10, 64); err != nil {
			return wire.Tuple{}
		}
	}
	t := wire.Tuple{Status: wire.Waiting, Now: n[0], Token: uint64(n[1]), Until: n[2], Place: n[3], Waiting: int(n[3]), Arrival: n[0]}
	switch words {
	case 2:
		return wire.Tuple{Status: wire.Granted, Now: n[0], Token: uint64(n[1])}
	case 4:
		return t
	case 5:
		t.Status, t.Place, t.Arrival = wire.Full, -1, n[0]-n[4]
		return t
	}
	return wire.Tuple{}
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

// DecodeChecks reads the reply of a script that looks at several tickets: the server's time, the highest token that it has
// seen, and what it says of each.
func (s *Script) DecodeChecks(res rueidis.RedisResult, tickets int) (now int64, token uint64, seen []wire.Glance, err error) {
	all, err := res.AsIntSlice()
	if err != nil {
		return 0, 0, nil, err
	}
	if len(all) != 2+2*tickets {
		return 0, 0, nil, fmt.Errorf("lua: %s: %d fields: %w", s.Name, len(all), errShape)
	}
	for i := 2; i < len(all); i += 2 {
		seen = append(seen, wire.Glance{Place: int(all[i]), Until: all[i+1]})
	}
	return all[0], uint64(all[1]), seen, nil
}

func (s *Script) decodeLists(r *wire.Tuple, grants, states rueidis.RedisMessage) error {
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
		ticket, before, _ := strings.Cut(ticket, " "+wire.EndingMark)
		r.Grants = append(r.Grants, wire.Grant{Ticket: ticket, Token: uint64(token), At: r.Now, Until: until, Before: before})
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
