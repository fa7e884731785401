package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// A subject is something to hold whose replies are cut. What is free of it, and how it is when somebody holds,
// is seen by another client.
type subject struct {
	lock    func(context.Context) (*lease.Lease, error)
	inspect func(context.Context) (lease.Info, error)
	used    int64
}

// subjects are one for each primitive that is held.
func subjects(mine, other *headwaiter.Client, name string) map[string]subject {
	s := semaphore.New(mine, name, 5)
	return map[string]subject{
		"lock":      {fairlock.New(mine, name).Lock, fairlock.New(other, name).Inspect, 1},
		"reentrant": {reentrant.New(mine, name).Lock, reentrant.New(other, name).Inspect, 1},
		"semaphore": {
			func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2) },
			semaphore.New(other, name, 5).Inspect, 2,
		},
		"reader": {rwlock.New(mine, name).RLock, rwlock.New(other, name).Inspect, 1},
	}
}

// Each reply of a cycle is cut in turn: to the ask, and to the end. What was asked for must have happened once.
func TestN4RepliesAreCut(t *testing.T) {
	t.Parallel()
	r := begin(t, "N4", through)
	other := r.dial()
	var cuts atomic.Int64
	rounds := either(60, 2500)
	var work sync.WaitGroup
	for kind := range subjects(other, other, "x") {
		p := kit.Proxy(t, r.server)
		s := subjects(r.dial(kit.Through(p)), other, "cut:"+kind)[kind]
		work.Go(func() {
			for i := range rounds {
				if err := s.cycle(t, p, i%2 == 0); err != nil {
					t.Errorf("%s, round %d: %v", kind, i, err)
					return
				}
			}
			n, _ := p.Lost()
			cuts.Add(int64(n))
		})
	}
	work.Wait()
	require.EqualValues(t, rounds*4, cuts.Load())
	lost := either(30, 300)
	n := 0
	r.proxy.LoseReplies(lost, func(command []string) bool {
		n++
		return isScript(command) && n%11 == 0 // Each kind of request has its turn.
	})
	kit.LostReplies(t, r.proxy.Faults, lost)
	r.everybody()
	r.finish()
}

// cycle holds once, with the reply to the ask or to the end cut, and looks at what the server has of it.
func (s subject) cycle(t *testing.T, p *faults.Proxy, ask bool) error {
	if ask {
		p.LoseReplies(1, isScript)
	}
	l, err := s.lock(t.Context())
	if err != nil {
		return err
	}
	info, err := s.inspect(t.Context())
	switch {
	case err != nil:
		return err
	case info.Used != s.used || len(info.Holders) != 1 || info.Waiting != 0 || info.Holder.Token != l.Token():
		return fmt.Errorf("while it is held: %+v", info)
	case l.Context().Err() != nil:
		return fmt.Errorf("lost: %w", context.Cause(l.Context()))
	}
	if !ask {
		p.LoseReplies(1, isScript)
	}
	if err := l.Release(t.Context()); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if info, err = s.inspect(t.Context()); err != nil {
		return err
	}
	if info.Used != 0 || info.Waiting != 0 {
		return fmt.Errorf("after the release: %+v", info)
	}
	return nil
}
