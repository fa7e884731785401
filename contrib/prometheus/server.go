package prometheus

import (
	"sync/atomic"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/headwaiter/headwaiter/observe"
)

// serverLabels are those of the metrics that are about servers.
var serverLabels = []string{"engine", "server", "client"}

// upFor is how long a server counts as up or down after the last request to it: one that nobody asks any more, such as a
// node that has left a cluster, is neither.
const upFor = 5 * time.Minute

// serverKey is what the time series of a server are found by.
type serverKey struct{ engine, server, client string }

// A server is what clients of this process know of one.
type server struct {
	up     atomic.Bool  // the last request was answered
	asked  atomic.Int64 // when that was, in nanoseconds
	answer prom.Observer
}

// ObserveRequest is for the client.
func (c *Collector) ObserveRequest(r observe.Request) {
	k := serverKey{r.Engine, r.Server, r.Client}
	s := c.servers.every()[k]
	if s == nil {
		s = c.servers.add(k, func() *server {
			return &server{answer: c.metrics.roundTrip.WithLabelValues(k.engine, k.server, k.client)}
		})
	}
	if r.Err == nil {
		s.answer.Observe(r.Took.Seconds())
	}
	s.up.Store(r.Err == nil)
	s.asked.Store(time.Now().UnixNano())
}

// isUp is 1 if the server answered the last request, and 0 if not. It reports false if that is too long ago to tell.
func (s *server) isUp() (up float64, ok bool) {
	if s.up.Load() {
		up = 1
	}
	return up, time.Since(time.Unix(0, s.asked.Load())) <= upFor
}
