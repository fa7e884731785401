package inspect

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/wire"
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
	gone       int      // how many of the queue are found to go on
	due        bool     // it is to be looked at
}

// A stake is a ticket that holds or waits.
type stake struct {
	at         *contest
	client     string
	number     uint64 // the client's own count of its calls: a later call has a higher one
	permits    int64
	holder     lease.Holder // if it holds
	waiter     lease.Waiter // if it waits
	place      int          // from 1, if it waits
	stuck      bool         // it waits for what does not come free
	apart      bool         // the same client also holds this name: the wait says nothing of that hold
	before, by *stake       // how a search has come here: from whom, by what hold
}

// newStake reads the text of a ticket: client:number:kind:permits:lease:grant. The number may end with a vote.
func newStake(at *contest, ticket string) (*stake, bool) {
	f := strings.Split(ticket, ":")
	if len(f) != 6 {
		return nil, false
	}
	number, err1 := strconv.ParseUint(wire.CutVote(f[1]), 10, 64)
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
	if !slices.ContainsFunc(contended, isKind) {
		return true
	}
	b.partial = b.partial || n.Err != nil // Who waits for it is not known.
	if n.Err != nil || !n.Info.Held || n.Info.Waiting == 0 {
		return true
	}
	at := &contest{kind: n.Kind, name: n.Name, limit: n.Info.Limit}
	for _, h := range n.Info.Holders {
		s, ok := newStake(at, h.Ticket)
		// One whose lease has run out is freed by the next request, and one that nothing renews ends by itself.
		if ok && h.Left > 0 && !h.Final {
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
// ends when it gives it back. A name is looked at again only when what a client that holds it waits for has changed.
func (b *board) reduce(ctx context.Context) (stuck []*stake, err error) {
	held := make(map[string][]*contest) // by client
	var waits []*stake
	for _, at := range b.names {
		at.mark()
		waits = append(waits, at.queue...)
		for _, h := range at.holds {
			held[h.client] = append(held[h.client], at)
		}
	}
	of := byClient(waits)            // of each, those that are stuck or not its last call
	later := make(map[string]uint64) // of a client, its last call that is stuck
	for client, waits := range of {
		later[client] = waits[0].number
	}
	for todo := slices.Clone(b.names); len(todo) > 0; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at := todo[len(todo)-1]
		todo, at.due = todo[:len(todo)-1], false
		for _, w := range at.serve(later) {
			before := later[w.client]
			for len(of[w.client]) > 0 && !of[w.client][0].stuck {
				of[w.client] = of[w.client][1:]
			}
			later[w.client] = 0
			if left := of[w.client]; len(left) > 0 {
				later[w.client] = left[0].number
			}
			if later[w.client] == before {
				continue
			}
			for _, other := range held[w.client] {
				if !other.due {
					todo, other.due = append(todo, other), true
				}
			}
		}
	}
	return slices.DeleteFunc(waits, func(w *stake) bool { return !w.stuck }), nil
}

// byClient are the waits of each client that count, its last call first.
func byClient(waits []*stake) map[string][]*stake {
	of := make(map[string][]*stake)
	for _, w := range waits {
		if !w.apart {
			of[w.client] = append(of[w.client], w)
		}
	}
	for _, calls := range of {
		slices.SortStableFunc(calls, func(a, b *stake) int { return cmp.Compare(b.number, a.number) })
	}
	return of
}

// mark takes all waits for stuck, and finds those of clients that hold the name.
func (at *contest) mark() {
	holds := make(map[string]bool)
	for _, h := range at.holds {
		holds[h.client] = true
	}
	at.gone, at.due = 0, true
	for _, w := range at.queue {
		w.stuck, w.apart = true, holds[w.client]
	}
}

// serve lets those at the head of the queue go that fit into what will come free, in their order, and returns them.
func (at *contest) serve(later map[string]uint64) []*stake {
	kept := int64(0) // permits that do not come back
	for _, h := range at.holds {
		if h.number < later[h.client] {
			kept += h.permits
		}
	}
	first := at.gone
	for at.gone < len(at.queue) && at.queue[at.gone].permits <= at.limit-kept {
		at.queue[at.gone].stuck = false
		at.gone++
	}
	return at.queue[first:at.gone]
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

// cycles names the shortest cycle through each of the stuck, without those that share somebody with one before.
func (b *board) cycles(ctx context.Context, stuck []*stake) (found []Cycle, err error) {
	s := search{of: byClient(stuck), down: make(map[string]int), seen: make(map[*contest]bool)}
	slices.SortStableFunc(stuck, func(a, b *stake) int { return cmp.Compare(b.waiter.Wait, a.waiter.Wait) })
	named := make(map[*stake]bool)
	for _, w := range stuck {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(found) == graphCycles {
			break
		}
		if named[w] {
			continue
		}
		var cycle Cycle
		fresh, at, way := true, w, s.around(w)
		for _, e := range way {
			fresh = fresh && !named[at]
			cycle, at = append(cycle, Link{b.wait(at), e.hold.holder}), e.to
		}
		if len(cycle) == 0 || !fresh {
			continue
		}
		for _, e := range way {
			named[e.to] = true
		}
		found = append(found, cycle)
	}
	return found, nil
}

// A search goes along the waits of the clients. It is used again for the next, as there may be many.
type search struct {
	of   map[string][]*stake // of each client, its last call first
	down map[string]int      // how many of them have been reached
	seen map[*contest]bool
	wave []*stake
}

// around returns the shortest way from a waiter back to it, if there is one. Who waits for a name waits for the same as all
// others there, and who waits for a client's hold for those of its calls that are later: so each name is looked at once,
// and each client's calls down to the one that has been reached.
func (s *search) around(from *stake) []edge {
	if from.apart {
		return nil
	}
	clear(s.down)
	clear(s.seen)
	s.wave = append(s.wave[:0], from)
	for i := 0; i < len(s.wave); i++ {
		at := s.wave[i]
		if s.seen[at.at] {
			continue
		}
		s.seen[at.at] = true
		for _, h := range at.at.holds {
			calls, n := s.of[h.client], s.down[h.client]
			for ; n < len(calls) && h.number < calls[n].number; n++ {
				calls[n].before, calls[n].by = at, h
				s.wave = append(s.wave, calls[n])
				if calls[n] == from {
					return from.way()
				}
			}
			s.down[h.client] = n
		}
	}
	return nil
}

// way is how a search has come from a waiter back to it.
func (w *stake) way() []edge {
	way := []edge{{w, w.by}}
	for at := w.before; at != w; at = at.before {
		way = append(way, edge{at, at.by})
	}
	slices.Reverse(way)
	return way
}
