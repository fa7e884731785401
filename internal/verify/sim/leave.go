package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
)

// A client may close while its calls are on their way. If its Close has no error, Redis has nothing of it from then on. The
// histories are over by then: these are calls for locks of their own, on networks without faults, in half of the worlds slow ones.

const (
	// lastNames are how many locks there are for that, and lastTurns how many ways to the server make up the time before the
	// next client closes, at the most.
	lastNames = 4
	lastTurns = 8
)

// depart closes all clients, one after the other, in every second world while they make calls.
func (w *world) depart() {
	rng := rand.New(rand.NewPCG(w.plan.Seed, 77))
	some := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	slow := 20 * time.Millisecond // Close waits for an answer no longer than others would wait for what it is about.
	for _, n := range w.nodes {
		slow = min(slow, n.plan.GrantLease/40)
	}
	delay := w.nodes[0].plan.Latency
	if rng.IntN(2) == 0 {
		delay = slow
	}
	var calls sync.WaitGroup
	for _, n := range w.ways() {
		if c := n.alive(); c != nil && w.plan.Seed%2 == 0 {
			each(n.networks(), func(d *faults.Dialer) { d.Delay(delay) })
			for i := range lastNames {
				hold, unlocks := delay/2+some(2*delay), rng.IntN(2) == 0
				calls.Go(func() { lastCalls(c, i, hold, unlocks) })
			}
		}
	}
	for _, n := range w.ways() {
		c := n.alive()
		if c == nil {
			continue
		}
		time.Sleep(some(lastTurns * delay))
		if err := n.close(10 * time.Second); err != nil {
			w.violate("client %d did not leave in order: %v", n.id, err)
		} else if left := n.server.has(c.ID()); len(left) > 0 {
			w.violate("client %d has left in order, and there is still %v of it", n.id, left)
		}
	}
	calls.Wait()
}

// lastCalls takes one of the last names again and again, until the client is closed.
func lastCalls(c *headwaiter.Client, i int, hold time.Duration, unlocks bool) {
	var o []fairlock.Option
	switch i {
	case 1:
		o = append(o, fairlock.WithCohort(2))
	case 2:
		o = append(o, fairlock.WithKeep(time.Second))
	}
	m := fairlock.New(c, fmt.Sprint("last", i), o...)
	for {
		l, err := m.Lock(context.Background())
		if err != nil {
			return
		}
		time.Sleep(hold)
		if unlocks {
			l.Unlock()
		} else {
			_ = l.Release(context.Background()) // The client may be closed meanwhile, which ends it.
		}
	}
}

// has is what the server has of a client in the last names, as text.
func (s *server) has(client string) (found []string) {
	for i := range lastNames {
		key := "headwaiter:lock:{" + fmt.Sprint("last", i) + "}"
		if owner := s.mini.HGet(key, "owner"); strings.HasPrefix(owner, client) {
			found = append(found, key+" is held by "+owner)
		}
		tickets, _ := s.mini.ZMembers(key + ":queue") // An error says that there is none.
		for _, t := range tickets {
			if strings.HasPrefix(t, client) {
				found = append(found, key+" is waited for by "+t)
			}
		}
	}
	return found
}
