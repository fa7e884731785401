package waitqueue

// state is where a ticket is in its life; see the package documentation. Only [ticket.to] changes it.
type state uint8

const (
	idling state = iota
	asking
	subscribing
	waiting
	confirming
	held
	acting // at a barrier: it runs the action before the others pass
	passed // the event that it waited for has come
	ending
	ended
)

// states is a set of them.
type states uint16

func in(all ...state) (set states) {
	for _, st := range all {
		set |= 1 << st
	}
	return set
}

func (set states) has(st state) bool { return set&(1<<st) != 0 }

// A step leads from any of some states to another.
type step struct {
	to   state
	when string
	from states
}

// living are the states before the end.
const living = 1<<ending - 1

// steps are all that there are. A test holds the list in the package documentation to it.
var steps = [...]step{
	{asking, "an ask is sent", in(idling)},
	{idling, "one of several names: it asks again when its client hears", in(asking)},
	{subscribing, "not queued, because its client cannot hear", in(asking, waiting)},
	{waiting, "queued", in(asking, subscribing)},
	{held, "granted", in(idling, asking, subscribing, waiting)},
	{held, "the renewal says so, or a newer grant has come", in(confirming)},
	{confirming, "granted long ago, or its terms want more: a renewal decides", in(idling, asking, subscribing, waiting, held)},
	{waiting, "the grant ran out before it was taken", in(confirming, held)},
	{idling, "the same, without a place; or it gives way behind a restart", in(confirming, held)},
	{acting, "the last at a barrier, which runs the action first", in(asking)},
	{passed, "the event has come", in(asking, subscribing, waiting, acting)},
	{ending, "release, loss, close, or the caller gave up", living},
	{ended, "the end was acknowledged or given up", in(ending)},
	{ended, "the server has nothing of it", in(idling, asking, acting, passed)},
	{ended, "of a latch: the server never has anything of it", in(subscribing, waiting)},
}

// leads has the states that come after each.
var leads = func() (after [ended + 1]states) {
	for _, s := range steps {
		for st := range after {
			if s.from.has(state(st)) {
				after[st] |= in(s.to)
			}
		}
	}
	return after
}()

// to takes the ticket to another state, and is all that does. To stay is no step. The site's lock is held.
//
// A step that is not in the table is not taken, and counted in [Stats]; the tests demand that there is none. It does
// not panic: it runs under locks and on the reader of a connection, in a program that has done nothing wrong. A ticket
// that stays where it is has its timer (I5) and its lease, so it ends.
func (t *ticket) to(next state) {
	switch {
	case t.state == next:
	case leads[t.state].has(next):
		if t.state = next; in(waiting, confirming, held).has(next) {
			t.bound = nil // It has had a place, or better (I11).
		}
	default:
		t.site.client.stats.refused.Add(1)
	}
}
