// Package outside looks at names from outside, as operators do: who holds and who waits, release by force, and which keys
// the servers have. It takes part in no queue.
package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Wiring is how a client reaches its servers outside the protocol.
type Wiring struct {
	Redis   rueidis.Client       // for commands that are no requests of the protocol
	Made    rueidis.ClientOption // what its connections were made with; nothing where they are not its own
	Own     bool                 // the connections are its own
	Prefix  string               // of all keys
	Sharded bool                 // the wake channels are sharded
	Plain   bool                 // they are not, although it is a cluster
	Skips   bool                 // dead waiters are skipped, as subscribers are counted
	Polls   bool                 // the client subscribes to nothing, so its waiters look for their grants

	Bare bool // a proxy closes the connection at a command that it does not know

	servers *conn.Servers
}

// Of is the wiring of a client with such connections; own says that they are its own.
func Of(servers *conn.Servers, own bool) Wiring {
	o := servers.Options()
	w := Wiring{
		Redis: servers.Side, Own: own, Prefix: o.Prefix, Sharded: servers.Sharded, Plain: servers.Plain,
		Skips: servers.Counted() == "1", Polls: o.WithoutSubscribe, Bare: conn.IsBare(o.Redis),
		servers: servers,
	}
	if own {
		w.Made = o.Redis
	}
	return w
}

// Peek is the wiring of a client that could be made with such options, also where it would refuse the server. The caller
// ends it.
func Peek(o conn.Options) (w Wiring, end func(), err error) {
	servers, end, err := conn.Peek(o)
	if err != nil {
		return Wiring{}, nil, err
	}
	_ = servers.Probe(0) // Whoever made the client has heard what it says; it also finds out whether channels are sharded.
	return Of(servers, true), end, nil
}

// A Name is a name as its servers keep it.
type Name struct {
	Proto   *lua.Protocol
	Keys    lua.Keys
	History int   // how many hand-offs are kept
	Err     error // why it cannot be used
}

// inspectQueue is how many waiters an inspection names.
const inspectQueue = 100

// Inspect tells who holds and who waits. The arguments are what the script wants after the number of tickets to tell.
func (w Wiring) Inspect(ctx context.Context, n Name, args []string) (lease.Info, error) {
	v, err := w.view(ctx, n, append([]string{strconv.Itoa(inspectQueue)}, args...))
	if err != nil {
		return lease.Info{}, conn.Advise(err)
	}
	info := []lease.Info{infoOf(v)}
	w.Name(ctx, info...)
	return info[0], nil
}

// infoOf turns the server's times into spans.
func infoOf(v lua.View) lease.Info {
	micros := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	info := lease.Info{
		Held: len(v.Holders) > 0, Token: v.Token, Limit: v.Limit, Stated: v.Stated, Used: v.Used, Waiting: v.Waiting,
		Suspects: v.Suspects, State: v.State,
	}
	if v.Previous != "" {
		before := core.EndingOf(v.Previous)
		info.Previous = lease.Ending{Kind: lease.EndingKind(before.How), Token: before.Token}
	}
	for _, h := range v.Holders {
		info.Holders = append(info.Holders, lease.Holder{
			Client: wire.TicketClient(h.Ticket), Ticket: h.Ticket, Who: h.Who, Permits: h.Permits, Entries: h.Count,
			Token: h.Token, Since: time.Now().Add(-micros(v.Now - h.Since)), Left: micros(h.Until - v.Now),
			InTransit: lua.InTransit(h.Ticket),
			Rests:     wire.Rests(h.Ticket),
			Expired:   h.Phase == wire.PhaseExpired,
			Wants:     strings.HasSuffix(h.Phase, wire.PhaseWants),
			Idle:      h.Phase == wire.PhaseIdle,
			Final:     strings.HasPrefix(h.Phase, wire.PhaseFinal) || h.Phase == wire.PhaseExpired,
		})
	}
	for _, w := range v.Queue {
		info.Queue = append(info.Queue, lease.Waiter{Client: wire.TicketClient(w.Ticket), Ticket: w.Ticket, Wait: micros(v.Now - w.Arrival)})
	}
	return info
}

// view asks until there is an answer, for as long as a try does.
func (w Wiring) view(ctx context.Context, n Name, args []string) (lua.View, error) {
	begun, last := time.Now(), error(nil)
	for tries := 0; ; tries++ {
		v, err := n.Proto.Inspect.DecodeInspect(w.servers.RunFor(ctx, n.Proto.Inspect, n.Keys.All(), args...))
		if err == nil || !conn.Transient(err) {
			return v, err
		}
		last = calls.Last(ctx, err, last)
		switch {
		case ctx.Err() != nil:
			return v, conn.GaveUp(ctx, calls.WhyEnded(ctx), last)
		case time.Since(begun) > calls.TryTime:
			return v, fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
		}
		if ended := w.servers.Rest(ctx, calls.Backoff(tries)); ended != nil {
			return v, conn.GaveUp(ctx, ended, last)
		}
	}
}

// InspectAll is Inspect of many names, in one round trip for those at one node. It tells at most that many tickets of each.
func (w Wiring) InspectAll(ctx context.Context, names []Name, tickets int) ([]lease.Info, []error) {
	begun := time.Now()
	args := []string{strconv.Itoa(tickets), "0"} // 0 is the limit of a name that nobody has used.
	infos, errs := make([]lease.Info, len(names)), make([]error, len(names))
	batches := make(map[*conn.Node][]int)
	for i, n := range names {
		if errs[i] = n.Err; n.Err == nil {
			node := w.servers.NodeOf(n.Keys.Lock)
			batches[node] = append(batches[node], i)
		}
	}
	for node, batch := range batches {
		jobs := make([]conn.Job, len(batch))
		for j, i := range batch {
			jobs[j] = conn.Job{Script: names[i].Proto.Inspect, Keys: names[i].Keys.All(), Args: args}
		}
		results, err := conn.InBackground(ctx, w.servers, func() ([]rueidis.RedisResult, error) {
			return w.servers.RunAll(node, jobs), nil
		})
		if ended := calls.WhyEnded(ctx); err != nil {
			err = conn.GaveUp(ctx, cmp.Or(ended, err), nil)
		} else {
			err = ended
		}
		if err != nil {
			for _, i := range batch {
				errs[i] = err
			}
			continue
		}
		for j, i := range batch {
			v, err := jobs[j].Script.DecodeInspect(results[j])
			if err != nil && conn.Transient(err) && time.Since(begun) < calls.TryTime {
				v, err = w.view(ctx, names[i], args) // That repeats it until it passes.
			}
			if err != nil {
				errs[i] = conn.Advise(err)
				continue
			}
			infos[i] = infoOf(v)
		}
	}
	w.Name(ctx, infos...)
	return infos, errs
}

// Took gets an answer to a request, and the token that it tells of.
type Took = func(n *conn.Node, a conn.Attempt, r wire.Head, token uint64)

// Free frees a name by force. A token other than 0 limits that to the hold with this token; where several may hold, a
// ticket limits it to that ticket's hold. floor tells the highest token that the client has seen; took gets each answer,
// with its token. unwoken says that the next waiter was not told.
func (w Wiring) Free(ctx context.Context, n Name, h lease.Holder, floor func() string, took Took) (freed lease.Holder, unwoken bool, err error) {
	which := strconv.FormatUint(h.Token, 10)
	if n.Proto.Several() {
		if which, err = w.holderOf(ctx, n, h.Token, h.Ticket); err != nil {
			return lease.Holder{}, false, err
		}
	}
	r, err := w.forced(ctx, n, which, floor, took)
	switch {
	case errors.Is(err, lease.ErrOutcomeUnknown):
		return lease.Holder{}, false, fmt.Errorf("it may have been freed or not: %w", err)
	case err != nil:
		return lease.Holder{}, false, fmt.Errorf("not freed: %w", err)
	case r.Status != wire.Done && len(r.States) > 0:
		return lease.Holder{}, false, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, r.Token)
	case r.Status != wire.Done || len(r.States) == 0:
		return lease.Holder{}, false, lease.ErrNotHeld
	}
	return lease.Holder{Client: wire.TicketClient(r.States[0]), Ticket: r.States[0], Token: h.Token}, r.Has(wire.Unwoken), nil
}

// mostFreed is among how many holds the one with a token is looked for.
const mostFreed = 10000

// holderOf returns the ticket that holds by a token, where several may hold. No ticket holds twice, so what is freed by
// its ticket is that hold.
func (w Wiring) holderOf(ctx context.Context, n Name, token uint64, ticket string) (string, error) {
	if ticket != "" {
		return ticket, nil
	}
	if token == 0 {
		return "", fmt.Errorf("%w: a token of 0, where several may hold: Inspect tells the token of each", lease.ErrInvalid)
	}
	v, err := w.view(ctx, n, []string{strconv.Itoa(mostFreed), "0"})
	if err != nil {
		return "", fmt.Errorf("not freed: %w", conn.Advise(err))
	}
	switch meant := slices.DeleteFunc(v.Holders, func(h lua.Holder) bool { return h.Token != token }); len(meant) {
	case 0:
		return "", lease.ErrNotHeld
	case 1:
		return meant[0].Ticket, nil
	}
	return "", fmt.Errorf("%w: several read by the token %d: name one of them by ForceReleaseHolder", lease.ErrInvalid, token)
}

// forced asks until there is an answer, for as long as a try does.
func (w Wiring) forced(ctx context.Context, n Name, which string, floor func() string, took Took) (wire.Reply, error) {
	last := time.Now().Add(calls.TryTime)
	ctx, cancel := context.WithDeadline(ctx, last)
	defer cancel()
	j := conn.Job{Script: n.Proto.Force, Keys: n.Keys.All()}.Logged(n.History, n.Keys.History)
	a, t, err := w.servers.Once(ctx, j.Script, j.Keys, last, func(conn.Attempt) []string {
		return append([]string{which, floor(), w.servers.Counted()}, j.Args...)
	}, func(n *conn.Node, a conn.Attempt, r wire.Head) { took(n, a, r, 0) })
	r := wire.Reply(t)
	if err == nil {
		took(w.servers.NodeOf(n.Keys.Lock), a, t.Head(), r.Token)
	}
	return r, err
}

// Scan walks over the keys of all masters that match a pattern of the server's, a page at a time. What fails for a
// moment it repeats. It ends with an error where SCAN fails for good, or the context ends.
func (w Wiring) Scan(ctx context.Context, match string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		nodes, err := w.servers.Masters(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, n := range nodes {
			for cursor := uint64(0); ; {
				page, next, err := w.servers.Scan(ctx, n, cursor, match, calls.TryTime)
				if !yield(page, err) || err != nil {
					return
				}
				if cursor = next; cursor == 0 {
					break
				}
			}
		}
	}
}

// Literally takes their meaning from the characters of a pattern.
func Literally(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Dial connects to one server, with what the client's own connections were made with. The caller ends it. It ends by
// itself when ctx does.
func (w Wiring) Dial(ctx context.Context, address string) (rc rueidis.Client, end func(), err error) {
	return conn.DialOne(ctx, w.Made, address)
}

// Probed asks the server of the locks what it lacks: that may have changed since the client was made.
func (w Wiring) Probed(ctx context.Context) (conn.Probed, error) { return w.servers.Probed(ctx) }
