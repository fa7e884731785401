package semaphore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// queue begins calls one behind the other, by two clients in turn.
func queue(t testing.TB, a, b *semaphore.Semaphore, wants ...int64) []*kit.Call[*lease.Lease] {
	t.Helper()
	calls := make([]*kit.Call[*lease.Lease], len(wants))
	info, err := a.Inspect(context.Background())
	require.NoError(t, err)
	for i, n := range wants {
		calls[i] = ask(context.Background(), []*semaphore.Semaphore{a, b}[i%2], n)
		kit.Waiting(t, info.Waiting+i+1, a.Inspect)
	}
	return calls
}

// pending asserts that none of the calls has returned.
func pending(t testing.TB, calls ...*kit.Call[*lease.Lease]) {
	t.Helper()
	for i, c := range calls {
		require.False(t, c.Returned(), "call %d", i)
	}
}

func TestARequestServesInTheOrderOfArrival(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		const limit = 5
		s, other := semaphores(t, a, b, limit)
		l := take(t, s, limit)
		wants := make([]int64, 20)
		for i := range wants {
			wants[i] = 1 + rand.Int64N(limit)
		}
		calls := queue(t, s, other, wants...)
		kit.Release(t, l)
		token, used := l.Token(), int64(0)
		var held []*lease.Lease
		var first int // of those that hold
		for i, c := range calls {
			for used+wants[i] > limit {
				pending(t, calls[i:]...)
				kit.Release(t, held[first])
				used -= wants[first]
				first++
			}
			l := c.Value(t)
			require.Greater(t, l.Token(), token, "tokens tell the order of the grants: %v", wants)
			token, used = l.Token(), used+wants[i]
			held = append(held, l)
		}
		for _, l := range held[first:] {
			kit.Release(t, l)
		}
		unused(t, s)
	})
}

func TestPriorityIsAHeadStart(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		plain, urgent := semaphores(t, c, kit.Dial(t, s), 2)
		urgent = semaphore.New(c, urgent.Name(), 2, headwaiter.WithPriority(100))
		l := take(t, plain, 2)
		late := queue(t, plain, plain, 2)[0]
		first := ask(t.Context(), urgent, 2)
		kit.Waiting(t, 2, plain.Inspect)
		kit.Release(t, l)
		l = first.Value(t)
		pending(t, late)
		kit.Release(t, l)
		kit.Release(t, late.Value(t))
	})
}

// resource is what the permits stand for. A hold uses so much of it from after its grant until before its
// release, and no tokens come twice.
type resource struct {
	limit  int64
	used   atomic.Int64
	most   atomic.Int64
	mu     sync.Mutex // guards tokens
	tokens map[uint64]bool
}

func (r *resource) use(t *testing.T, l *lease.Lease, n int64) {
	if now := r.used.Add(n); now > r.limit {
		t.Errorf("%d permits of %d are held", now, r.limit)
	} else if most := r.most.Load(); now > most {
		r.most.CompareAndSwap(most, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens[l.Token()] {
		t.Errorf("token %d was given twice", l.Token())
	}
	r.tokens[l.Token()] = true
}

// cycles acquires and releases from several goroutines, until each has done its rounds and ctx has ended.
func (r *resource) cycles(ctx context.Context, t *testing.T, s *semaphore.Semaphore, work *sync.WaitGroup, goroutines, rounds int) {
	for range goroutines {
		work.Go(func() {
			for i := 0; i < rounds || ctx.Err() == nil; i++ {
				n := 1 + rand.Int64N(r.limit)
				limited, cancel := context.WithTimeout(context.Background(), kit.Patience)
				l, err := s.Acquire(limited, n)
				cancel()
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				r.use(t, l, n)
				r.used.Add(-n)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
}

func TestNeverMoreThanTheLimitIsHeld(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		r := &resource{limit: 8, tokens: map[uint64]bool{}}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var work sync.WaitGroup
		for range 4 {
			r.cycles(over, t, semaphore.New(kit.Dial(t, s), kit.Name(t), r.limit), &work, 5, 12)
		}
		kit.All(t, &work)
		require.Len(t, r.tokens, 4*5*12)
		require.Greater(t, r.most.Load(), r.limit/2, "permits lie idle")
		x := semaphore.New(kit.Dial(t, s), kit.Name(t), r.limit)
		unused(t, x)
		available(t, x, r.limit)
	})
}

func TestNeverMoreThanTheLimitIsHeldWhileConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := &resource{limit: 8, tokens: map[uint64]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for range 4 {
		r.cycles(ctx, t, semaphore.New(kit.Dial(t, s), kit.Name(t), r.limit), &work, 4, 1)
	}
	killed := int64(0)
	ticks := time.NewTicker(100 * time.Millisecond) // The pause is part of the fault.
	defer ticks.Stop()
	for i := range 20 {
		<-ticks.C
		killed += s.Int("CLIENT", "KILL", "TYPE", "pubsub")
		if i%3 == 0 {
			killed += s.Int("CLIENT", "KILL", "TYPE", "normal")
		}
	}
	stop()
	kit.All(t, &work)
	t.Logf("%d holds while %d connections were killed", len(r.tokens), killed)
	require.Greater(t, killed, int64(20))
	require.Greater(t, len(r.tokens), 20)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), r.limit)
	unused(t, x)
	available(t, x, r.limit)
}
