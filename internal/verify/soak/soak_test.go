package soak

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

var span = flag.Duration("soak.for", 20*time.Second, "how long the workers use the lock")

func TestMain(m *testing.M) {
	crowd.Main()
	leaks.Main(m)
}

const (
	workers = 16
	clients = 8
	holds   = 50 * time.Millisecond
	// turn is what a worker waits at least, if all others come before it.
	turn = workers * holds
	// victims are the tickets of a process that is killed.
	victims = 4
	// mostTurns is how many may be ahead of a call: one of each worker, and those.
	mostTurns = workers + victims
	// deaths is how often a process that waits is killed.
	deaths = 3 * time.Second
	// farFromHead is how many must be ahead of a process that is killed.
	farFromHead = workers / 2
)

// soak is one run.
type soak struct {
	t       *testing.T
	server  *redistest.Server
	start   time.Time
	stalls  *kit.Stalls
	ctx     context.Context // ends when no more is to be begun
	clients []*headwaiter.Client
	work    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	waits  waits
	gaveUp int
	killed int
	wrong  []string
}

func TestNobodyIsOvertakenAndNothingGrows(t *testing.T) {
	s := &soak{t: t, server: redistest.Start(t), start: time.Now(), stalls: kit.WatchStalls(t)}
	name := kit.Name(t)
	truth := check.NewTruth(lua.Fairlock.Keys("headwaiter", name), 0)
	stop := check.Follow(t, s.server, truth.Feed)
	ctx, cancel := context.WithTimeout(context.Background(), *span)
	defer cancel()
	s.ctx = ctx
	for range clients {
		s.clients = append(s.clients, kit.Dial(t, s.server))
	}
	for i := range workers {
		m := fairlock.New(s.clients[i%clients], name)
		s.work.Go(func() { s.worker(m, rand.New(rand.NewPCG(uint64(i), 5))) })
	}
	s.work.Go(func() { s.killWaiters(name) })
	samples := s.watch()
	kit.All(t, &s.work)
	stop()
	truth.Settle()

	s.report(truth, samples)
	s.judge(truth, samples)
	s.leavesNothing()
}

// worker takes and releases the lock. One call in six gives up soon.
func (s *soak) worker(m *fairlock.Mutex, rng *rand.Rand) {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(context.Background())
		if rng.IntN(6) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(1+rng.IntN(600))*time.Millisecond)
		}
		called := time.Since(s.start)
		l, err := m.Lock(ctx)
		cancel()
		got := time.Since(s.start)
		if err != nil {
			s.note(func() {
				s.gaveUp++
				if !errors.Is(err, context.DeadlineExceeded) {
					s.wrong = append(s.wrong, err.Error())
				}
			})
			continue
		}
		time.Sleep(holds) // The work.
		released := time.Since(s.start)
		stood := s.stalls.Within(s.start.Add(called), s.start.Add(got))
		s.note(func() {
			if why := s.waits.add(hold{got, released}, called, stood); why != "" {
				s.wrong = append(s.wrong, why)
			}
		})
		if err := l.Release(context.Background()); err != nil {
			s.note(func() { s.wrong = append(s.wrong, err.Error()) })
		}
	}
}

func (s *soak) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// killWaiters starts a process again and again that waits for the lock, and kills it when it does.
func (s *soak) killWaiters(name string) {
	tick := time.NewTicker(deaths)
	defer tick.Stop()
	ours := map[string]bool{}
	for _, c := range s.clients {
		ours[c.ID()] = true
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		p := crowd.Start(s.t, crowd.Plan{Addr: s.server.Addr(), Names: []string{name}, Clients: 2, Waiters: victims / 2, Lease: lease.DefaultLease})
		n, ahead, err := s.strangers(name, ours)
		for ; n == 0 && err == nil && s.ctx.Err() == nil; n, ahead, err = s.strangers(name, ours) {
		}
		if n > 0 && ahead < farFromHead {
			// Too near to be sure that it dies as one that waits: what it was granted would last for its grant lease.
			p.Await(crowd.Released, victims, kit.Patience)
			n = 0
		}
		p.Kill()
		s.note(func() {
			s.killed += n
			if err != nil {
				s.wrong = append(s.wrong, err.Error())
			}
		})
	}
}

// strangers is how many tickets wait that are not of our clients, and how many are ahead of the first of them.
func (s *soak) strangers(name string, ours map[string]bool) (n, ahead int, err error) {
	info, err := fairlock.New(s.clients[0], name).Inspect(context.Background())
	for i, w := range info.Queue {
		if !ours[w.Client] {
			if n == 0 {
				ahead = i
			}
			n++
		}
	}
	return n, ahead, err
}
