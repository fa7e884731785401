package sqllock

import (
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// WatchNow begins to watch all holds of the client, as time would a little later, and returns how many these are.
func (c *Client) WatchNow() int {
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	begun := 0
	for h := range fresh.holds {
		if h.client == c {
			delete(fresh.holds, h)
			h.begin()
			begun++
		}
	}
	return begun
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

// Hear is what a call makes of a grant that it hears at once, where the machine has slept since its last answer.
func (m *Leased) Hear(ctx context.Context, slept time.Duration) *lease.Lease {
	t := m.client.newTicket(m)
	t.seen = answer{sent: time.Now(), slept: keeper.Slept() - slept}
	t.grant = &grant{token: 1, at: slept.Microseconds(), until: (slept + m.lasts).Microseconds(), heard: time.Now()}
	l := t.taken(ctx)
	if l == nil {
		m.client.drop(t)
	}
	return l
}

// Passes reports whether an error with that code is one after which the same is tried again.
func Passes(code string) bool { return passes(&pgconn.PgError{Code: code}) }
