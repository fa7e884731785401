// Package election chooses one leader among processes, and tells observers who leads.
//
// A candidate waits in the fair queue of package fairlock. The lease that Campaign returns is the leadership. Its
// release is the resignation, and hands the lead to the next candidate. What a leader proclaims is kept with its lease,
// and one message tells all observers of a change. How that survives lost messages and broken connections is explained
// in package waitqueue.
package election

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// repeatFor is how long a proclamation of a leader is repeated that is not answered.
const repeatFor = time.Minute

// An Election is the name of an election, as one client sees it. It holds no state, and may be used by several
// goroutines at once.
type Election struct {
	campaign waitqueue.Queue // of the candidates
	watch    waitqueue.Queue // of the observers
}

// New names an election. Nothing is sent; a name or an option that cannot be used is reported by the first call.
func New(c *headwaiter.Client, name string, opts ...Option) *Election {
	return &Election{
		campaign: (*waitqueue.Client)(c).Queue(lua.Election, name, waitqueue.With(opts)),
		watch:    (*waitqueue.Client)(c).Queue(lua.Leadership, name, waitqueue.DefaultTerms()).For(wire.Party, 1),
	}
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.campaign.Name() }

// Campaign waits its turn, proclaims value, and returns the leadership.
//
// Candidates lead in the order in which Redis saw them. The lease's context ends with a cause that says why; if renewals
// failed, it ends before another can lead. Its Token is higher than every earlier leader's, and belongs in every write
// that only the leader may do. Release resigns: the next candidate leads at once. If ctx ends first, or value cannot be
// proclaimed, Campaign
// gives up its place, or the lead, and returns an error as fairlock's Lock does, which is a [lease.ErrLost] where the
// lead was lost before anybody heard of it.
func (e *Election) Campaign(ctx context.Context, value string) (*lease.Lease, error) {
	l, err := e.lead(ctx, value)
	if err != nil {
		return nil, fmt.Errorf("election: campaign %q: %w", e.campaign.Label(), err)
	}
	return l, nil
}

func (e *Election) lead(ctx context.Context, value string) (*lease.Lease, error) {
	if err := checkValue(value); err != nil {
		return nil, err
	}
	l, err := e.campaign.Unreturned().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	err = e.proclaim(ctx, l, value, 0)
	if err != nil && !errors.Is(err, lease.ErrUnwoken) { // Who observes finds out all the same.
		_ = l.Release(ctx) // What cannot be confirmed ends with the lease.
		return nil, err
	}
	waitqueue.Returned(l)
	return l, nil
}

// Run campaigns with value, calls f while it leads, and campaigns again after a loss, until ctx ends or f returns.
//
// The context of f ends with the lead, and with ctx. If f returns while it leads, Run resigns, and returns what f
// returned. If the lead is lost, Run waits until f has returned, ignores its result, and campaigns again at the end
// of the queue: f never runs twice at once. If a campaign fails, Run returns its error; where that is because ctx has
// ended, it wraps the error and the cause of ctx. Run resigns even if f panics.
func (e *Election) Run(ctx context.Context, value string, f func(context.Context) error) error {
	for tries := 0; ; tries++ {
		var l *lease.Lease
		lost := false
		err := lease.Do(ctx, func(ctx context.Context) (_ *lease.Lease, err error) {
			l, err = e.Campaign(ctx, value)
			lost = errors.Is(err, lease.ErrLost) // Before anybody heard of it.
			return l, err
		}, func(ctx context.Context) error {
			err := f(ctx)
			lost, tries = errors.Is(context.Cause(l.Context()), lease.ErrLost), 0
			return err
		})
		if !lost {
			return err
		}
		_ = calls.Rest(ctx, calls.Backoff(tries)) // If ctx ends, the campaign says so.
	}
}

// Proclaim changes the value of the leader that holds l.
//
// It takes effect only while l leads, by the server's word: after the end of the lease nothing is written, and the
// error is a [lease.ErrLost], or [lease.ErrReleased]. So no value of an earlier leader ever replaces the value of a later one,
// however late its request arrives. Where the server says that l does not lead any more, the lease's context ends too.
// Other errors:
//
//   - [lease.ErrOutcomeUnknown]: the value may be proclaimed or not.
//   - [lease.ErrUnwoken]: it is proclaimed, and observers find that out by themselves.
//   - [lease.ErrTooLarge]: the value has more than [lease.MaxValue] bytes.
//   - [lease.ErrNotHeld]: l is of another name.
func (e *Election) Proclaim(ctx context.Context, l *lease.Lease, value string) error {
	err := checkValue(value)
	if err == nil {
		err = e.proclaim(ctx, l, value, repeatFor)
	}
	if err != nil {
		return fmt.Errorf("election: proclaim %q: %w", e.campaign.Label(), err)
	}
	return nil
}

func (e *Election) proclaim(ctx context.Context, l *lease.Lease, value string, limit time.Duration) error {
	r, err := e.campaign.CallHeld(ctx, l, lua.ElectionProclaim, limit, func(h waitqueue.Holding, a waitqueue.Attempt) []string {
		return []string{h.Ticket, h.Token, h.Number, h.Who, a.NotAfter, value}
	})
	if err == nil && r.Has(wire.Unwoken) {
		return e.campaign.Unwoken()
	}
	return err
}

func checkValue(value string) error {
	if len(value) > lease.MaxValue {
		return fmt.Errorf("%w: a value of %d bytes, at most %d are allowed", lease.ErrTooLarge, len(value), lease.MaxValue)
	}
	return nil
}

// Leader returns who leads, or [lease.ErrNoLeader]. A leader whose lease has run out by the server's clock is none. The answer
// is of the moment: who leads may be another when it arrives.
func (e *Election) Leader(ctx context.Context) (lease.Leader, error) {
	l, _, err := e.look(ctx)
	if err == nil && l.Token == 0 {
		err = lease.ErrNoLeader
	}
	if err != nil {
		return lease.Leader{}, fmt.Errorf("election: leader %q: %w", e.campaign.Label(), err)
	}
	return l, nil
}

// look asks who leads, and in which generation.
func (e *Election) look(ctx context.Context) (lease.Leader, int64, error) {
	r, err := waitqueue.Call(ctx, e.watch, lua.ElectionLeader, 0, func(waitqueue.Attempt) []string { return nil })
	if err != nil || r.Status != wire.Done {
		return lease.Leader{}, r.Generation, err
	}
	return lease.Leader{Value: r.Value, Token: r.Token, Who: r.Who, Since: time.UnixMicro(r.Since)}, r.Generation, nil
}

// Observe returns a channel of who leads: at first who does now, then each change, be it of the leader or of its
// value. Nobody is the zero Leader.
//
// The channel keeps the newest alone. One that was not received in time is replaced by the next, so a slow receiver
// misses what is over, and never the last. Lost messages, broken connections and restarts of the server only delay it:
// a change whose message is lost is found within three seconds, and the end of a leader that dies at the end of its
// lease; with more clients that observe one name than 200, within three seconds or 7 ms times their number, whichever
// is longer.
//
// The channel is closed when ctx ends. Where the client is closed, or Redis has an error that no retry mends, the last
// Leader says so in Err, and the channel is closed.
func (e *Election) Observe(ctx context.Context) <-chan lease.Leader {
	calls.Given(ctx)
	leaders := make(chan lease.Leader, 1)
	put := func(l lease.Leader) {
		select {
		case <-leaders:
		default:
		}
		leaders <- l // There is room: nobody else sends.
	}
	over := func(err error) {
		if ctx.Err() == nil {
			put(lease.Leader{Err: fmt.Errorf("election: observe %q: %w", e.watch.Label(), err)})
		}
		close(leaders)
	}
	if err := e.watch.Spawn(func() { over(e.follow(ctx, put)) }); err != nil {
		over(err)
	}
	return leaders
}

// follow puts one leader after the other, until an error.
func (e *Election) follow(ctx context.Context, put func(lease.Leader)) error {
	var last lease.Leader
	for first := true; ; first = false {
		l, generation, err := e.look(ctx)
		if err != nil {
			return err
		}
		if first || l != last {
			put(l)
		}
		last = l
		seen := []string{strconv.FormatInt(generation, 10)}
		if _, err := e.watch.Await(ctx, waitqueue.Event{Extras: func(_, _ string) []string { return seen }}); err != nil {
			return err
		}
	}
}

// Inspect tells who leads and who campaigns. It takes no place in any order.
func (e *Election) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := e.campaign.Inspect(ctx)
	if err != nil {
		return info, fmt.Errorf("election: inspect %q: %w", e.campaign.Label(), err)
	}
	return info, nil
}

// ForceRelease takes the lead from the present leader; the leader's context ends with the cause [lease.ErrForced].
//
// The token limits it to one hold: 0 frees any. The holder is told at once if it has held for
// 250 ms, else by its next renewal, and may act until then. [lease.ErrNotHeld]: nobody held. [lease.ErrOtherToken]: held with
// another token. [lease.ErrUnwoken]: it is free, and the waiters find that out by themselves.
func (e *Election) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := e.campaign.ForceRelease(ctx, token)
	if err != nil {
		return w, fmt.Errorf("election: force release %q: %w", e.campaign.Label(), err)
	}
	return w, nil
}
