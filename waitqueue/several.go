package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// Calls for several names: all of them or none, or each for itself. Both begin, ask, wait and release in the same way, and the
// core decides what they do next. The one difference is what goes in one request: the names of a slot in one script, or the
// names of a node in one round trip.
//
// All tickets of a call for all or none come into the queues of a slot in one script; outside a cluster that is all queues. So
// two such calls stand in the same order everywhere, and neither waits for the other in a circle.

// DefaultBound is how long [AcquireAll] holds some of its names while it waits for others, if it is not told otherwise.
const DefaultBound = time.Second

// An Outcome is what became of one of several calls: a lease, or the reason why there is none.
type Outcome struct {
	Lease *lease.Lease
	Err   error
}

// A multi is one call for several names.
type multi struct {
	ctx    context.Context
	waits  context.Context // of the waits of a call for all or none: it ends when one has failed
	begun  time.Time
	mode   string
	core   core.Multi
	queues []Queue
	parts  []*part
	ended  chan *part // whose waits have ended; it has room for all
	tried  chan bool  // of a request for the names of a slot: it is answered, or an attempt of it has failed; it has room for both
}

// A part is one of the names. Its outcome may be read once ended has delivered it.
type part struct {
	Outcome
	*wait // the last; nil until the call has come to the name
	queue Queue
	index int
	asked time.Time // of the first script that asked for it and may have run; zero if there was none
	came  int64     // the place that the script for the names of the slot has got for one that it did not grant; 0: none is known
}

func newMulti(ctx context.Context, queues []Queue, mode string) *multi {
	m := &multi{ctx: ctx, begun: time.Now(), mode: mode, core: core.NewMulti(len(queues)), queues: queues, ended: make(chan *part, len(queues)), tried: make(chan bool, 2)}
	m.core.Try = mode == wire.Try
	for i, q := range queues {
		q.client.identity.Expect(q.keys, q.terms.History)
		m.parts = append(m.parts, &part{queue: q, index: i})
	}
	return m
}

// AcquireAll waits its turn for all of the queues, which must be of the fair lock, of one client and on the same terms. It
// returns one lease on all of them: lost when one of them is, released at once. It holds some of them while it waits for others
// for bound at the most; 0 stands for [DefaultBound]. Then it gives them back, and asks for them again at their old places. A
// name that is there twice is [lease.ErrInvalid].
func AcquireAll(ctx context.Context, queues []Queue, bound time.Duration) (*lease.Lease, error) {
	return acquireAll(ctx, queues, wire.Wait, cmp.Or(bound, DefaultBound))
}

// TryAll returns a lease on all of the queues if they can be had at once and nobody waits for any, and an error that wraps
// [lease.ErrBusy] otherwise. Clients that only keep what they held are called, as by [Queue.Try].
func TryAll(ctx context.Context, queues []Queue) (*lease.Lease, error) {
	return calls.Calling(ctx, func(ctx context.Context) (*lease.Lease, error) {
		return acquireAll(ctx, queues, wire.Try, lease.MaxLease)
	}, func(ctx context.Context) (*lease.Lease, error) { return AcquireAll(ctx, queues, 0) })
}

func acquireAll(ctx context.Context, queues []Queue, mode string, bound time.Duration) (*lease.Lease, error) {
	calls.Given(ctx)
	if len(queues) == 0 {
		return nil, fmt.Errorf("%w: no names", lease.ErrInvalid)
	}
	terms := queues[0].terms
	if terms.MaxHold > 0 && mode == wire.Wait {
		bound = min(bound, terms.MaxHold) // Otherwise two calls could lose what the other waits for at the same moment, for good.
	}
	// Slot by slot, always in the same order: of two calls that each wait for a slot while they hold another, none has what the
	// other waits for.
	queues = slices.SortedFunc(slices.Values(queues), func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.slot(), b.slot()), cmp.Compare(a.name, b.name))
	})
	m := newMulti(ctx, queues, mode)
	m.core.Bound = bound
	ctx, free, err := calls.InTime(ctx, terms.MaxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	for i, q := range queues {
		if _, err := q.ready(ctx); err != nil {
			return nil, err
		}
		if i > 0 && q.name == queues[i-1].name {
			return nil, fmt.Errorf("%w: %q is there twice", lease.ErrInvalid, q.Label())
		}
	}
	waits, stop := context.WithCancel(ctx)
	m.ctx, m.waits = ctx, waits
	err = m.takeAll()
	for stop(); m.core.Waits(); {
		m.take(<-m.ended)
	}
	if err != nil {
		return nil, m.leave(err)
	}
	return m.lease(), nil
}

// takeAll gets all parts. If names are to stay taken, it waits again for a part that is lost while the server is told so.
func (m *multi) takeAll() error {
	slot := func(p *part) uint16 { return p.queue.slot() }
	slots := conn.Parts(m.queues[0].client.servers, slices.Clone(m.parts), len(m.parts), slot)
	for _, parts := range slots {
		for len(m.tried) > 0 {
			<-m.tried // Of the slot before, all of whose parts are held.
		}
		m.core.OnRequest()
		go m.askSlot(slices.DeleteFunc(parts, func(p *part) bool { return !m.begin(m.waits, p) }))
		if err := m.await(); err != nil {
			return err
		}
	}
	for {
		err := cmp.Or(m.stay(m.ctx, m.leases(m.core.In(core.PartHeld)))...)
		if !errors.Is(err, lease.ErrLost) || m.ctx.Err() != nil { // The context may be a lost hold's.
			return err
		}
		if err := m.await(); err != nil {
			return err
		}
	}
}

// input is the time and chance for the core.
func (m *multi) input() *core.Input { return &core.Input{Now: time.Now(), Chance: rand.Uint64()} }

// begin begins a wait for a part, or reports false if that has failed. The part keeps its place, if it had one. If it was granted
// before it was told one, it has the place that the same script has got for the others, so that it stands in the same order
// everywhere. If all were granted, it goes by the time of the request.
func (m *multi) begin(ctx context.Context, p *part) bool {
	m.core.OnAsk(m.input(), p.index)
	var arrival int64
	if p.wait != nil {
		p.entry.mu.Lock()
		arrival = cmp.Or(p.ticket.Arrival, p.came)
		p.entry.mu.Unlock()
		if earliest := p.entry.node().Clock.AtLeast(p.asked); arrival == 0 && !p.asked.IsZero() && earliest > 0 {
			arrival = earliest - p.queue.terms.headStart()
		}
	}
	w, err := p.queue.begin(ctx, m.mode)
	if p.Outcome = (Outcome{Err: err}); err != nil {
		m.ended <- p
		return false
	}
	p.wait = w
	if err := w.entry.enter(ctx); err != nil {
		w.finish()
		p.Err = err
		m.ended <- p
		return false
	}
	w.entry.mu.Lock()
	defer w.entry.mu.Unlock()
	w.Begun, w.Joint = m.begun, true
	w.ticket.Arrival = cmp.Or(arrival, w.ticket.Arrival)
	return true
}

// goOn takes what was granted to a part. Parts that have to wait, for their turn or for another answer of the server, do
// so at the same time as the others.
func (m *multi) goOn(p *part) {
	if p.ctx.Err() == nil {
		p.Lease = p.take()
	}
	if p.Lease == nil {
		go m.alone(p)
		return
	}
	m.ended <- p
}

// alone waits for a part.
func (m *multi) alone(p *part) {
	p.Lease, p.Err = p.toTheEnd(plan{})
	m.ended <- p
}

// take takes in the outcome of a part.
func (m *multi) take(p *part) { m.core.OnOutcome(m.input(), p.index, p.Err) }

// await does what the core decides until nothing is waited for any more, or the call fails.
func (m *multi) await() error {
	for {
		for i := 0; i < len(m.parts) && !m.core.Each; i++ {
			if m.core.Holds(i) && m.parts[i].Lease.Context().Err() != nil {
				m.core.OnLost(i) // Or it was given back.
			}
		}
		var patience <-chan time.Time
		step := m.core.Next(m.input())
		switch step.Do {
		case core.MultiDone, core.MultiFail:
			return step.Err
		case core.MultiAsk:
			for _, i := range step.Parts {
				if m.begin(m.waits, m.parts[i]) {
					go m.alone(m.parts[i])
				}
			}
			continue
		case core.MultiLook:
			m.core.OnLook(m.granted(step.Parts))
			continue
		case core.MultiGiveBack:
			m.giveBack(step.Parts)
			continue
		}
		if !step.At.IsZero() {
			patience = time.After(time.Until(step.At))
		}
		select {
		case p := <-m.ended:
			m.take(p)
		case answered := <-m.tried:
			m.core.OnAttempt(m.input(), answered)
		case <-patience:
		}
	}
}

// granted reports whether all of some parts were granted meanwhile. A client without subscriptions polls first.
func (m *multi) granted(parts []int) bool {
	ctx, cancel := context.WithTimeout(m.ctx, conn.SlowAnswer)
	defer cancel()
	return !slices.ContainsFunc(parts, func(i int) bool {
		e, t := m.parts[i].entry, m.parts[i].ticket
		var looked <-chan struct{}
		x := e.begin()
		if t.Waits() && e.lock.Polls {
			looked = e.look(x)
		}
		e.end(x)
		if looked != nil {
			select {
			case <-looked:
			case <-ctx.Done():
			case <-e.client.servers.Ended():
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return !t.Granted()
	})
}

// leases are the leases of some parts.
func (m *multi) leases(parts []int) []*lease.Lease {
	all := make([]*lease.Lease, len(parts))
	for i, n := range parts {
		all[i] = m.parts[n].Lease
	}
	return all
}

// giveBack releases some parts, so that nobody waits for them meanwhile. It waits a short time for the replies, at most
// until the context of the call ends. The rest goes on in the background, or ends with its lease.
func (m *multi) giveBack(parts []int) {
	ctx, cancel := context.WithTimeout(m.ctx, conn.AnswerTime)
	defer cancel()
	_ = releaseParts(ctx, m.leases(parts), len(m.parts))
}

// releaseParts releases parts of a call for several names, and returns the first error; of is how many names.
func releaseParts(ctx context.Context, leases []*lease.Lease, of int) error {
	if of == 1 && len(leases) == 1 {
		return leases[0].Release(ctx)
	}
	return cmp.Or(releaseAll(ctx, leases, true)...)
}

// leave ends a call that has failed, and releases all that it had. It returns the error of the call.
func (m *multi) leave(err error) error {
	err = m.without(err)
	m.giveBack(m.core.In(core.PartHeld))
	ctx, cancel := context.WithTimeout(m.ctx, conn.AnswerTime)
	defer cancel()
	for _, p := range m.parts {
		if p.wait != nil && errors.Is(err, lease.ErrReplicas) {
			p.awaitEnd(ctx) // So that the next call finds all names free.
		}
	}
	return err
}

// without adds to the error of a wait which names it had not got, if it had got others.
func (m *multi) without(err error) error {
	var lacks []Queue
	for _, p := range m.parts {
		if p.Lease == nil || p.Lease.Context().Err() != nil {
			lacks = append(lacks, p.queue)
		}
	}
	if wait := (*lease.WaitError)(nil); len(lacks) == 0 || len(lacks) == len(m.parts) || !errors.As(err, &wait) {
		return err
	}
	return fmt.Errorf("without %s: %w", Labels(lacks), err)
}

// lease makes one lease of the leases of all parts.
func (m *multi) lease() *lease.Lease {
	parts := m.leases(m.core.In(core.PartHeld))
	names, more := labels(m.queues)
	var token uint64
	keepers := make([]*keeper.Keeper, len(parts))
	for i, l := range parts {
		token = max(token, l.Token())
		keepers[i] = (*keeper.Keeper)(l)
	}
	worst := slices.MaxFunc(keepers, func(a, b *keeper.Keeper) int { return cmp.Compare(alarm(a), alarm(b)) })
	stops := make([]func() bool, len(parts))
	stop := func() {
		for _, stop := range stops {
			stop()
		}
	}
	all := keeper.New(m.ctx, keeper.Terms{
		Name: strings.Join(names, ", ") + more, Token: token, Parts: keepers, Previous: worst.Previous(),
		Waited: time.Since(m.begun), Until: keeper.Until{Deadline: time.Now().Add(lease.MaxLease), Slept: keeper.Slept()},
		Release: func(ctx context.Context) error { stop(); return releaseParts(ctx, parts, len(parts)) },
		Unlock: func() {
			stop()
			for _, l := range parts {
				l.Unlock()
			}
		},
	})
	for i, l := range parts {
		if l.Token() < token {
			below(l)
		}
		Returned(l)
		stops[i] = context.AfterFunc(l.Context(), func() { lostOne(all, parts, l) })
	}
	return (*lease.Lease)(all)
}

// alarm is how much a holder wants to know how the hold of a part before ended: not if it was given back, and above all if it is
// known that it was not.
func alarm(k *keeper.Keeper) int {
	switch (*lease.Lease)(k).Previous().Kind {
	case lease.EndingReleased:
		return 0
	case lease.EndingUnknown:
		return 1
	}
	return 2
}

// below notes that a hold is part of a hold of several names, which has a higher token. However this hold ends, the next
// holder of its name gets a token above that higher token.
func below(l *lease.Lease) {
	h := (*keeper.Keeper)(l).Engine().(*share).hold
	h.ticket.entry.mu.Lock()
	defer h.ticket.entry.mu.Unlock()
	h.Below(l.Token())
}

// lostOne ends the lease on all parts because one part's lease has ended, and gives back the others.
func lostOne(all *keeper.Keeper, parts []*lease.Lease, one *lease.Lease) {
	all.Lose(context.Cause(one.Context()))
	if errors.Is(context.Cause(all.Context()), lease.ErrReleased) {
		return // The release has begun, which gives back the others.
	}
	for _, l := range parts {
		_ = l.Release(calls.Over)
	}
}

// Labels shows the names of several queues in an error.
func Labels(queues []Queue) string {
	names, more := labels(queues)
	return fmt.Sprintf("%q%s", names, more)
}

// labels are the first names of several queues, and a word on how many there are more.
func labels(queues []Queue) (names []string, more string) {
	const most = 3
	for _, q := range queues[:min(len(queues), most)] {
		names = append(names, q.Label())
	}
	if len(queues) > most {
		more = fmt.Sprintf(" and %d more", len(queues)-most)
	}
	return names, more
}
