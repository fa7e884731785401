package conn

import (
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/times"
)

// A Clock knows what time it is at the server, within bounds, from the replies that came.
//
// A script reads the server's time after its request was sent and before the reply came. So the server's clock shows at
// least that time when the reply is here. And what happened at a later time of the server happened at least that much
// later than the sending.
type Clock struct {
	newest atomic.Pointer[reading]
	peak   Peak // the highest time that it showed, or by which an arrival was reckoned, in µs
}

// A reading is the server's time in one reply.
type reading struct {
	sent, received time.Time
	slept          time.Duration // what keeper.Slept said when it was sent
	server         int64         // µs
}

const (
	// readingAge is how old a reading may get before the next reply replaces it. An older one costs
	// precision: clocks run apart by up to drift.
	readingAge = 50 * time.Millisecond
	// Drift is how far two clocks may run apart: 0.1 %, ten times what a quartz does.
	Drift = 1000
	// backStep is how far the server's clock must fall below an earlier reading before that counts as a step back. It is
	// more than a round trip takes, within which readings are not exact.
	backStep = time.Second
)

// Observe keeps the reading of a reply, if the present one is old or force is set.
func (c *Clock) Observe(a Attempt, server int64, force bool) {
	if server == 0 {
		return
	}
	old := c.newest.Load()
	if old != nil && !force && a.Sent.Sub(old.sent) < readingAge && a.Sent.After(old.sent) {
		return
	}
	c.newest.Store(&reading{sent: a.Sent, slept: a.Slept, received: time.Now(), server: server})
	c.Showed(server)
}

// Showed notes that the server reckoned by a time.
func (c *Clock) Showed(server int64) {
	c.peak.Raise(uint64(max(server, 0)))
}

// A Peak is the highest of the numbers that it was raised to.
type Peak struct{ atomic.Uint64 }

// Raise raises it to a number, if that is higher.
func (p *Peak) Raise(to uint64) {
	for {
		seen := p.Load()
		if to <= seen || p.CompareAndSwap(seen, to) {
			return
		}
	}
}

// AtLeast returns a lower bound of the server's clock when the local clock shows t: a request sent after t runs at a
// later time of the server. It is 0 before the first reply.
func (c *Clock) AtLeast(t time.Time) int64 {
	r := c.newest.Load()
	if r == nil {
		return 0
	}
	age := t.Sub(r.received)
	return r.server + (age - age.Abs()/Drift).Microseconds()
}

// about returns what the server's clock shows now, to within half a round trip, if there was a reply.
func (c *Clock) about() (time.Time, bool) {
	r := c.newest.Load()
	if r == nil {
		return time.Time{}, false
	}
	middle := r.sent.Add(r.received.Sub(r.sent) / 2)
	return time.UnixMicro(r.server).Add(time.Since(middle)), true
}

// Steady is about, unless the clock has stepped back: then the server gives arrivals later than its clock, until the
// clock has caught up.
func (c *Clock) Steady() (time.Time, bool) {
	now, ok := c.about()
	return now, ok && now.UnixMicro() > int64(c.peak.Load())-backStep.Microseconds()
}

// Since returns a local time that is neither after the server's time at, nor after the news of it came. It also returns
// what keeper.Slept said at the time from which that was reckoned. Before the first reply nobody can tell how old the
// news is: it is as if the machine had slept since.
func (c *Clock) Since(at int64, received time.Time) (time.Time, time.Duration) {
	r := c.newest.Load()
	if r == nil {
		return received, keeper.Slept() - 2*timers.WokeUp
	}
	age := time.Duration(at-r.server) * time.Microsecond
	bound := r.sent.Add(age - age.Abs()/Drift)
	return times.Earlier(bound, received), r.slept
}
