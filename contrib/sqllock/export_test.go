package sqllock

import (
	"context"
	"runtime"
)

// WatchNow begins to watch all holds that there are, as time would a little later.
func WatchNow() {
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	for h := range fresh.holds {
		delete(fresh.holds, h)
		h.begin()
	}
}

// EndSessions closes the connections of the client's holds that nothing watches yet, as their reader does that finds them gone.
func (c *Client) EndSessions() {
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	for h := range fresh.holds {
		if h.client == c {
			_ = h.conn.Conn().PgConn().Close(context.Background())
		}
	}
}

// Contend takes the client's lock again and again until stop is closed, so that whoever wants it has to wait.
func (c *Client) Contend(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			c.mu.Lock()
			runtime.Gosched()
			c.mu.Unlock()
		}
	}
}
