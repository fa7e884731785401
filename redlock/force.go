package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// ForceRelease takes m from its holder at all nodes, and lets the next in their queues have the votes. The holder is told
// by each of them; when too few votes are left, its context ends with the cause [lease.ErrForced]. Until then it may still
// act as the holder, so what it protects should look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token: all its votes are freed, also those that nodes have given
// anew since, by other tokens. It returns the first vote that it freed; [lease.ErrNotHeld] if there was none,
// [lease.ErrOtherToken] if it is held with another token. If too many nodes do not answer in time, the hold may go on
// by their votes, or may be there unseen: the error says so; votes that did answer are freed all the same.
func (m *Mutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	given(ctx)
	freed, err := lease.Holder{}, m.err
	if err == nil {
		freed, err = m.force(ctx, token)
	}
	if err != nil {
		return freed, fmt.Errorf("redlock: force release %q: %w", m.label(), err)
	}
	return freed, nil
}

// A found is what a force knows of one node.
type found struct {
	holder lease.Holder // who has its vote; the zero one if nobody has, or nobody knows
	freed  bool
	err    error // why that is not known, or the vote was not freed
}

func (m *Mutex) force(ctx context.Context, token uint64) (lease.Holder, error) {
	nodes := make([]found, len(m.nodes))
	m.beside(ctx, func(ctx context.Context, i int) { nodes[i].look(ctx, &m.nodes[i]) })
	for i := range nodes {
		if errors.Is(nodes[i].err, lease.ErrInvalid) {
			return lease.Holder{}, nodes[i].err // No node was asked.
		}
	}
	call, known := callOf(nodes, token)
	if known {
		m.beside(ctx, func(ctx context.Context, i int) { nodes[i].free(ctx, &m.nodes[i], call, token) })
	}
	return m.verdict(nodes, token)
}

// beside does something at all nodes at once, within the time-out of a node.
func (m *Mutex) beside(ctx context.Context, do func(ctx context.Context, i int)) {
	ctx, cancel := context.WithTimeout(ctx, m.set.timeout)
	defer cancel()
	var all sync.WaitGroup
	for i := range m.nodes {
		all.Go(func() { do(ctx, i) })
	}
	all.Wait()
}

// look asks who has the vote of a node.
func (f *found) look(ctx context.Context, n *node) {
	info, err := n.queue.Inspect(ctx)
	f.holder, f.err = info.Holder, err
}

// callOf finds the call that holds by a token, and reports whether it was seen. A vote tells the token by its node's token,
// or by its ticket. Of each quorum at least one does: the votes by which the call came to hold tell it, which were a quorum,
// and so do those that it has asked for since.
func callOf(nodes []found, token uint64) (call uint64, known bool) {
	for i := range nodes {
		switch vote := wire.VoteOf(nodes[i].holder.Ticket); {
		case nodes[i].holder.Ticket == "":
		case token == 0:
			return 0, true
		case nodes[i].holder.Token == token || vote.Token == token:
			return vote.Call, true
		}
	}
	return 0, false
}

// mostLooks is how often a force looks at a node whose vote is another's each time it comes to free it.
const mostLooks = 5

// free frees the vote of a node if it is the call's, or has the token; any where the token is 0. The token of a vote may rise
// between the look and the force, and the vote may become another's.
func (f *found) free(ctx context.Context, n *node, call, token uint64) {
	for range mostLooks {
		h := f.holder
		if f.err != nil || h.Ticket == "" || token != 0 && h.Token != token && (call == 0 || wire.VoteOf(h.Ticket).Call != call) {
			return
		}
		_, err := n.queue.ForceRelease(ctx, h.Token)
		switch {
		case err == nil || errors.Is(err, lease.ErrUnwoken):
			f.freed = true
			return
		case errors.Is(err, lease.ErrNotHeld):
			f.holder = lease.Holder{}
			return
		case !errors.Is(err, lease.ErrOtherToken):
			f.err = err
			return
		}
		f.look(ctx, n)
	}
	f.err = cmp.Or(f.err, errRises)
}

var errRises = errors.New("its vote had another token at each look")

// verdict is what a force has come to.
func (m *Mutex) verdict(nodes []found, token uint64) (freed lease.Holder, err error) {
	var silent []error
	err = lease.ErrNotHeld
	others := make(map[uint64]int) // votes that stay, by calls
	for i := len(nodes) - 1; i >= 0; i-- {
		switch f := &nodes[i]; {
		case f.err != nil:
			silent = append(silent, f.err)
		case f.freed:
			freed = f.holder
			freed.Token = cmp.Or(token, freed.Token)
		case f.holder.Ticket != "":
			others[wire.VoteOf(f.holder.Ticket).Call]++
			err = fmt.Errorf("%w: node %d has %d", lease.ErrOtherToken, i+1, f.holder.Token)
		}
	}
	most := 0 // votes that one call may have yet
	if freed.Ticket == "" && len(silent) > 0 {
		for _, n := range others {
			most = max(most, n)
		}
	}
	switch {
	case len(silent)+most >= m.quorum:
		return freed, fmt.Errorf("%d of %d nodes did not answer, and may still hold it: %w", len(silent), len(m.nodes), errors.Join(silent...))
	case freed.Ticket != "":
		return freed, nil
	}
	return freed, err
}
