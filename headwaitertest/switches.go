package headwaitertest

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// ForceRelease releases by force what is held under a name, as somebody at a prompt would: a lock, a leadership, the permits of
// all who hold, up to a hundred. The next in the queue holds at once. Each holder's context ends with the cause
// lease.ErrForced: when its message has come, if its client has held anything for a quarter of a second and so listens,
// else at its next renewal. Where several held, of those that do not listen all but one find lease.ErrForgotten. If nobody
// holds, the test fails.
func (s *Server) ForceRelease(name string) {
	s.t.Helper()
	s.each(name, func(ctx context.Context, c *headwaiter.Client, kind string, holders []lease.Holder) error {
		terms := waitqueue.Terms{Lease: lease.DefaultLease}
		if kind == lua.Fairlock.Kind {
			if past, err := inspect.History(ctx, c, name); err == nil && len(past) > 0 { // It keeps one: this end is in it too.
				terms.History = min(len(past)+1, waitqueue.MaxHistory)
			}
		}
		queue := (*waitqueue.Client)(c).Queue(lua.ProtocolOf(kind), name, terms)
		for _, h := range holders {
			if _, err := queue.ForceReleaseHolder(ctx, h); err != nil && !errors.Is(err, lease.ErrNotHeld) { // Released since we looked.
				return err
			}
		}
		return nil
	})
}

// expire ends the leases of a lock by the server's word. The zset of its holders begins with a guard, whose score is 0.
const expire = `
local t = redis.call('TIME')
local over = string.format('%.0f', t[1] * 1000000 + t[2] - 1)
if redis.call('HEXISTS', KEYS[1], 'owner') == 1 then redis.call('HSET', KEYS[1], 'until', over) end
for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], '1', '+inf', 'BYSCORE')) do
  redis.call('ZADD', KEYS[2], 'XX', over, ticket)
end
return 1`

// Expire makes the server take the leases on a name for over, as if its clock had stepped forward: the one case in which
// another can hold before the holder knows of its loss. The next call is granted the lock. The holder's context ends
// with the cause lease.ErrExpired at its next renewal, until which it believes that it holds: what it writes then is what
// fencing tokens are for. If nobody holds, the test fails.
func (s *Server) Expire(name string) {
	s.t.Helper()
	s.each(name, func(_ context.Context, _ *headwaiter.Client, kind string, _ []lease.Holder) error {
		keys := lua.ProtocolOf(kind).Keys(prefix, name)
		_, err := s.redis.Try("EVAL", expire, "2", keys.Lock, keys.Holders)
		return err
	})
}

// Restart ends all connections and starts the server again, empty, as one without persistence is. The clients connect
// again by themselves. Holders learn at their next renewal that they are lost, with the cause lease.ErrForgotten, and may
// find another holding by then; a waiter stays in line, and tokens go on rising. What the program itself kept in Redis is
// gone too.
func (s *Server) Restart() {
	s.t.Helper()
	s.redis.Restart()
	s.hook()
}

// Pause stops a client for everybody else: as if its process had been stopped, nothing that it sends reaches the server,
// nor the other way round, until [Server.Resume]. Without a client named, it is all that were made by [Server.Client] so
// far: the server is out of reach.
//
// What the client holds goes to others when its lease has run out. Its own clock goes on, so a context ends where a
// stopped process would find it ended: with the cause lease.ErrExpired, ahead of the server. While it waits it costs the
// others two seconds in all.
func (s *Server) Pause(clients ...*headwaiter.Client) {
	s.t.Helper()
	for _, link := range s.linksOf(clients) {
		link.Freeze()
	}
}

// Resume ends [Server.Pause]. What was held back arrives now, late as it is: both ways, and in its order. Without a
// client named, it is all.
func (s *Server) Resume(clients ...*headwaiter.Client) {
	s.t.Helper()
	for _, link := range s.linksOf(clients) {
		link.Heal()
	}
}

// DropMessages loses the next n messages on their way: of a grant, of a release by force, of a
// latch or a barrier that opens or breaks, of news of an election. The server believes that they arrived. The client
// they were for finds out by a look or a renewal of its own, and no later than by the end of the lease.
// DropMessages(0) ends it.
func (s *Server) DropMessages(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop = max(n, 0)
}

const (
	// prefix is the prefix of all keys, the default of waitqueue.
	prefix = "headwaiter"
	// askTime bounds what a switch asks the server, outside a bubble too.
	askTime = 10 * time.Second
)

// each calls do for every kind that holds the name. The test fails if there is none, or do does.
func (s *Server) each(
	name string, do func(ctx context.Context, c *headwaiter.Client, kind string, holders []lease.Holder) error,
) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	c, err := headwaiter.Dial(headwaiter.Options{Redis: s.redis.Option(), Name: "headwaitertest"})
	if err != nil {
		s.t.Fatalf("headwaitertest: %v", err)
	}
	defer c.Shutdown(ctx)
	found, err := inspect.Find(ctx, c, name)
	held := 0
	for _, n := range found {
		if err != nil || !n.Info.Held || lua.ProtocolOf(n.Kind).Force == nil {
			continue
		}
		held++
		err = do(ctx, c, n.Kind, n.Info.Holders)
	}
	switch {
	case err != nil:
		s.t.Fatalf("headwaitertest: %q: %v", name, err)
	case held == 0:
		s.t.Fatalf("headwaitertest: nobody holds %q", name)
	}
}

// linksOf returns the connections of clients, of all if none is named.
func (s *Server) linksOf(clients []*headwaiter.Client) []*faults.Dialer {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*faults.Dialer
	for _, c := range clients {
		if s.links[c] == nil {
			s.t.Fatalf("headwaitertest: this client was not made by this server's Client, or has ended")
		}
		found = append(found, s.links[c])
	}
	if len(clients) == 0 {
		for _, link := range s.links {
			found = append(found, link)
		}
	}
	return found
}
