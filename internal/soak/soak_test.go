package soak

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/check"
	"github.com/headwaiter/headwaiter/internal/crowd"
	"github.com/headwaiter/headwaiter/internal/kit"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

var span = flag.Duration("soak.for", 20*time.Second, "how long the workers use the lock")

func TestMain(m *testing.M) {
	crowd.Main()
	goleak.VerifyTestMain(m)
}

const (
	workers = 16
	clients = 8
	holds   = 50 * time.Millisecond
	// turn is what a worker waits at least, if all others come before it.
	turn = workers * holds
	// deaths is how often a process that waits is killed.
	deaths = 3 * time.Second
	// farFromHead is how many must be ahead of a process that is killed.
	farFromHead = workers / 2
	// probes is how often it is looked how late this machine is.
	probes = 10 * time.Millisecond
)

// soak is one run.
type soak struct {
	t       *testing.T
	server  *redistest.Server
	start   time.Time
	ctx     context.Context // ends when no more is to be begun
	clients []*waitqueue.Client
	work    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	held   [1024]hold // the last ones, round and round
	got    int
	gaveUp int
	killed int
	wrong  []string
	worst  wait
	waited time.Duration // the longest wait
	late   time.Duration // by how much a timer was late, at the most
	stood  time.Duration // by how much all of them were: time in which this machine had no turn for us
}

// hold is the time of one, from the start.
type hold struct{ got, released time.Duration }

// wait is one, and how long the lock was held meanwhile.
type wait struct{ took, held, idle time.Duration }

func TestNobodyIsOvertakenAndNothingGrows(t *testing.T) {
	s := &soak{t: t, server: redistest.Start(t), start: time.Now()}
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
	over := make(chan struct{})
	var probe sync.WaitGroup
	probe.Go(func() { s.probe(over) })
	s.work.Go(func() { s.killWaiters(name) })
	samples := s.watch()
	kit.All(t, &s.work)
	close(over)
	probe.Wait()
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
		called, before := time.Since(s.start), s.stoodStill()
		l, err := m.Lock(ctx)
		cancel()
		got, after := time.Since(s.start), s.stoodStill()
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
		s.note(func() { s.took(called, got, released, after-before) })
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

// took notes a hold and judges its wait. The lock is held.
func (s *soak) took(called, got, released, stood time.Duration) {
	w := wait{took: got - called}
	for _, h := range s.held {
		w.held += max(0, min(h.released, got)-max(h.got, called))
	}
	w.idle = w.took - w.held
	if w.idle > s.worst.idle {
		s.worst = w
	}
	s.waited = max(s.waited, w.took)
	// A turn is what the holds of the others took, which is longer on a busy machine than what they were to take;
	// and for as long as the machine had no turn for a timer, it had none for a hand-off.
	if limit := max(turn, w.held)*3/2 + stood; w.took > limit {
		s.wrong = append(s.wrong, "at "+got.String()+" a wait of "+w.took.String()+", more than "+limit.String())
	}
	s.held[s.got%len(s.held)] = hold{got, released}
	s.got++
}

// probe measures how late the timers of this machine are, until the last waits are over.
func (s *soak) probe(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		begun := time.Now()
		time.Sleep(probes) // How late it returns is what is measured.
		late := time.Since(begun) - probes
		s.note(func() {
			s.late = max(s.late, late)
			s.stood += late
		})
	}
}

func (s *soak) stoodStill() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stood
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
		p := crowd.Start(s.t, crowd.Plan{Addr: s.server.Addr(), Names: []string{name}, Clients: 2, Waiters: 2, Lease: waitqueue.DefaultLease})
		n, ahead, err := s.strangers(name, ours)
		for ; n == 0 && err == nil && s.ctx.Err() == nil; n, ahead, err = s.strangers(name, ours) {
		}
		if n > 0 && ahead < farFromHead {
			// Too near to be sure that it dies as one that waits: what it was granted would last for its grant lease.
			p.Await(crowd.Released, 4, kit.Patience)
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
