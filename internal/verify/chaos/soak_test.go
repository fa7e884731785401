package chaos

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// brieflySoaked is how long it lasts among other cases. What lasts longer is alone in its process.
	brieflySoaked = 10 * time.Second

	workers = 16
	clients = 8
	holds   = 50 * time.Millisecond
	// turn is what a worker waits at least, if all others come before it.
	turn = workers * holds
	// victims are the tickets of a process that is killed.
	victims = 4
	// mostIdle is in how much of a wait nobody may hold: a look comes after two seconds.
	mostIdle = time.Second
	// mostTurns is how many may be ahead of a call: one of each worker, and those.
	mostTurns = workers + victims
	// deaths is how often a process that waits is killed.
	deaths = 2 * time.Second
	// farFromHead is how many must be ahead of a process that is killed.
	farFromHead = workers / 2
)

var lasts = flag.Duration("soak.for", brieflySoaked, "how long the workers of the soak use their lock")

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

// Sixteen workers use one lock, with calls that give up and waiting processes that are killed: nobody is overtaken, nobody
// waits for more turns than there are workers, or for long while nobody holds, and nothing grows.
//
// The campaign can run it for 20 minutes, as long as four of the five minutes' periods after which another library's fair
// lock expels clients that wait and live. Only waiters die here: a holder that dies costs the others its lease, by design, and
// no turn is as long as that.
func nobodyIsOvertakenAndNothingGrows(t *testing.T) {
	s := &soak{t: t, server: redistest.Start(t), start: time.Now(), stalls: kit.WatchStalls(t)}
	name := kit.Name(t)
	truth := check.NewTruth(lua.Fairlock.Keys("headwaiter", name), 0)
	stop := check.Follow(t, s.server, truth.Feed)
	ctx, cancel := context.WithTimeout(context.Background(), *lasts+kit.Patience)
	defer cancel()
	s.ctx = ctx
	for range clients {
		s.clients = append(s.clients, kit.Dial(t, s.server))
	}
	for i := range workers {
		m := fairlock.New(s.clients[i%clients], name)
		s.work.Go(func() { s.worker(m, rand.New(rand.NewPCG(uint64(i), 5))) })
	}
	s.work.Go(func() {
		defer cancel()
		s.killWaiters(name)
	})
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
			if why := s.waits.add(stay{got, released}, called, stood); why != "" {
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

// killWaiters starts a process again and again that waits for the lock, and kills it when it does, until the time is over
// and one has died.
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
		done := false
		if s.note(func() { done = s.killed > 0 && time.Since(s.start) > *lasts }); done {
			return
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

// sample is what there is of everything at one moment.
type sample struct{ heap, goroutines, redis, channels, keys int }

// samples is how many are taken in a run.
const samples = 20

// watch takes samples until the run is over.
func (s *soak) watch() (all []sample) {
	tick := time.NewTicker(*lasts / samples)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return all
		case <-tick.C:
			all = append(all, s.sample())
		}
	}
}

func (s *soak) sample() sample {
	x := sample{
		redis: number(s.t, s.server.Text("INFO", "memory"), "used_memory"), channels: len(s.server.List("PUBSUB", "CHANNELS")),
		keys: len(s.server.List("KEYS", "*{*")), // Without the clients' identities, which are forgotten in a minute.
	}
	if *lasts > brieflySoaked {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		x.heap, x.goroutines = int(m.HeapAlloc), runtime.NumGoroutine()
	}
	return x
}

// largest is the largest of each in some samples.
func largest(all []sample) (x sample) {
	for _, y := range all {
		x = sample{max(x.heap, y.heap), max(x.goroutines, y.goroutines), max(x.redis, y.redis), max(x.channels, y.channels), max(x.keys, y.keys)}
	}
	return x
}

func (s *soak) report(truth *check.Truth, all []sample) {
	s.t.Logf("%d holds, %d calls gave up, %d waiters killed, %d grants, %d tickets dropped of %d clients",
		s.waits.got, s.gaveUp, s.killed, truth.Granted, total(truth.Dropped), len(truth.Dropped))
	s.t.Logf("longest wait %v (ideal turn %v), %d turns at the most, %d by the server; nobody held for %v of a wait of %v at the most; the machine stood still for %v",
		s.waits.took.Round(time.Millisecond), turn, s.waits.turns, truth.Turns, s.waits.worst.idle.Round(time.Millisecond), s.waits.worst.took.Round(time.Millisecond),
		s.stalls.Within(s.start, time.Now()).Round(time.Millisecond))
	s.t.Logf("leases that ran out, by client: %v; second quarter %+v, last %+v", truth.Lapses, largest(all[len(all)/4:len(all)/2]), largest(all[len(all)*3/4:]))
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (s *soak) judge(truth *check.Truth, all []sample) {
	t := s.t
	evidence.Note(t, evidence.Line{Holds: s.waits.got, Wrong: append(truth.Wrong, s.wrong...)})
	evidence.Fault(t, evidence.GaveUp, s.gaveUp)
	require.Empty(t, s.wrong)
	require.Empty(t, truth.Wrong)
	require.Zero(t, truth.Lapsed, "a lease ran out, or a grant")
	require.LessOrEqual(t, truth.Turns, mostTurns, "turns that somebody waited in the queue")
	for _, c := range s.clients {
		require.Zero(t, truth.Dropped[c.ID()], "a client that lives was expelled from the queue")
		require.Zero(t, c.Stats().Lost)
	}
	require.Greater(t, s.waits.got, 2*workers)
	require.Positive(t, s.gaveUp)
	require.Positive(t, s.killed)
	require.Positive(t, total(truth.Dropped), "nobody died in the queue")

	early, late := largest(all[len(all)/4:len(all)/2]), largest(all[len(all)*3/4:])
	require.LessOrEqual(t, late.heap, early.heap*3/2+1<<20)
	require.LessOrEqual(t, late.goroutines, early.goroutines*3/2+10)
	require.LessOrEqual(t, late.redis, early.redis*3/2)
	require.LessOrEqual(t, late.channels, 2*(clients+2), "each client has one, and one more while it holds")
	require.LessOrEqual(t, late.keys, 3)
}

// leavesNothing closes the clients and asserts that nothing of them is left but what expires.
func (s *soak) leavesNothing() {
	t := s.t
	for _, c := range s.clients {
		require.NoError(t, c.Shutdown(t.Context()))
	}
	kit.Eventually(t, "the subscriptions to end", func() bool { return len(s.server.List("PUBSUB", "CHANNELS")) == 0 })
	for _, key := range s.server.List("KEYS", "*") {
		require.Positive(t, s.server.Int("PTTL", key), key)
	}
}
