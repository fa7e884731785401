package bench

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A Gathering is calls that wait for one lock.
type Gathering struct {
	Waiting int `json:"waiting"`
	// Clients make the calls in turn, where there may be several; as many as there are calls: what one takes counts.
	// 0 stands for eight.
	Clients int `json:"clients,omitempty"`
	// For is how long is looked at what they cost while nothing happens; 0: not at all.
	For time.Duration `json:"-"`
}

// String names it as tables do.
func (g Gathering) String() string {
	if g.Clients > 0 {
		return fmt.Sprintf("W7 n=%d C=%d", g.Waiting, g.Clients)
	}
	return fmt.Sprintf("W7 n=%d", g.Waiting)
}

// A Crowd is W7: what a queue of a length costs the server, and memory.
type Crowd struct {
	Contender string `json:"contender"`
	Gathering
	// Ask, HandOff and Leave are the server's time in µs for one ticket that comes, is served, and gives up; 0 where
	// it was not measured.
	Ask     float64 `json:"ask_us"`
	HandOff float64 `json:"hand_off_us"`
	Leave   float64 `json:"leave_us,omitempty"`
	// Rate is how many were served in a second, when the holder had let them.
	Rate float64 `json:"hand_offs_per_s,omitempty"`
	// Server and Client are bytes a ticket. Of those of the client, Stacks are the stack of the caller's goroutine, and
	// Callers what that goroutine and its context take on the heap: the rest is the library's. Both are 0 where the caller
	// has none or does not tell.
	Server  float64 `json:"server_bytes"`
	Client  float64 `json:"client_bytes"`
	Stacks  float64 `json:"client_stack_bytes,omitempty"`
	Callers float64 `json:"client_caller_bytes,omitempty"`
	// While nothing happens: all of the server's memory, in bytes, and µs of its CPU and of the clients' a second, for each
	// call that waits; and how many connections all of them have.
	All         float64 `json:"server_all_bytes,omitempty"`
	ServerCPU   float64 `json:"server_waiting_us,omitempty"`
	ClientCPU   float64 `json:"client_waiting_us,omitempty"`
	Connections float64 `json:"connections,omitempty"`
}

// Library is how many bytes of the client a ticket takes in the library itself; 0 where that cannot be told.
func (c Crowd) Library() float64 {
	if c.Callers == 0 {
		return 0
	}
	return c.Client - c.Stacks - c.Callers
}

const (
	// A crowd may take a time that grows with its length: to form, to be looked at and to be served.
	crowdPatience = 15 * time.Second
	crowdTicket   = time.Millisecond
	crowdDial     = 20 * time.Millisecond
	// crowdClients is of how many clients a crowd is, in turn, so that hand-offs are messages.
	crowdClients = 8
	// crowdLook is how long hand-offs and leaves are looked at.
	crowdLook = 400 * time.Millisecond
	// crowdTail is the part of the crowd whose asks are measured, when the rest is there: a tenth.
	crowdTail = 10
)

// crowds measures a queue, with all contenders who can tell how long their queues are.
func (r *runner) crowds(ctx context.Context, g Gathering) error {
	takes := func(c Contender) bool {
		return c.Missing == nil && c.Queue != nil && c.Command != nil && c.OnRedis && len(c.Only) == 0 && !r.outgrown[c.Name]
	}
	return each(ctx, r, "crowd", g.String(), &r.report.Crowds, takes, func(c Contender) (Crowd, string, error) {
		found, err := r.gathering(ctx, c, g)
		if err != nil {
			err = fmt.Errorf("%w: so are longer ones", err)
			if r.outgrown == nil {
				r.outgrown = map[string]bool{}
			}
			r.outgrown[c.Name] = true
		}
		return found, fmt.Sprintf("ask %.1f, hand-off %.1f, leave %.1f µs; %.0f bytes a ticket, and %.0f in the client, %.0f of them stack, %.0f the library's",
			found.Ask, found.HandOff, found.Leave, found.Server, found.Client, found.Stacks, found.Library()), err
	})
}

// gathering is one queue under observation.
type gathering struct {
	observer *observer
	stage    *stage
	crowd    *Agent
	clients  int // of how many it is: an agent in another language knows only one
}

func (r *runner) gathering(ctx context.Context, c Contender, wanted Gathering) (found Crowd, err error) {
	n := wanted.Waiting
	patience := crowdPatience + wanted.For + time.Duration(n)*crowdTicket + time.Duration(wanted.Clients)*crowdDial
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the crowd takes more than %v", patience))
	defer cancel()
	found = Crowd{Contender: c.Name, Gathering: wanted}
	g := &gathering{observer: r.observer, clients: 1, stage: &stage{contender: c, name: fmt.Sprintf("%s:%s:crowd:%d", r.prefix, c.Name, n), bound: patience}}
	defer g.stage.close()
	if c.Driver != nil {
		g.clients = cmp.Or(wanted.Clients, crowdClients)
	}
	_, hold, _, err := g.stage.holder(ctx)
	if err != nil {
		return found, err
	}
	others, err := g.observer.figure(ctx, "clients", "connected_clients")
	if err != nil {
		return found, err
	}
	if g.crowd, err = g.stage.agent(ctx); err != nil {
		return found, err
	}
	// Some are there before: they have the connections that their clients need, unless those are what is wanted.
	first := min(n/2, g.clients)
	if g.clients == n {
		first = 0
	}
	if err := g.grow(ctx, first, first); err != nil {
		return found, err
	}
	before, err := g.client(ctx)
	if err != nil {
		return found, err
	}
	bare, err := g.observer.figure(ctx, "memory", "used_memory")
	if err != nil {
		return found, err
	}
	tail := max(1, n/crowdTail)
	if err := g.grow(ctx, n-tail-first, n-tail); err != nil {
		return found, err
	}
	if found.Ask, err = g.cost(ctx, tail, func() error { return g.grow(ctx, tail, n) }); err != nil {
		return found, err
	}
	after, err := g.client(ctx)
	if err != nil {
		return found, err
	}
	found.Client = (after.all - before.all) / float64(n-first)
	found.Stacks = (after.stacks - before.stacks) / float64(n-first)
	found.Callers = after.caller
	if found.Server, err = g.server(ctx); err != nil {
		return found, err
	}
	found.Server /= float64(n)
	if wanted.For > 0 {
		if err := g.resting(ctx, &found, bare, others, n-first); err != nil {
			return found, err
		}
	}
	if found.Leave, err = g.leaving(ctx, tail, n); err != nil {
		return found, err
	}
	found.HandOff, found.Rate, err = g.serving(ctx, hold)
	return found, err
}

// resting is what a crowd costs that waits.
func (g *gathering) resting(ctx context.Context, found *Crowd, bare, others float64, more int) error {
	full, err := g.observer.figure(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	found.All = (full - bare) / float64(more)
	all, err := g.observer.figure(ctx, "clients", "connected_clients")
	if err != nil {
		return err
	}
	found.Connections = all - others
	var used float64
	var from int64
	_, cpu, err := g.observer.during(ctx, func() error {
		used, from = serverMicros(g.crowd.cmd.Process.Pid), stamp()
		return pass(ctx, found.For)
	})
	waited := float64(found.Waiting) * time.Duration(stamp()-from).Seconds()
	found.ServerCPU = cpu / waited
	found.ClientCPU = (serverMicros(g.crowd.cmd.Process.Pid) - used) / waited
	return err
}

// grow adds more calls, and waits until the queue has the wanted length.
func (g *gathering) grow(ctx context.Context, more, want int) error {
	if more > 0 {
		command := fmt.Sprintf("crowd %d %s", more, g.stage.name)
		if g.clients > 1 {
			command += fmt.Sprintf(" %d", g.clients)
		}
		if _, err := g.crowd.do(ctx, "%s", command); err != nil {
			return err
		}
	}
	return g.until(ctx, func(n int) bool { return n >= want })
}

// until asks for the length of the queue until it is as wanted.
func (g *gathering) until(ctx context.Context, right func(n int) bool) error {
	for {
		n, err := g.length(ctx)
		if err != nil || right(n) {
			return err
		}
		if err := pass(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d wait", err, n)
		}
	}
}

func (g *gathering) length(ctx context.Context) (int, error) {
	redis := g.observer.client
	n, err := redis.Do(ctx, redis.B().Arbitrary(g.stage.contender.Queue(g.stage.name)...).Build()).AsInt64()
	if ctx.Err() != nil {
		err = context.Cause(ctx) // The client says only that it has ended.
	}
	if err != nil {
		return 0, fmt.Errorf("bench: length of the queue: %w", err)
	}
	return int(n), nil
}

// used is what the process of a client uses, in bytes; stacks and caller, the bytes of one caller, are 0 where it
// does not tell.
type used struct{ all, stacks, caller float64 }

// client is what the process of the client uses, server what the queue does in Redis, in bytes.
func (g *gathering) client(ctx context.Context) (u used, err error) {
	text, err := g.crowd.do(ctx, "memory")
	for i, field := range strings.Fields(text) {
		switch i {
		case 0:
			u.all = number(field)
		case 1:
			u.stacks = number(field)
		case 2:
			u.caller = number(field)
		}
	}
	return u, err
}

func (g *gathering) server(ctx context.Context) (sum float64, err error) {
	redis := g.observer.client
	for _, key := range g.stage.contender.Keys(g.stage.name) {
		n, err := redis.Do(ctx, redis.B().Arbitrary("MEMORY", "USAGE", key).Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) {
			return 0, fmt.Errorf("bench: MEMORY USAGE: %w", err)
		}
		sum += float64(n)
	}
	return sum, nil
}

// cost is the server's time in scripts for each of n that come by f.
func (g *gathering) cost(ctx context.Context, n int, f func() error) (float64, error) {
	us, _, err := g.observer.during(ctx, f)
	return us / float64(max(n, 1)), err
}

// leaving lets the tail give up, and waits until none of it leaves any more, so that what follows does not pay for it; 0
// if the contender cannot.
func (g *gathering) leaving(ctx context.Context, tail, n int) (float64, error) {
	left := 0
	us, err := g.cost(ctx, 1, func() error {
		if _, err := g.crowd.do(ctx, "leave %d", tail); err != nil {
			return err
		}
		for before := -1; left > before && left < tail; {
			before = left
			if err := pass(ctx, crowdLook); err != nil {
				return err
			}
			length, err := g.length(ctx)
			if err != nil {
				return err
			}
			left = n - length
		}
		return nil
	})
	if err != nil || left <= 0 {
		return 0, err
	}
	return us / float64(left), nil
}

// serving lets the holder go, and looks at the hand-offs that follow: what one costs the server, in µs, and how many
// there are in a second.
func (g *gathering) serving(ctx context.Context, hold calling) (cost, rate float64, err error) {
	length, err := g.length(ctx)
	if err != nil {
		return 0, 0, err
	}
	served := 0
	us, err := g.cost(ctx, 1, func() error {
		from, err := hold.release(ctx, stamp())
		if err != nil {
			return err
		}
		for rest := length; rest > 0 && stamp()-from < int64(crowdLook); {
			if err := pass(ctx, time.Millisecond); err != nil {
				return err
			}
			if rest, err = g.length(ctx); err != nil {
				return err
			}
			served = length - rest
			rate = float64(served) / (float64(stamp()-from) / 1e9)
		}
		return nil
	})
	if err != nil || served <= 0 {
		return 0, 0, err
	}
	return us / float64(served), rate, nil
}
