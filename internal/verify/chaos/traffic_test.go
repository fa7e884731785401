package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/family"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// traffic is load on some locks of a deployment that is shaken meanwhile, and all that its holders have seen.
type traffic struct {
	clients  []*headwaiter.Client
	names    []string
	replicas int // that must know of a hold
	lease    time.Duration
	stop     context.CancelFunc
	workers  sync.WaitGroup

	mu    sync.Mutex // guards holds
	holds []seen
}

// seen is one hold as its holder saw it.
type seen struct {
	name   string
	client int
	token  uint64
	by     string    // the address of the server whose word it was
	last   string    // and of that whose word it was when it ended: a renewal may have gone to another
	called time.Time // when Lock was
	from   time.Time // when it had returned
	to     time.Time // when the holder let go, or was not certain any more
	until  time.Time // the end of its lease, as it was then
	lost   error     // told by the context or by Release; nil for a clean release
}

func (s seen) String() string {
	const clock = "05.000000"
	return fmt.Sprintf("%s held by client %d with token %d from %s, %s to %s", s.name, s.client, s.token, s.by, s.from.Format(clock), s.to.Format(clock))
}

const (
	trafficLease = 3 * time.Second
	// trafficHold is long enough for most holds to be there when something happens.
	trafficHold = 20 * time.Millisecond

	// lasting is the name of a lock whose holds mostly last longer than what their first grant gives them.
	lasting      = "long"
	lastingLease = time.Second
	lastingHold  = 1500 * time.Millisecond
)

// newTraffic begins traffic: clients with a worker for each of the names, whose holds last for a lease; the given number of replicas must know of each.
func newTraffic(t *testing.T, option func(client int) rueidis.ClientOption, clients int, names []string, replicas int, lasts time.Duration) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{names: names, replicas: replicas, lease: lasts, stop: cancel}
	for i := range clients {
		w := &witness{by: map[uint64]string{}}
		o := headwaiter.Options{Redis: w.listens(option(i)), Name: "traffic"}
		if lasts > kit.Patience {
			family.Patient(&o)
		}
		c := kit.Got(headwaiter.Dial(o))(t)
		tr.clients = append(tr.clients, c)
		for _, name := range names {
			tr.workers.Go(func() { tr.work(ctx, t, i, c, name, w) })
		}
	}
	t.Cleanup(cancel)
	return tr
}

func (tr *traffic) work(ctx context.Context, t *testing.T, client int, c *headwaiter.Client, name string, w *witness) {
	lasts, holds := tr.lease, trafficHold
	if name == lasting {
		lasts, holds = lastingLease, lastingHold
	}
	opts := []fairlock.Option{headwaiter.WithLease(lasts)}
	if tr.replicas > 0 {
		opts = append(opts, headwaiter.WithReplicas(tr.replicas, lasts/6))
	}
	m := fairlock.New(c, name, opts...)
	for ctx.Err() == nil {
		called := time.Now()
		l, err := m.Lock(ctx)
		if errors.Is(err, lease.ErrReplicas) {
			continue // One is away.
		}
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("client %d: %v", client, err)
			}
			return
		}
		s := seen{name: name, client: client, token: l.Token(), by: w.of(l.Token()), called: called, from: time.Now()}
		timer := time.NewTimer(rand.N(holds))
		select {
		case <-timer.C:
		case <-l.Context().Done():
		}
		timer.Stop()
		s.to, s.last = time.Now(), w.of(l.Token())
		s.lost = context.Cause(l.Context())
		if s.until = l.Deadline(); s.lost != nil && s.to.After(s.until) {
			s.to = s.until // However late it looks, it sees then that it was certain until there.
		}
		if err := l.Release(context.WithoutCancel(ctx)); err != nil && s.lost == nil {
			s.lost = err
		}
		tr.mu.Lock()
		tr.holds = append(tr.holds, s)
		tr.mu.Unlock()
	}
}

// flows waits until every lock was held again by every client since now, or by every second one from the given one on:
// nobody is left out.
func (tr *traffic) flows(t *testing.T, half ...int) {
	t.Helper()
	since := time.Now()
	late := tr.late(since, half...)
	for len(late) > 0 && time.Since(since) < kit.Patience {
		time.Sleep(time.Millisecond) // Between two looks at the counts.
		late = tr.late(since, half...)
	}
	if len(late) == 0 {
		return
	}
	for _, c := range tr.clients {
		t.Logf("%s: %+v", c.ID(), c.Stats())
	}
	for _, name := range tr.names {
		info, err := fairlock.New(tr.clients[0], name).Inspect(t.Context())
		t.Logf("%s: %+v %v", name, info, err)
	}
	t.Fatalf("left behind for %v: %v", time.Since(since), late)
}

// late returns who has not held since a time: names and numbers of clients.
func (tr *traffic) late(since time.Time, half ...int) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	again := map[string]bool{}
	for _, s := range slices.Backward(tr.holds) {
		if s.to.Before(since) {
			break // Those after it came later, except what others were slower to tell.
		}
		again[fmt.Sprint(s.name, s.client)] = true
	}
	var late []string
	for _, name := range tr.names {
		for i := range tr.clients {
			if len(half) > 0 && i%2 != half[0] {
				continue
			}
			if who := fmt.Sprint(name, i); !again[who] {
				late = append(late, who)
			}
		}
	}
	return late
}

// end stops the traffic, closes the clients and returns what was seen, by the time of the grant.
func (tr *traffic) end(t *testing.T) []seen {
	t.Helper()
	tr.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.workers.Wait()
	}()
	kit.Await(t, done, "the workers end")
	for _, c := range tr.clients {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		require.NoError(t, c.Shutdown(ctx))
		cancel()
	}
	slices.SortFunc(tr.holds, func(a, b seen) int { return cmp.Compare(a.from.UnixNano(), b.from.UnixNano()) })
	return tr.holds
}

// rising fails the test where a token is not above all that were seen before its call began.
func rising(t *testing.T, holds []seen) {
	t.Helper()
	for _, name := range namesOf(holds) {
		var before []seen
		for _, s := range holds {
			if s.name != name {
				continue
			}
			for _, b := range before {
				if b.from.Before(s.called) && b.token >= s.token {
					t.Errorf("%s: token %d after %d", name, s.token, b.token)
				}
			}
			before = append(before[max(0, len(before)-50):], s)
		}
	}
}

// overlaps returns all pairs of holds of one name that lay over each other, the earlier first. The holds are in the
// order of their beginnings.
func overlaps(holds []seen) [][2]seen {
	var found [][2]seen
	for _, name := range namesOf(holds) {
		var there []seen
		for _, s := range holds {
			if s.name != name {
				continue
			}
			there = slices.DeleteFunc(there, func(h seen) bool { return !s.from.Before(h.to) })
			for _, h := range there {
				found = append(found, [2]seen{h, s})
			}
			there = append(there, s)
		}
	}
	return found
}

func namesOf(holds []seen) []string {
	var names []string
	for _, s := range holds {
		if !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}
