package conn

import (
	"sync/atomic"
	"time"
)

// flightsTime is how long the end of connections waits for commands that the cut of their sockets has not ended: those
// for which a connection is still being made.
const flightsTime = time.Second

// flightsClosed is what flights count from once no command may begin.
const flightsClosed = -1 << 62

// flights are the commands under way on the client's own connections. They must be over before rueidis closes: a command
// that begins at the same moment as its Close can leave that waiting for an answer that nobody reads (rueidis 1.0.79).
type flights struct {
	n    atomic.Int64
	last chan struct{} // gets one when the last of them is over, after close
}

func newFlights() *flights { return &flights{last: make(chan struct{}, 1)} }

// crowd: with more commands than this under way, a write waits for those that are about to be sent (socket.Write).
const crowd = 32

// begin reports whether a command may be sent. If it may, the caller calls end once the command is answered.
func (f *flights) begin() bool {
	if f.n.Add(1) > 0 {
		return true
	}
	f.end()
	return false
}

func (f *flights) end() {
	if f.n.Add(-1) == flightsClosed {
		select {
		case f.last <- struct{}{}:
		default:
		}
	}
}

// close lets no more begin, and waits for those under way.
func (f *flights) close() {
	if f.n.Load() < 0 || f.n.Add(flightsClosed) == flightsClosed {
		return
	}
	timer := time.NewTimer(flightsTime)
	defer timer.Stop()
	select {
	case <-f.last:
	case <-timer.C:
	}
}
