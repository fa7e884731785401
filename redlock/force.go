package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headwaiter/headwaiter/lease"
)

// ForceRelease takes m from its holder at all nodes, and lets the next in their queues have the votes. The holder is told
// by each of them; when too few votes are left, its context ends with the cause [lease.ErrForced]. Until then it may still
// act as the holder, so what it protects should look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token. It returns the first vote that it freed;
// [lease.ErrNotHeld] if there was none, [lease.ErrOtherToken] if the votes have another token. Where a majority of the
// nodes does not answer in time the hold may go on by their votes, and the error says so.
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

func (m *Mutex) force(ctx context.Context, token uint64) (freed lease.Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.set.timeout)
	defer cancel()
	votes, errs := make([]lease.Holder, len(m.nodes)), make([]error, len(m.nodes))
	var all sync.WaitGroup
	for i := range m.nodes {
		all.Go(func() { votes[i], errs[i] = m.nodes[i].queue.ForceRelease(ctx, token) })
	}
	all.Wait()
	var silent []error
	for i := len(votes) - 1; i >= 0; i-- {
		switch {
		case errors.Is(errs[i], lease.ErrInvalid):
			return freed, errs[i] // No node was asked.
		case errs[i] == nil || errors.Is(errs[i], lease.ErrUnwoken):
			freed = votes[i]
		case !errors.Is(errs[i], lease.ErrNotHeld) && !errors.Is(errs[i], lease.ErrOtherToken):
			silent = append(silent, errs[i])
		case err == nil || errors.Is(errs[i], lease.ErrOtherToken):
			err = errs[i]
		}
	}
	switch {
	case len(silent) >= len(m.nodes)/2+1:
		return freed, fmt.Errorf("%d of %d nodes did not answer, and may still hold it: %w", len(silent), len(m.nodes), errors.Join(silent...))
	case freed.Ticket != "":
		return freed, nil
	case err == nil:
		return freed, errors.Join(silent...)
	}
	return freed, err
}
