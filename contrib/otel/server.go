package otel

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/headwaiter/headwaiter/observe"
)

// upFor is how long a server counts as up or down after the last request to it: one that nobody asks any more, such as a
// node that has left a cluster, is neither.
const upFor = 5 * time.Minute

// A server is what clients of this process know of one.
type server struct {
	*options
	up    atomic.Bool  // the last request was answered
	asked atomic.Int64 // when that was, in nanoseconds
}

// servers are those that were asked.
type servers struct {
	mu    sync.RWMutex // guards known
	known map[*options]*server
}

// of returns the server that has these options.
func (all *servers) of(o *options) *server {
	all.mu.RLock()
	s := all.known[o]
	all.mu.RUnlock()
	if s != nil {
		return s
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if s = all.known[o]; s == nil {
		s = &server{options: o}
		all.known[o] = s
	}
	return s
}

// every returns all of them.
func (all *servers) every() map[*options]*server {
	all.mu.RLock()
	defer all.mu.RUnlock()
	return maps.Clone(all.known)
}

// observe tells which servers are up, and which are not. The SDK calls it when it collects.
func (all *servers) observe(_ context.Context, to metric.Int64Observer) error {
	for _, s := range all.every() {
		if time.Since(time.Unix(0, s.asked.Load())) > upFor {
			continue
		}
		up := int64(0)
		if s.up.Load() {
			up = 1
		}
		to.Observe(up, s.options.observe...)
	}
	return nil
}

// request counts one request to a server.
func (f *figures) request(r *observe.Request) {
	s := f.servers.of(f.of(byServer, r.Engine, r.Server, r.Client))
	if r.Err == nil {
		f.roundTrips.Record(context.Background(), r.Took.Seconds(), s.record...)
	}
	s.up.Store(r.Err == nil)
	s.asked.Store(time.Now().UnixNano())
}
