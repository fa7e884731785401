package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A call is one Lock or TryLock: first on its way, then the hold that came of it.
//
// It has a ticket at each node, all asked for at the same time. The goroutine that brings news of one takes the lock,
// notes it and lets the waiting call judge. After the call has returned with a hold, the news of a vote that was lost and
// a timer are all that there is; votes that come late are added.
type call struct {
	m       *Mutex
	try     bool
	ctx     context.Context // of what it asks: ends with the call, or with the hold
	stop    context.CancelFunc
	terms   waitqueue.Terms
	vote    wire.Vote // what its tickets say of it; those that a hold asks for say its token too
	begun   time.Time
	changed chan struct{} // something below has changed
	work    background    // what it has under way; all of it is the Mutex's too

	mu     sync.Mutex // guards the fields below; comes before all locks of clients and leases
	votes  []vote     // in the order of the nodes
	over   bool       // what comes from now on is given back
	rounds int        // looks for who is ahead
	alive  time.Time  // when to look next whether the nodes answer
	split  time.Time  // when to look next who is ahead; zero while there is nothing to give way with

	keeper *keeper.Keeper // once it holds
	limit  keeper.Until   // the maximum hold; zero if there is none
	timer  *time.Timer    // of the next look at the deadline
	lost   error          // why the hold was lost, if it was; its lease may tell of a release that had begun
}

// A vote is what a call has at one node. The lock of the call guards it.
type vote struct {
	lease   *lease.Lease // nil if it has no vote there
	unwatch func() bool  // ends the watch over it
	token   uint64       // that the node has for it, once raised is over
	raising bool
	looking bool  // a look is under way
	silent  int   // looks that were not answered, in a row
	last    error // what the last of them came to
	failed  error // why the node will never give its vote
}

// begin asks all nodes.
func (m *Mutex) begin(try bool) *call {
	now, floor := m.clocks()
	m.above(floor)
	c := &call{
		m: m, try: try, terms: m.set.terms(), begun: time.Now(), changed: make(chan struct{}, 1),
		votes: make([]vote, len(m.nodes)),
	}
	c.terms.Arrival = max(m.arrive(now)-int64(c.terms.Priority)*waitqueue.PriorityStep.Microseconds(), 1)
	c.vote.Call = lua.NewCall()
	c.alive = c.begun.Add(m.set.timeout)
	c.ctx, c.stop = context.WithCancel(context.Background())
	for i := range m.nodes {
		c.run(func() { c.ask(i) })
	}
	return c
}

// run does something of the call in the background.
func (c *call) run(f func()) {
	c.work.add()
	c.m.work.run(func() {
		defer c.work.done()
		f()
	})
}

// ask gets the vote of a node, however long that takes, unless the call is over before. A call that tries is to have votes
// at once or not at all; a hold takes what comes.
func (c *call) ask(i int) {
	terms, vote := c.terms, c.vote
	c.mu.Lock()
	tries := c.try
	if c.keeper != nil {
		tries, vote.Token = false, c.keeper.Token()
	}
	c.mu.Unlock()
	terms.Vote = vote.String()
	q := c.m.nodes[i].queue.On(terms)
	get := q.Acquire
	if tries {
		get = q.Try
	}
	l, err := get(c.ctx)
	if !c.voted(i, l, err) {
		c.giveBack(l)
	}
}

// voted takes in what came of an ask, and reports whether it has a use for it.
func (c *call) voted(i int, l *lease.Lease, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return l == nil
	}
	v := &c.votes[i]
	if err != nil {
		v.failed = err
		c.retryLocked(i)
	} else {
		v.lease, v.token, v.silent = l, l.Token(), 0
		v.unwatch = context.AfterFunc(l.Context(), func() { c.gone(i, l) })
	}
	c.poke()
	return true
}

// retryLocked asks again where a try has found a node busy, once it has its quorum: with a bare one it would outlast
// nothing, and what the node is busy with is no hold.
func (c *call) retryLocked(i int) {
	v := &c.votes[i]
	if c.keeper == nil || v.lease != nil || !errors.Is(v.failed, lease.ErrBusy) {
		return
	}
	v.failed = nil
	c.run(func() { c.ask(i) })
}

// gone takes in that a vote was lost. A call asks for it again, a hold does so where that is safe: where a node that
// has restarted is not believed before a lease is over, its vote is as good as any that comes late.
func (c *call) gone(i int, l *lease.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.votes[i]
	if c.over || v.lease != l {
		return
	}
	cause := context.Cause(l.Context())
	c.dropLocked(v)
	if c.keeper != nil {
		c.keepLocked(cause)
		if c.lost != nil || c.m.set.trustful || errors.Is(cause, lease.ErrForced) {
			return
		}
	}
	c.run(func() { c.ask(i) })
	c.poke()
}

// dropLocked takes the vote out of the count.
func (c *call) dropLocked(v *vote) *lease.Lease {
	l := v.lease
	v.unwatch()
	v.lease, v.unwatch, v.token, v.raising = nil, nil, 0, false
	return l
}

// giveBack releases a vote, and comes back when the node has answered or the client has given up.
func (c *call) giveBack(l *lease.Lease) {
	// What it says is of no use to anybody: if it is not confirmed the vote ends with its lease.
	_ = l.Release(context.Background())
}

// giveWayLocked gives a vote back and asks for it again, after the calls that came before.
func (c *call) giveWayLocked(i int) {
	l := c.dropLocked(&c.votes[i])
	c.run(func() {
		c.giveBack(l)
		c.ask(i)
	})
}

func (c *call) poke() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// certainLocked reports whether the vote is there by the clocks of this machine.
func (v *vote) certainLocked() bool { return v.lease != nil && v.lease.Context().Err() == nil }

// wait judges until the call holds or cannot.
func (c *call) wait(ctx context.Context) (*lease.Lease, error) {
	timer := time.NewTimer(c.m.set.timeout)
	defer timer.Stop()
	for {
		l, err := c.judge(ctx)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-c.changed:
		case <-timer.C:
			c.look()
		case <-ctx.Done():
			return nil, c.ended(ctx)
		}
		timer.Reset(time.Until(c.next()))
	}
}

// judge returns the hold if the votes are enough, and an error if they cannot be.
func (c *call) judge(ctx context.Context) (*lease.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.electLocked(ctx); k != nil {
		return (*lease.Lease)(k), nil
	}
	missing := 0
	for i := range c.votes {
		if c.votes[i].missing() {
			missing++
		}
	}
	if missing > len(c.votes)-c.m.quorum {
		return nil, c.hopelessLocked(missing)
	}
	return nil, nil
}

// mostSilent is how many looks a node may leave without an answer before it is not counted on.
const mostSilent = 2

// missing reports whether the node will not vote, as far as is known.
func (v *vote) missing() bool { return v.lease == nil && (v.failed != nil || v.silent >= mostSilent) }

// hopelessLocked says why there is no quorum.
func (c *call) hopelessLocked(missing int) error {
	busy, silent := 0, 0
	var why nodeErrors
	none := lease.ErrBusy
	for i := range c.votes {
		v := &c.votes[i]
		if !v.missing() {
			continue
		}
		err := v.failed
		switch {
		case err == nil:
			err = v.last
			silent++
		case errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrTooLarge):
			return err // It is the name or the terms, and no node's fault.
		case errors.Is(err, lease.ErrBusy):
			busy++
			if errors.Is(err, lease.ErrRestarted) {
				none = err
			}
			continue
		}
		why = append(why, fmt.Errorf("node %d: %w", i+1, err))
	}
	if missing-busy <= len(c.votes)-c.m.quorum {
		return fmt.Errorf("%d of %d nodes: %w", busy, len(c.votes), none)
	}
	verb := "failed"
	if silent == len(why) {
		verb = "did not answer"
	}
	return &lease.WaitError{
		Place: -1, Waited: time.Since(c.begun),
		Err:        fmt.Errorf("%w: %d of %d nodes %s: %w", ErrNoQuorum, len(why), len(c.votes), verb, why),
		Unanswered: silent > 0,
	}
}

// nodeErrors are what the nodes say, in one line.
type nodeErrors []error

func (e nodeErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e nodeErrors) Unwrap() []error { return e }

// ended says that the caller's context ended, and how far the call had come.
func (c *call) ended(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	votes, away := 0, 0
	var last error
	for i := range c.votes {
		v := &c.votes[i]
		if v.certainLocked() {
			votes++
			continue
		}
		if v.last != nil && v.silent > 0 {
			last = fmt.Errorf("node %d: %w", i+1, v.last)
		}
		if v.silent > 0 || v.failed != nil && !errors.Is(v.failed, lease.ErrBusy) || c.m.nodes[i].queue.Silent() {
			away++
		}
	}
	return &lease.WaitError{
		Place: -1, Waited: time.Since(c.begun), Last: last,
		Err:        fmt.Errorf("with %d of %d votes: %w", votes, len(c.votes), calls.WhyEnded(ctx)),
		Unanswered: away > len(c.votes)-c.m.quorum,
	}
}

// abandon gives up: what the call has is given back, what it has asked for is not waited for. It leaves when the nodes
// have confirmed that, as far as they do so in time and ctx lasts.
func (c *call) abandon(ctx context.Context) {
	c.mu.Lock()
	leases := c.endLocked()
	c.mu.Unlock()
	c.stop()
	answers := c.giveAllBack(leases)
	timer := time.NewTimer(c.m.set.timeout)
	defer timer.Stop()
	for range leases {
		select {
		case <-answers:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// endLocked ends the call or its hold, and returns what has to be given back. What is asked for goes on until stop.
func (c *call) endLocked() []*lease.Lease {
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
	var leases []*lease.Lease
	for i := range c.votes {
		if v := &c.votes[i]; v.lease != nil {
			leases = append(leases, c.dropLocked(v))
		}
	}
	return leases
}

// giveAllBack releases votes at the same time; what comes of each is in the channel.
func (c *call) giveAllBack(leases []*lease.Lease) <-chan error {
	answers := make(chan error, len(leases))
	for _, l := range leases {
		c.run(func() { answers <- l.Release(context.Background()) })
	}
	return answers
}
