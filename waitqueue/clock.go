package waitqueue

import (
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// A serverClock knows what time it is at the server, within bounds, from the replies that came.
//
// A script reads the server's time between the moment its request was sent and that at which the reply
// came. So the server's clock shows at least that time when the reply is here, and what happened at a
// later time of the server happened at least so much later than the sending.
type serverClock struct {
	newest atomic.Pointer[reading]
	peak   atomic.Int64 // the highest time that it showed, or by which an arrival was reckoned, in µs
}

// A reading is the server's time in one reply.
type reading struct {
	sent, received time.Time
	slept          time.Duration // what lease.Slept said when it was sent
	server         int64         // µs
}

const (
	// readingAge is how old a reading may get before the next reply replaces it. An older one costs
	// precision: clocks run apart by up to drift.
	readingAge = 50 * time.Millisecond
	// drift is how far two clocks may run apart: 0.1 %, ten times what a quartz does.
	drift = 1000
	// backStep is by how much the server's clock must be behind what it showed before that counts: more than a round
	// trip takes, within which readings are not exact.
	backStep = time.Second
)

// observe keeps the reading of a reply, if the present one is old or force is set.
func (c *serverClock) observe(a attempt, server int64, force bool) {
	if server == 0 {
		return
	}
	old := c.newest.Load()
	if old != nil && !force && a.sent.Sub(old.sent) < readingAge && a.sent.After(old.sent) {
		return
	}
	c.newest.Store(&reading{sent: a.sent, slept: a.slept, received: time.Now(), server: server})
	c.showed(server)
}

// showed notes that the server reckoned by a time.
func (c *serverClock) showed(server int64) {
	for {
		peak := c.peak.Load()
		if server <= peak || c.peak.CompareAndSwap(peak, server) {
			return
		}
	}
}

// atLeast returns a time that the server's clock shows at the latest when the local clock shows t:
// whatever runs after t runs at a later time of the server. It is 0 when there was no reply yet.
func (c *serverClock) atLeast(t time.Time) int64 {
	r := c.newest.Load()
	if r == nil {
		return 0
	}
	age := t.Sub(r.received)
	return r.server + (age - age.Abs()/drift).Microseconds()
}

// about returns what the server's clock shows now, to within half a round trip, if there was a reply.
func (c *serverClock) about() (time.Time, bool) {
	r := c.newest.Load()
	if r == nil {
		return time.Time{}, false
	}
	middle := r.sent.Add(r.received.Sub(r.sent) / 2)
	return time.UnixMicro(r.server).Add(time.Since(middle)), true
}

// steady is about, unless the clock has stepped back: then the server gives arrivals that are ahead of it, until it has
// caught up.
func (c *serverClock) steady() (time.Time, bool) {
	now, ok := c.about()
	return now, ok && now.UnixMicro() > c.peak.Load()-backStep.Microseconds()
}

// since returns a local time that is not after the server's time at, nor after the moment at which the
// news of it was received, and what lease.Slept said at the time from which that was reckoned.
func (c *serverClock) since(at int64, received time.Time) (time.Time, time.Duration) {
	r := c.newest.Load()
	if r == nil {
		return received, lease.Slept()
	}
	age := time.Duration(at-r.server) * time.Microsecond
	bound := r.sent.Add(age - age.Abs()/drift)
	return earlier(bound, received), r.slept
}

// margin is what a holder keeps for itself of a lease, for clocks that run apart and for the time that it
// takes to notice: a hundredth, at least 2 ms where the lease has them to spare.
func margin(d time.Duration) time.Duration {
	return max(d/100, min(2*time.Millisecond, d/4))
}

// until returns the end of a hold that the server counts from at least the given local time on.
func until(from time.Time, lasts, slept time.Duration, cause error) lease.Until {
	return lease.Until{Deadline: from.Add(lasts - margin(lasts)), Slept: slept, Cause: cause}
}
