// Package several takes holds of several names of the fair lock at once: all or none.
//
// All claims of a call come into their queues in one script for all names of a slot, which outside a cluster are all. So
// two such calls stand in the same order everywhere, and neither waits for the other in a circle. What one name grants
// before the others do is held for a bounded time. Then it is given back, and asked for again with its old arrival, so at
// the head of its queue, when one of the others is there. What is lost meanwhile counts as given back. Where nobody has told
// the arrival, because the grant came before an answer, it is the time of the first ask.
package several

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// DefaultBound is how long a call holds some of its names while it waits for others.
const DefaultBound = time.Second

// whole is one call for several names.
type whole struct {
	ctx   context.Context
	try   bool // it waits for nobody
	bound time.Duration
	begun time.Time
	parts []*part
	asked int // how many of them, from the first, it has got to
}

// A part is one of its names.
type part struct {
	queue   waitqueue.Queue
	claim   *waitqueue.Claim // the last; nil until the call has got to it
	open    bool             // the claim is neither given up nor ended
	lease   *lease.Lease     // while it is held
	waiting bool             // a goroutine waits for it
}

// Acquire waits its turn for all of the names, which must be of one client and on the same terms, and returns one lease on all of them: lost
// when one of them is, released at once. It holds some of them while it waits for others for bound at the most; 0 stands
// for [DefaultBound]. A name that is there twice is [lease.ErrInvalid].
func Acquire(ctx context.Context, queues []waitqueue.Queue, bound time.Duration) (*lease.Lease, error) {
	return acquire(&whole{ctx: ctx, bound: cmp.Or(bound, DefaultBound), begun: time.Now()}, queues)
}

// Try returns a lease on all of the names if they can be had at once and nobody waits for any, and an error that wraps
// [lease.ErrBusy] otherwise; see [retry.Calling].
func Try(ctx context.Context, queues []waitqueue.Queue) (*lease.Lease, error) {
	return retry.Calling(ctx, func(ctx context.Context) (*lease.Lease, error) {
		return acquire(&whole{ctx: ctx, try: true, bound: lease.MaxLease, begun: time.Now()}, queues)
	}, func(ctx context.Context) (*lease.Lease, error) { return Acquire(ctx, queues, 0) })
}

func acquire(w *whole, queues []waitqueue.Queue) (*lease.Lease, error) {
	retry.Given(w.ctx)
	if len(queues) > 0 {
		if most := queues[0].Terms().MaxHold; most > 0 && !w.try {
			w.bound = min(w.bound, most) // Else two calls could lose what the other waits for at the same moment, for good.
		}
		ctx, free, err := retry.InTime(w.ctx, queues[0].Terms().MaxWait)
		if err != nil {
			return nil, err
		}
		defer free()
		w.ctx = ctx
	}
	for _, q := range queues {
		if err := q.Refuses(w.ctx); err != nil {
			return nil, err
		}
		w.parts = append(w.parts, &part{queue: q})
	}
	// Slot by slot, always in the same order: where one slot has to be waited for while others are held, nobody waits
	// the other way round.
	slices.SortFunc(w.parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.queue.Slot(), b.queue.Slot()), cmp.Compare(a.queue.Name(), b.queue.Name()))
	})
	for i := 1; i < len(w.parts); i++ {
		if q := w.parts[i].queue; q.Name() == w.parts[i-1].queue.Name() {
			return nil, fmt.Errorf("%w: %q is there twice", lease.ErrInvalid, names.Label(q.Name()))
		}
	}
	if err := w.all(); err != nil {
		err = w.without(err)
		w.leave(err)
		return nil, err
	}
	return w.lease(time.Since(w.begun)), nil
}

// all gets all parts. Where the names are to stay taken, what is lost as the server is told of that is waited for again.
func (w *whole) all() error {
	for slot := range bySlot(w.parts) {
		if err := w.take(slot); err != nil {
			return err
		}
	}
	ctx, free := w.ctx, func() {}
	if w.try {
		ctx, free = context.WithTimeoutCause(w.ctx, retry.TryTime, waitqueue.ErrUntold)
	}
	defer free()
	for {
		leases := make([]*lease.Lease, len(w.parts))
		for i, p := range w.parts {
			leases[i] = p.lease
		}
		err := cmp.Or(waitqueue.Stay(ctx, w.begun, leases)...)
		if !errors.Is(err, lease.ErrLost) || ctx.Err() != nil { // The context may be that of a lost hold too.
			return err
		}
		if err := w.await(); err != nil {
			return err
		}
	}
}

// bySlot are the parts of each slot, of sorted parts.
func bySlot(parts []*part) func(func([]*part) bool) {
	return func(yield func([]*part) bool) {
		for rest := parts; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].queue.Slot() == rest[0].queue.Slot() {
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// take gets the parts of one slot: all at once, or each in its turn.
func (w *whole) take(parts []*part) error {
	for _, p := range parts {
		if err := w.enter(p); err != nil {
			return err
		}
		w.asked++
	}
	refused, err := w.ask(parts, false)
	switch {
	case err != nil:
		return err
	case refused && w.try:
		w.have(parts)
		return busy(parts)
	case refused:
		w.hear(parts)
		if _, err := w.ask(parts, true); err != nil {
			return err
		}
	}
	w.have(parts)
	return w.await()
}

// busy is why not all parts can be had at once: each with who has it.
func busy(parts []*part) (all error) {
	for _, p := range parts {
		switch err := p.claim.Busy(); {
		case err == nil:
		case all == nil:
			all = fmt.Errorf("%q: %w", p.queue.Label(), err)
		default:
			all = fmt.Errorf("%w; %q: %w", all, p.queue.Label(), err)
		}
	}
	return all
}

// without says which names a wait that has ended had not got, if it had got others.
func (w *whole) without(err error) error {
	var wait *lease.WaitError
	if !errors.As(err, &wait) {
		return err
	}
	var lacks []waitqueue.Queue
	for _, p := range w.parts {
		if p.lease == nil || p.lease.Context().Err() != nil {
			lacks = append(lacks, p.queue)
		}
	}
	if len(lacks) == 0 || len(lacks) == len(w.parts) {
		return err
	}
	return fmt.Errorf("without %s: %w", Names(lacks), err)
}

// enter gives a part a new claim: with the place of the one before, if there was one.
func (w *whole) enter(p *part) (err error) {
	if p.claim == nil {
		p.claim, err = p.queue.Claim(w.ctx, w.try)
	} else {
		p.claim = p.claim.Again()
	}
	if err == nil {
		err = p.claim.Enter(w.begun)
	}
	p.open = err == nil
	return err
}

// ask asks for all parts of a slot in one script, and again until there is an answer. It reports whether one of them
// cannot be had at once.
func (w *whole) ask(parts []*part, keep bool) (refused bool, err error) {
	claims := make([]*waitqueue.Claim, len(parts))
	for i, p := range parts {
		claims[i] = p.claim
	}
	begun := time.Now()
	return waitqueue.AskAll(w.ctx, claims, keep, func() {
		if time.Since(begun) > w.bound {
			w.yield() // What other slots have granted.
		}
	})
}

// hear waits until the client hears of all parts that are to be asked for, so that all can queue in one script; but not
// for long, as each can also queue by itself.
func (w *whole) hear(parts []*part) {
	timer := time.NewTimer(conn.SlowAnswer)
	defer timer.Stop()
	for _, p := range parts {
		for {
			hears, changed := p.claim.Hear()
			if hears {
				break
			}
			select {
			case <-changed:
			case <-timer.C:
				return
			case <-w.ctx.Done():
				return
			}
		}
	}
}

// have takes the leases of the parts that are held.
func (w *whole) have(parts []*part) {
	for _, p := range parts {
		p.lease = p.claim.Take()
	}
}

// outcome is how the wait for one part ended.
type outcome struct {
	part  *part
	lease *lease.Lease
	err   error
}

// crew is the goroutines that wait for parts, each for one.
type crew struct {
	ctx      context.Context
	outcomes chan outcome
	running  int
}

func (c *crew) begin(p *part) {
	c.running++
	p.waiting = true
	go func() {
		l, err := p.claim.Await(c.ctx)
		c.outcomes <- outcome{p, l, err}
	}()
}

// ended takes in an outcome.
func (c *crew) ended(o outcome) {
	c.running--
	p := o.part
	p.waiting = false
	p.lease = o.lease
	p.open = p.lease != nil
}

// await waits until all parts so far are held. Each waits on a goroutine of its own, and await for all of these.
func (w *whole) await() error {
	if missing, _ := w.missing(); len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	c := &crew{ctx: ctx, outcomes: make(chan outcome)}
	defer func() {
		cancel(context.Cause(w.ctx))
		for c.running > 0 {
			c.ended(<-c.outcomes)
		}
	}()
	for _, p := range w.parts[:w.asked] {
		if p.lease == nil && p.open {
			c.begin(p)
		}
	}
	patience := time.NewTimer(w.patience())
	defer patience.Stop()
	for {
		missing, holds := w.missing()
		switch {
		case len(missing) > 0 && w.try:
			return lease.ErrBusy // One was lost already.
		case len(missing) > 0 && (holds || c.running == 0):
			// One of the others is there: come back to the places that were given up.
			for _, p := range missing {
				if err := w.enter(p); err != nil {
					return err
				}
				c.begin(p)
			}
			patience.Reset(w.patience())
		case c.running == 0:
			return nil
		}
		select {
		case o := <-c.outcomes:
			c.ended(o)
			if o.err != nil {
				return o.err
			}
			if !holds {
				patience.Reset(w.patience())
			}
		case <-patience.C:
			if holds && !w.granted() {
				w.yield()
			}
			patience.Reset(w.patience())
		}
	}
}

// granted reports whether all that is waited for was granted meanwhile. A client that only looks would see it too late: two
// calls would give back in turn what the other has just been granted.
func (w *whole) granted() bool {
	ctx, cancel := context.WithTimeout(w.ctx, conn.SlowAnswer)
	defer cancel()
	return !slices.ContainsFunc(w.parts[:w.asked], func(p *part) bool { return p.waiting && !p.claim.Granted(ctx) })
}

// patience is for how long some names are held while others are waited for: the bound at the most. Half of it is left to
// chance: two calls that hold what the other waits for, and have begun to at the same moment, would else give it back at
// the same moment, get what the other had, and go on so for good.
func (w *whole) patience() time.Duration { return w.bound/2 + rand.N(w.bound-w.bound/2) }

// missing are the parts, of those that the call has got to, that are not held and that nobody waits for. What has ended
// while others were waited for is not held any more. holds says whether any is held.
func (w *whole) missing() (missing []*part, holds bool) {
	for _, p := range w.parts[:w.asked] {
		if p.lease != nil && p.lease.Context().Err() != nil {
			p.giveUp()
		}
		if p.lease == nil && !p.waiting {
			missing = append(missing, p)
		}
		holds = holds || p.lease != nil
	}
	return missing, holds
}

// giveUp notes that a part is not held any more.
func (p *part) giveUp() { p.lease, p.open = nil, false }

// mostShown is how many of several names are shown.
const mostShown = 3

// Names is how several names are shown in an error.
func Names(queues []waitqueue.Queue) string {
	shown := make([]string, 0, mostShown)
	for _, q := range queues[:min(len(queues), mostShown)] {
		shown = append(shown, strconv.Quote(q.Label()))
	}
	return andMore(fmt.Sprint(shown), len(queues))
}

// labels is the name of a lease on several names: "a, b, c and 2 more".
func labels(queues []waitqueue.Queue) string {
	shown := make([]string, 0, mostShown)
	for _, q := range queues[:min(len(queues), mostShown)] {
		shown = append(shown, q.Label())
	}
	return andMore(strings.Join(shown, ", "), len(queues))
}

// andMore says how many names are not shown.
func andMore(shown string, all int) string {
	if all > mostShown {
		return fmt.Sprintf("%s and %d more", shown, all-mostShown)
	}
	return shown
}

// queues are those of all parts.
func (w *whole) queues() []waitqueue.Queue {
	all := make([]waitqueue.Queue, len(w.parts))
	for i, p := range w.parts {
		all[i] = p.queue
	}
	return all
}
