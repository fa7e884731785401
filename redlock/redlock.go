package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// ErrNoQuorum: too many nodes did not answer, or failed, for the others to be a majority.
var ErrNoQuorum = errors.New("no quorum")

// A Mutex is the name of a lock on several independent servers, as one client of each sees it. Its methods may be
// called by several goroutines at once.
type Mutex struct {
	name   string
	nodes  []node
	quorum int
	set    settings
	held   heldKey
	err    error // why it cannot be used
	work   background
	latest atomic.Int64 // the arrival of the last call
}

// A node is one of the servers.
type node struct {
	client *waitqueue.Client
	queue  waitqueue.Queue
}

// heldKey finds the lease on a lock in a context.
type heldKey struct{ clients, name string }

// New names a lock on the servers of the given clients, one each. Nothing is sent; what cannot be used is reported
// by the first call of Lock or TryLock.
//
// The servers must be masters that know nothing of each other: replicas of one another, or the shards of one
// cluster, fail together. Three or five are usual. Of four, a majority is three, so they stand no more failures than
// three do; of two it is two, so they stand none, and less than one server alone. Both are allowed.
func New(clients []*headwaiter.Client, name string, opts ...Option) *Mutex {
	m := &Mutex{name: name, set: with(opts), quorum: len(clients)/2 + 1}
	m.err = errors.Join(checkNodes(clients), m.set.check())
	ids := make([]string, 0, len(clients))
	for _, c := range clients {
		if c != nil {
			client := (*waitqueue.Client)(c)
			m.nodes = append(m.nodes, node{client, client.Queue(lua.Redlock, name, m.set.terms())})
			ids = append(ids, c.ID())
		}
	}
	slices.Sort(ids)
	m.held = heldKey{strings.Join(ids, " "), name}
	return m
}

func checkNodes(clients []*headwaiter.Client) error {
	if len(clients) == 0 {
		return fmt.Errorf("%w: there are no nodes", lease.ErrInvalid)
	}
	for i, c := range clients {
		if c == nil || slices.Contains(clients[:i], c) {
			return fmt.Errorf("%w: client %d is nil or there before", lease.ErrInvalid, i+1)
		}
	}
	return nil
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.name }

// Lock waits its turn for m and returns the lease on it, which a majority of the nodes stands for.
//
// Calls are served in the order of their arrival, by the median of the nodes' clocks, which a client knows to within
// half a round trip; a release hands over by message. Nodes that do not answer hold up nobody: if too many do not answer
// for the others to be a majority, Lock returns an error that wraps [ErrNoQuorum], within four time-outs
// ([WithTimeout]). If ctx ends first, Lock gives up its places and returns an error that wraps the context's. In each
// case whatever it has at any node is given back; what cannot be told to a node ends there with its lease.
//
// With a context that comes from a hold of the same lock, Lock fails at once with [lease.ErrDeadlock].
func (m *Mutex) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("redlock: lock %q: %w", m.label(), err)
	}
	return l, nil
}

// TryLock returns the lease on m if a majority of the nodes gives it at once, and an error that wraps
// [lease.ErrBusy] otherwise: it never overtakes a waiter at a majority. Of several that try at the same
// moment all may fail. It waits for about a time-out at the most, and gives back what it has got. Where that is because
// nodes have no vote yet after a restart, the error wraps [lease.ErrRestarted] too. Once it holds by a majority, it
// goes on asking the nodes that were busy.
func (m *Mutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.acquire(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("redlock: try lock %q: %w", m.label(), err)
	}
	return l, nil
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// Wait returns when nothing is under way any more of what earlier calls have left to slow nodes: a call that holds
// or fails, and a release, return when a majority has answered. What is held asks for further votes until it is
// released, so call Wait when nothing is held. It is for tidy ends; the clients' Close sees to what has to be given back.
func (m *Mutex) Wait(ctx context.Context) error {
	given(ctx)
	if err := m.work.wait(ctx); err != nil {
		return fmt.Errorf("redlock: wait for %q: %w", m.label(), err)
	}
	return nil
}

func (m *Mutex) acquire(ctx context.Context, try bool) (*lease.Lease, error) {
	given(ctx)
	if m.err != nil {
		return nil, m.err
	}
	if ctx.Err() != nil {
		return nil, &lease.WaitError{Place: -1, Err: calls.WhyEnded(ctx)}
	}
	if k, ok := ctx.Value(m.held).(*keeper.Keeper); ok && !k.Overdue() {
		return nil, lease.ErrDeadlock
	}
	ctx, free, err := calls.InTime(ctx, m.set.maxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	c := m.begin(try)
	l, err := c.wait(ctx)
	if err != nil {
		c.abandon(ctx)
	}
	return l, err
}

// label is the name, cut to what an error should show.
func (m *Mutex) label() string { return names.Label(m.name) }

// given panics where there is no context, as package context does: when nothing is changed yet.
func given(ctx context.Context) {
	if ctx == nil {
		panic("redlock: nil context")
	}
}

// clocks returns the time by the median of the nodes' clocks, as far as their last answers tell, and the token to rise
// above: it is ahead of all clocks, so that all nodes give the same, except nodes that are far ahead of the median.
func (m *Mutex) clocks() (now int64, floor uint64) {
	var few [8]int64
	times := few[:0]
	for i := range m.nodes {
		times = append(times, waitqueue.ServerTime(m.nodes[i].client, m.name).UnixMicro())
	}
	slices.Sort(times)
	median := times[len(times)/2]
	latest := median
	for _, t := range times {
		if t-median < farAhead.Microseconds() {
			latest = max(latest, t)
		}
	}
	ahead := min(max(m.set.lease/1000, leastAhead), mostAhead)
	return median, uint64(latest + ahead.Microseconds())
}

// arrive returns the arrival of a call that comes now: later than those of all calls of m before it, and by chance a
// little later than now, so that calls of several processes which come at the same microsecond have another each.
func (m *Mutex) arrive(now int64) int64 {
	now += rand.Int64N(spread.Microseconds())
	for {
		latest := m.latest.Load()
		arrival := max(now, latest+1)
		if m.latest.CompareAndSwap(latest, arrival) {
			return arrival
		}
	}
}

const (
	// spread is how far apart calls are put that come at once: less than a request to a node takes, mostly, and so
	// less than what their order goes by.
	spread = 250 * time.Microsecond

	// farAhead is how much later than the median a clock may be that the others' tokens follow.
	farAhead = time.Second
	// Tokens run ahead of the clocks by a thousandth of the lease within these bounds: it should be more than a
	// request takes to a node.
	leastAhead = 2 * time.Millisecond
	mostAhead  = 50 * time.Millisecond
)

// above lets all nodes give tokens above the same one.
func (m *Mutex) above(floor uint64) {
	for i := range m.nodes {
		waitqueue.Above(m.nodes[i].client, floor)
	}
}
