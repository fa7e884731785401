package sim

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
)

// world is everything that there is while a plan is played.
type world struct {
	*history
	t        testing.TB
	plan     Plan
	quirks   Quirks
	servers  []*server
	server   *server            // the first
	nodes    []*node            // a client each
	operator *headwaiter.Client // not subject to faults but those of the server
	peace    chan struct{}      // closed when all is healed
	work     sync.WaitGroup

	ids    sync.Mutex // guards names
	names  map[string]int
	events []event
}

// An event is something to do at its time.
type event struct {
	at time.Duration
	do func()
}

// ways are those of all clients to all servers.
func (w *world) ways() (all []*node) {
	for _, n := range w.nodes {
		all = append(all, n.ways...)
	}
	return all
}

// background runs f as a part of the world, which waits for it at its end.
func (w *world) background(f func()) { w.work.Go(f) }

// know notes whose an identity is.
func (w *world) know(id string, client int) {
	w.ids.Lock()
	defer w.ids.Unlock()
	w.names[id] = client
}

// clientOf is the client that hears a channel, everyone if it is not one's own.
func (w *world) clientOf(channel string) int {
	_, id, _ := strings.Cut(channel, ":wake:")
	return w.client(id)
}

// client is the one that has an identity, everyone if there is none.
func (w *world) client(id string) int {
	w.ids.Lock()
	defer w.ids.Unlock()
	if n, ok := w.names[id]; ok {
		return n
	}
	return everyone
}

// objectOf is the object that a channel or key belongs to.
func (w *world) objectOf(key string) int {
	for i, o := range w.plan.Objects {
		for part := range o.parts() {
			if strings.HasPrefix(key, o.lock(i, part)) {
				return i
			}
		}
	}
	return everyone
}

// at puts something on the list of what is to be done.
func (w *world) at(at time.Duration, do func()) {
	w.events = append(w.events, event{at, do})
	slices.SortStableFunc(w.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

// disturb does the faults of the plan, and ends those that end before all is healed.
func (w *world) disturb() {
	for _, f := range w.plan.Faults {
		w.at(f.At, func() {
			if end := w.inflict(f); end != nil {
				w.at(w.now()+f.For, end)
			}
		})
	}
	for len(w.events) > 0 && w.events[0].at < w.plan.Length {
		e := w.events[0]
		w.events = w.events[1:]
		time.Sleep(e.at - w.now())
		settle() // No fault comes in the middle of a script.
		e.do()
	}
	time.Sleep(w.plan.Length - w.now())
	settle()
}

// heal ends all faults.
func (w *world) heal() {
	for _, s := range w.servers {
		s.tamper(0, 0, 0, 0)
		s.fail("", false)
	}
	for _, e := range w.events { // What has begun and not ended.
		e.do()
	}
	w.events = nil
	for _, n := range w.ways() {
		n.heal()
	}
	w.mu.Lock()
	w.healed = w.now()
	for _, t := range w.touches {
		t.To = min(t.To, max(t.From, w.healed))
	}
	w.mu.Unlock()
	close(w.peace)
}

func (s *server) operatorOption() rueidis.ClientOption {
	o := s.Option()
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s.dial() }
	return o
}
