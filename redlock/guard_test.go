package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// A guard stands at what a lock protects. It notes two that are in at once, tokens that do not rise, and for how long
// nobody came.
type guard struct {
	mu      sync.Mutex // guards the fields below
	inside  *lease.Lease
	token   uint64
	entries int
	newest  time.Time
	longest time.Duration
	faults  []string
}

func newGuard() *guard { return &guard{newest: time.Now()} }

func (g *guard) enter(l *lease.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside != nil && g.inside.Context().Err() == nil {
		g.faults = append(g.faults, fmt.Sprintf("token %d is in beside %d", l.Token(), g.inside.Token()))
	}
	if l.Token() <= g.token {
		g.faults = append(g.faults, fmt.Sprintf("token %d after %d", l.Token(), g.token))
	}
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.newest))
	g.inside, g.token, g.newest = l, l.Token(), now
	g.entries++
}

func (g *guard) leave(l *lease.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == l {
		g.inside = nil
	}
}

// sound checks that nothing was noted, and returns how many came and how long nobody did.
func (g *guard) sound(t testing.TB) (entries int, longest time.Duration) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(t, g.faults)
	return g.entries, max(g.longest, time.Since(g.newest))
}

// reached waits until so many more have come.
func (g *guard) reached(t testing.TB, more int) {
	t.Helper()
	g.mu.Lock()
	want := g.entries + more
	g.mu.Unlock()
	kit.Eventually(t, fmt.Sprintf("%d more holds", more), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.entries >= want
	})
}

// contend lets mutexes pass the guard in turns until stop is called, which waits for their end.
func (g *guard) contend(t testing.TB, mutexes ...*redlock.Mutex) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for _, m := range mutexes {
		workers.Go(func() {
			for ctx.Err() == nil {
				l, err := m.Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("to lock among others: %v", err)
					}
					return
				}
				g.enter(l)
				g.leave(l)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("to release among others: %v", err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		cancel()
		kit.All(t, &workers)
	}
}
