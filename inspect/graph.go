package inspect

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A board is the names that are held and waited for, as one look has found them.
type board struct {
	names   []*contest
	who     map[string]string // of a client, from anything that it holds or waits for
	waits   int
	partial bool
}

// A contest is one name.
type contest struct {
	kind, name string
	limit      int64
	holds      []*stake
	queue      []*stake // in its order
}

// A stake is a ticket that holds or waits.
type stake struct {
	at      *contest
	client  string
	number  uint64 // the client's own count of its calls: a later call has a higher one
	permits int64
	holder  lease.Holder // if it holds
	waiter  lease.Waiter // if it waits
	place   int          // from 1, if it waits
	stuck   bool         // it waits for what does not come free
	beside  bool         // it waits beside a hold of the same client, which tells nothing of that hold
}

// newStake reads the text of a ticket: client:number:kind:permits:lease:grant.
func newStake(at *contest, ticket string) (*stake, bool) {
	f := strings.Split(ticket, ":")
	if len(f) != 6 {
		return nil, false
	}
	number, err1 := strconv.ParseUint(f[1], 10, 64)
	permits, err2 := strconv.ParseInt(f[3], 10, 64)
	return &stake{at: at, client: f[0], number: number, permits: permits}, err1 == nil && err2 == nil
}

// add takes a name into the board if anybody waits for what others hold. It reports whether there is room for more.
func (b *board) add(n Listed) bool {
	for _, h := range n.Info.Holders {
		b.know(h.Client, h.Who)
	}
	for _, w := range n.Info.Queue {
		b.know(w.Client, w.Who)
	}
	isKind := func(p *lua.Protocol) bool { return p.Kind == n.Kind }
	if n.Err != nil || !n.Info.Held || n.Info.Waiting == 0 || !slices.ContainsFunc(contended, isKind) {
		return true
	}
	at := &contest{kind: n.Kind, name: n.Name, limit: n.Info.Limit}
	for _, h := range n.Info.Holders {
		s, ok := newStake(at, h.Ticket)
		if ok && h.Left > 0 { // One whose lease has run out is freed by the next request.
			s.holder, s.permits = h, h.Permits
			at.holds = append(at.holds, s)
		}
	}
	for i, w := range n.Info.Queue {
		if s, ok := newStake(at, w.Ticket); ok {
			s.waiter, s.place = w, i+1
			at.queue = append(at.queue, s)
		}
	}
	b.names = append(b.names, at)
	b.waits += len(at.queue)
	if n.Info.Waiting > len(n.Info.Queue) || len(n.Info.Holders) == graphTickets {
		b.partial = true
	}
	if b.waits >= graphWaits {
		b.partial = true
		return false
	}
	return true
}

// know notes who a client is, if that is known.
func (b *board) know(client, who string) {
	if who == "" {
		return
	}
	if b.who == nil {
		b.who = make(map[string]string)
	}
	b.who[client] = who
}

// keep leaves of the board what an earlier one had too: the same holds and the same waits.
func (b *board) keep(earlier *board) {
	type key struct{ kind, name, ticket string }
	tokens, waited := make(map[key]uint64), make(map[key]bool)
	for _, at := range earlier.names {
		for _, h := range at.holds {
			tokens[key{at.kind, at.name, h.holder.Ticket}] = h.holder.Token
		}
		for _, w := range at.queue {
			waited[key{at.kind, at.name, w.waiter.Ticket}] = true
		}
	}
	for _, at := range b.names {
		at.holds = slices.DeleteFunc(at.holds, func(h *stake) bool {
			token, held := tokens[key{at.kind, at.name, h.holder.Ticket}]
			return !held || token != h.holder.Token
		})
		at.queue = slices.DeleteFunc(at.queue, func(w *stake) bool {
			return !waited[key{at.kind, at.name, w.waiter.Ticket}]
		})
	}
}

// reduce finds the waits that cannot end. It supposes that a client that can go on does, and gives back what it holds: what
// is left then waits in a circle. A hold goes on unless its client waits, by a later call, for what does not come free.
// A wait for a name that the client holds itself does not count: another part of the program has that hold, and the wait
// ends when it gives it back.
func (b *board) reduce() (stuck []*stake) {
	later := make(map[string]uint64) // of a client, its last call that is stuck
	for _, at := range b.names {
		at.mark()
	}
	for changed := true; changed; {
		changed = false
		clear(later)
		for _, at := range b.names {
			for _, w := range at.queue {
				if w.stuck && !w.beside {
					later[w.client] = max(later[w.client], w.number)
				}
			}
		}
		for _, at := range b.names {
			changed = at.serve(later) || changed
		}
	}
	for _, at := range b.names {
		for _, w := range at.queue {
			if w.stuck {
				stuck = append(stuck, w)
			}
		}
	}
	return stuck
}

// mark takes all waits for stuck, and finds those of clients that hold the name.
func (at *contest) mark() {
	holds := make(map[string]bool)
	for _, h := range at.holds {
		holds[h.client] = true
	}
	for _, w := range at.queue {
		w.stuck, w.beside = true, holds[w.client]
	}
}

// serve lets those at the head of the queue go that fit into what will come free, in their order, and reports whether
// there was one.
func (at *contest) serve(later map[string]uint64) (served bool) {
	kept := int64(0) // permits that do not come back
	for _, h := range at.holds {
		if h.number < later[h.client] {
			kept += h.permits
		}
	}
	for _, w := range at.queue {
		if w.stuck && w.permits > at.limit-kept {
			return served
		}
		served = served || w.stuck
		w.stuck = false
	}
	return served
}

// named are the names at which the stuck wait or hold.
func (b *board) named(stuck []*stake) []Listed {
	clients := make(map[string]bool)
	for _, w := range stuck {
		clients[w.client] = true
	}
	isStuck := func(s *stake) bool { return clients[s.client] }
	var names []Listed
	for _, at := range b.names {
		if slices.ContainsFunc(at.queue, isStuck) || slices.ContainsFunc(at.holds, isStuck) {
			names = append(names, Listed{Kind: at.kind, Name: at.name})
		}
	}
	return names
}

// graph is what there is to tell of the board.
func (b *board) graph(stuck []*stake) Graph {
	g := Graph{Stuck: len(stuck), Partial: b.partial}
	for _, at := range b.names {
		for _, w := range at.queue {
			g.Waits = append(g.Waits, b.wait(w))
		}
	}
	slices.SortStableFunc(g.Waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Place, b.Place))
	})
	return g
}

func (b *board) wait(w *stake) Wait {
	return Wait{
		Kind: w.at.kind, Name: w.at.name, Client: w.client, Who: b.who[w.client],
		Ticket: w.waiter.Ticket, Place: w.place, Wait: w.waiter.Wait,
	}
}

// An edge leads from a waiter to one for whose end it waits, by what that one's client holds.
type edge struct{ to, hold *stake }

// edges are what keeps each of the stuck waiting, by the others among them.
func edges(stuck []*stake) map[*stake][]edge {
	of := make(map[string][]*stake) // by client
	for _, w := range stuck {
		if !w.beside {
			of[w.client] = append(of[w.client], w)
		}
	}
	found := make(map[*stake][]edge)
	for _, w := range stuck {
		if w.beside {
			continue
		}
		for _, h := range w.at.holds {
			for _, next := range of[h.client] {
				if h.number < next.number {
					found[w] = append(found[w], edge{next, h})
				}
			}
		}
	}
	return found
}

// cycles names the shortest cycle through each of the stuck, without those that share somebody with one before.
func (b *board) cycles(stuck []*stake) (found []Cycle) {
	next := edges(stuck)
	slices.SortStableFunc(stuck, func(a, b *stake) int { return cmp.Compare(b.waiter.Wait, a.waiter.Wait) })
	named := make(map[*stake]bool)
	for _, w := range stuck {
		if named[w] || len(found) == graphCycles {
			continue
		}
		var cycle Cycle
		fresh, at := true, w
		for _, e := range around(next, w) {
			fresh = fresh && !named[at]
			cycle, at = append(cycle, Link{b.wait(at), e.hold.holder}), e.to
		}
		if len(cycle) == 0 || !fresh {
			continue
		}
		for _, e := range around(next, w) {
			named[e.to] = true
		}
		found = append(found, cycle)
	}
	return found
}

// around returns the shortest way from a waiter back to it, if there is one.
func around(next map[*stake][]edge, from *stake) []edge {
	type step struct {
		before *stake
		edge   edge
	}
	came := make(map[*stake]step)
	for wave := []*stake{from}; len(wave) > 0; {
		var reached []*stake
		for _, at := range wave {
			for _, e := range next[at] {
				if _, been := came[e.to]; been {
					continue
				}
				came[e.to] = step{at, e}
				reached = append(reached, e.to)
				if e.to != from {
					continue
				}
				way := []edge{e}
				for at != from {
					way = append(way, came[at].edge)
					at = came[at].before
				}
				slices.Reverse(way)
				return way
			}
		}
		wave = reached
	}
	return nil
}
