// Package identity is what scripts do with the keys of an identity, told a second time as plain Go: who has it, who had it
// before, and at which names each of them is still to be buried.
package identity

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	lasts  = 24 * 60 * stage.Minute // after the last use
	buried = 65                     // clients that are known to be dead, the newest
	atOnce = 256                    // names that a look returns
)

// An Identity is one of its keys, and those of the names of its clients.
type Identity struct {
	Known       bool
	Client      string // empty: a witness has taken it from the last one
	Incarnation int64
	Who         string
	Invocation  string
	Older       []string // that are to be buried
	Before      string   // the client from which it was taken, if no witness had said that it is dead: incarnation:who
	Twice       string   // when a client asked that had been replaced by this incarnation, and who it was
	Ends        int64

	Names map[string]*Names // by client
}

// Names are those that a client may have something of, with their numbers.
type Names struct {
	Of   map[string]int64
	Ends int64
}

// New returns an identity that nobody has, and that some clients may take.
func New(clients []string) *Identity {
	i := &Identity{Names: map[string]*Names{}}
	for _, c := range clients {
		i.Names[c] = &Names{Of: map[string]int64{}}
	}
	return i
}

// Expire removes the keys whose time has come.
func (i *Identity) Expire(now int64) {
	if i.Ends != 0 && i.Ends <= now {
		*i = Identity{Names: i.Names}
	}
	for _, n := range i.Names {
		if n.Ends != 0 && n.Ends <= now {
			*n = Names{Of: map[string]int64{}}
		}
	}
}

// State is what the keys of a server should hold: the identity, and the names of the clients.
func (i *Identity) State(now int64, clients []string) stage.State {
	hash := map[string]string{}
	if i.Known {
		hash = map[string]string{
			"client": i.Client, "incarnation": stage.Decimal(i.Incarnation), "who": i.Who, "invocation": i.Invocation,
			"before": i.Before, "twice": i.Twice,
		}
		if len(i.Older) > 0 {
			hash["older"] = strings.Join(i.Older, " ")
		}
	}
	s := stage.State{stage.Fields(hash, i.Ends, now)}
	for _, c := range clients {
		s = append(s, stage.Scores(i.Names[c].Of, i.Names[c].Ends, now))
	}
	return s
}

// give makes a client the present one. The one before is to be buried.
func (i *Identity) give(client string, incarnation int64, who, invocation string, now int64) {
	i.Before, i.Twice = "", ""
	if i.Client != "" {
		i.Older = append(i.Older, i.Client)
		if client != "" {
			i.Before = stage.Decimal(i.Incarnation) + ":" + i.Who
		}
	}
	i.Known, i.Client, i.Incarnation, i.Who, i.Invocation, i.Ends = true, client, incarnation, who, invocation, now+lasts
	i.bury(client)
}

// bury leaves those that are to be buried, but for one.
func (i *Identity) bury(but string) {
	i.Older = i.Older[max(0, len(i.Older)-buried):]
	i.Older = slices.DeleteFunc(slices.Clone(i.Older), func(c string) bool { return c == but })
}

// Raise is waitqueue/raise.
func (i *Identity) Raise(r lua.Incarnate, now int64) (reply []string) {
	free := r.Client != "" || i.Known && (r.Invocation == "" || r.Invocation == i.Invocation)
	if !free || i.Known && slices.Contains(r.Ours, i.Client) {
		return []string{status(wire.Refused), stage.Decimal(i.Incarnation)}
	}
	if !i.Known || i.Client != r.Client {
		invocation := r.Invocation
		if r.Client == "" {
			invocation = i.Invocation
		}
		i.give(r.Client, max(now, i.Incarnation+1), r.Who, invocation, now)
	}
	return append([]string{status(wire.Done), stage.Decimal(i.Incarnation)}, i.Older...)
}

// A Confirmation is a request of waitqueue/confirm.
type Confirmation struct {
	Client      string
	Incarnation int64
	Who         string
	Invocation  string
	Enter       map[string]int64
	Remove      map[string]int64
}

// Args are what the script gets.
func (r Confirmation) Args() []string {
	args := []string{r.Client, stage.Decimal(r.Incarnation), r.Who, r.Invocation}
	for _, name := range slices.Sorted(maps.Keys(r.Enter)) {
		args = append(args, name, stage.Decimal(r.Enter[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Remove)) {
		args = append(args, name, stage.Decimal(-r.Remove[name]))
	}
	return args
}

// Confirm is waitqueue/confirm.
func (i *Identity) Confirm(r Confirmation, now int64) wire.Status {
	answer := wire.Done
	if i.Known {
		i.Ends = now + lasts
	}
	if !i.Known || i.Client != r.Client {
		if i.Known && i.Incarnation >= r.Incarnation {
			i.Twice = stage.Decimal(now) + ":" + r.Who
			return wire.Refused
		}
		i.give(r.Client, r.Incarnation, r.Who, r.Invocation, now)
		answer = wire.Waiting
	}
	n := i.Names[r.Client]
	for name, number := range r.Enter {
		n.Of[name] = number
	}
	for name, number := range r.Remove {
		if n.Of[name] == number {
			delete(n.Of, name)
		}
	}
	n.keep(now)
	return answer
}

func (n *Names) keep(now int64) {
	n.Ends = now + lasts
	if len(n.Of) == 0 {
		n.Ends = 0
	}
}

// Graves is waitqueue/graves: done are names at which a client has been buried.
func (i *Identity) Graves(client string, done []string, now int64) (reply []string) {
	if i.Known {
		i.Ends = now + lasts
	}
	n := i.Names[client]
	for _, name := range done {
		delete(n.Of, name)
	}
	if len(n.Of) == 0 {
		n.Ends = 0
	}
	names := make([]string, 0, len(n.Of))
	for name := range n.Of {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if n.Of[a] != n.Of[b] {
			return int(n.Of[a] - n.Of[b])
		}
		return strings.Compare(a, b)
	})
	for _, name := range names[:min(len(names), atOnce)] {
		reply = append(reply, name, stage.Decimal(n.Of[name]))
	}
	if len(names) == 0 {
		i.bury(client)
	}
	return reply
}

func status(s wire.Status) string { return strconv.Itoa(int(s)) }
