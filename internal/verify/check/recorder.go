package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Recorder notes the calls that are made through it. It may be used by several goroutines.
type Recorder struct {
	start time.Time

	mu    sync.Mutex // guards the fields below, and the fields of what is held
	ops   []Op
	held  []*held
	calls int // the number of the last hold or party
}

// NewRecorder returns a recorder whose time begins now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// At is a moment in the recorder's time.
func (r *Recorder) At(t time.Time) time.Duration { return t.Sub(r.start) }

func (r *Recorder) now() time.Duration { return time.Since(r.start) }

// note adds an operation that begins at call and has just ended. What has no return gets a lane of its own.
func (r *Recorder) note(o Op, call time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(o, call)
}

// add is note under the lock.
func (r *Recorder) add(o Op, call time.Duration) {
	o.Call = call
	if o.Return == 0 {
		o.Return = r.now()
	}
	if o.Return == Never {
		o.Lane = strayLanes + len(r.ops)
	}
	r.ops = append(r.ops, o)
}

// strayLanes is the first lane of operations without a return.
const strayLanes = 1000

// number returns a number for a hold or a party.
func (r *Recorder) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return r.calls
}

// A Want is what a call asks for.
type Want struct {
	Name    string
	Lane    int
	Permits int64 // of a semaphore; 0 stands for 1
	Shared  bool  // for reading
	Writes  bool  // for writing, where other holds read
	Try     bool
	Value   int64 // that a candidate proclaims once it leads; 0 of what is no election
}

// held is a hold and the leases on it. The recorder's lock guards it.
type held struct {
	judge.Hold
	open int // leases that are not released
}

// A Lease is a lease whose end is recorded.
type Lease struct {
	*lease.Lease
	recorder *Recorder
	want     Want
	held     *held
	stop     func() bool
	with     []*Lease // the same lease on other names
}

// Acquire makes a call for a hold.
func (r *Recorder) Acquire(w Want, lock func() (*lease.Lease, error)) (*Lease, error) {
	return r.AcquireAll([]Want{w}, lock)
}

// AcquireAll makes a call for one lease on several names.
func (r *Recorder) AcquireAll(ws []Want, lock func() (*lease.Lease, error)) (*Lease, error) {
	ids := make([]int, len(ws))
	for i := range ws {
		ids[i] = r.number()
	}
	call := r.now()
	l, err := lock()
	if err != nil {
		for i, w := range ws {
			r.failed(w, ids[i], call, err)
		}
		return nil, err
	}
	all := make([]*Lease, len(ws))
	for i, w := range ws {
		all[i] = r.got(w, ids[i], call, l)
	}
	all[0].with = all[1:]
	return all[0], nil
}

// AcquireEach makes a call for a lease on each of several names, and returns those that it got.
func (r *Recorder) AcquireEach(ws []Want, lock func() []fairlock.Outcome) (got []*Lease, errs []error) {
	ids := make([]int, len(ws))
	for i := range ws {
		ids[i] = r.number()
	}
	call := r.now()
	for i, o := range lock() {
		if o.Err != nil {
			r.failed(ws[i], ids[i], call, o.Err)
			errs = append(errs, o.Err)
			continue
		}
		got = append(got, r.got(ws[i], ids[i], call, o.Lease))
	}
	return got, errs
}

// ReleaseEach gives all of them back at once.
func (r *Recorder) ReleaseEach(ctx context.Context, all []*Lease) {
	call := r.now()
	var leases []*lease.Lease
	for _, l := range all {
		l.releasing(call)
		leases = append(leases, l.Lease)
	}
	for i, err := range waitqueue.ReleaseEach(ctx, leases...) {
		all[i].released(call, err)
	}
}

// failed notes a call that has no hold.
func (r *Recorder) failed(w Want, id int, call time.Duration, err error) {
	o := r.op(w, Acquire, id)
	switch {
	case errors.Is(err, lease.ErrBusy):
		o.Outcome = Refused
	default:
		o.Outcome, o.Return = Unknown, Never
	}
	r.note(o, call)
	if w.Value != 0 {
		o.Verb, o.Number = Set, w.Value
		r.note(o, call)
	}
}

// got notes a new hold.
func (r *Recorder) got(w Want, id int, call time.Duration, l *lease.Lease) *Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &held{open: 1, Hold: judge.Hold{
		ID: id, Name: w.Name, Lane: w.Lane, Called: call, Got: r.now(), Token: l.Token(), Permits: max(w.Permits, 1),
		Shared: w.Shared, Tried: w.Try, Deadline: r.At(l.Deadline()), Releasing: Never, Released: Never, Lost: Never,
	}}
	if w.Writes {
		h.Permits = judge.Readers
	}
	r.held = append(r.held, h)
	o := r.op(w, Acquire, id)
	o.Token, o.Return = h.Token, h.Got
	r.add(o, call)
	if w.Value != 0 {
		r.add(Op{Verb: Set, Name: w.Name, Lane: w.Lane + partyLanes, Hold: id, Number: w.Value, Return: h.Got}, call)
	}
	return r.watch(&Lease{Lease: l, recorder: r, want: w, held: h})
}

func (r *Recorder) op(w Want, v Verb, hold int) Op {
	return Op{Verb: v, Name: w.Name, Lane: w.Lane, Hold: hold, Permits: max(w.Permits, 1), Shared: w.Shared}
}

// watch notes the loss of a lease when it is told.
func (r *Recorder) watch(l *Lease) *Lease {
	l.stop = context.AfterFunc(l.Context(), func() {
		if errors.Is(context.Cause(l.Context()), lease.ErrLost) {
			l.lost()
		}
	})
	return l
}

// lost notes that the hold is lost, unless that is known.
func (l *Lease) lost() {
	r, h := l.recorder, l.held
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Lost != Never {
		return
	}
	h.Lost = r.now()
	h.Deadline = max(h.Deadline, r.At(l.Deadline()))
	o := r.op(l.want, Lose, h.ID)
	o.Return = h.Lost
	r.add(o, h.Got+1) // At the moment of the grant itself it would not be known whether it came first.
}

// Enter makes a call with the context of the lease. It returns a lease on the same hold, or on a new one where
// that had ended.
func (l *Lease) Enter(lock func(context.Context) (*lease.Lease, error)) (*Lease, error) {
	r, h := l.recorder, l.held
	id, call := r.number(), r.now()
	inner, err := lock(l.Context())
	if err != nil {
		r.failed(l.want, id, call, err)
		return nil, err
	}
	if inner.Token() != h.Token {
		return r.got(l.want, id, call, inner), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h.open++
	o := r.op(l.want, Enter, h.ID)
	o.Token = h.Token
	r.add(o, call)
	return r.watch(&Lease{Lease: inner, recorder: r, want: l.want, held: h}), nil
}

// Release gives the lease back, with all of its names.
func (l *Lease) Release(ctx context.Context) error {
	all := append([]*Lease{l}, l.with...)
	call := l.recorder.now()
	for _, l := range all {
		l.releasing(call)
	}
	err := l.Lease.Release(ctx)
	for _, l := range all {
		l.released(call, err)
	}
	return err
}

func (l *Lease) releasing(call time.Duration) {
	r, h := l.recorder, l.held
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Deadline = max(h.Deadline, r.At(l.Deadline()))
	h.open--
	if h.open == 0 {
		h.Releasing = call
	}
}

func (l *Lease) released(call time.Duration, err error) {
	if errors.Is(err, lease.ErrLost) {
		l.lost()
		return
	}
	r, h := l.recorder, l.held
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.op(l.want, Release, h.ID)
	switch now := r.now(); {
	case err != nil && !errors.Is(err, lease.ErrUnwoken):
		o.Outcome, o.Return = Unknown, Never
	case h.Releasing == call:
		h.Released = now
	}
	l.stop()
	r.add(o, call)
}

// Downgrade turns a lease for writing into one for reading.
func (l *Lease) Downgrade(call func(*lease.Lease) error) error {
	r, h := l.recorder, l.held
	begun := r.now()
	err := call(l.Lease)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.DowngradeCall, h.Downgraded = begun, r.now()
	o := r.op(l.want, Downgrade, h.ID)
	o.Token = h.Token
	if err != nil {
		o.Outcome, o.Return = Unknown, Never
	}
	r.add(o, begun)
	return err
}

// Proclaim makes a call of a leader for another value.
func (l *Lease) Proclaim(value int64, call func(*lease.Lease) error) error {
	begun := l.recorder.now()
	err := call(l.Lease)
	return l.recorder.end(Op{Verb: Set, Name: l.want.Name, Lane: l.want.Lane, Hold: l.held.ID, Number: value}, begun, err)
}

// Look makes a call that asks who leads.
func (r *Recorder) Look(name string, lane int, call func() (value int64, token uint64, err error)) error {
	begun := r.now()
	value, token, err := call()
	o := Op{Verb: Look, Name: name, Lane: lane, Number: value, Token: token}
	switch {
	case errors.Is(err, lease.ErrNoLeader):
		o.Outcome = Refused
	case err != nil:
		return err // It has changed nothing.
	}
	r.note(o, begun)
	return nil
}

// Latch and barrier.

// Set makes a call that sets a latch.
func (r *Recorder) Set(name string, lane int, n int64, call func() (bool, error)) error {
	begun := r.now()
	ok, err := call()
	o := Op{Verb: Set, Name: name, Lane: lane, Number: n}
	if !ok {
		o.Outcome = Refused
	}
	return r.end(o, begun, err)
}

// Down makes a call that takes one off a latch.
func (r *Recorder) Down(name string, lane int, call func() (int64, error)) error {
	id, begun := r.number(), r.now()
	left, err := call()
	if err == nil {
		r.note(Op{Verb: Left, Name: name, Lane: lane + partyLanes, Hold: id, Number: left}, begun)
	}
	return r.end(Op{Verb: Down, Name: name, Lane: lane, Hold: id}, begun, err)
}

// Count makes a call that asks what is left of a latch.
func (r *Recorder) Count(name string, lane int, call func() (int64, error)) error {
	begun := r.now()
	left, err := call()
	if err != nil {
		return err // It has changed nothing.
	}
	return r.end(Op{Verb: Count, Name: name, Lane: lane, Number: left}, begun, nil)
}

// Wait makes a call that waits for a latch.
func (r *Recorder) Wait(name string, lane int, call func() error) error {
	begun := r.now()
	return r.end(Op{Verb: Wait, Name: name, Lane: lane}, begun, call())
}

// end notes an operation, which is unknown after an error.
func (r *Recorder) end(o Op, begun time.Duration, err error) error {
	if err != nil {
		o.Outcome, o.Return = Unknown, Never
	}
	r.note(o, begun)
	return err
}

// Await makes a call of a party at a barrier, whose place lasts for so long unless it is prolonged.
func (r *Recorder) Await(name string, lane int, lasts time.Duration, call func() (int, error)) (int, error) {
	id, begun := r.number(), r.now()
	index, err := call()
	r.mu.Lock()
	defer r.mu.Unlock()
	arrive := Op{Verb: Arrive, Name: name, Lane: lane, Hold: id, Return: r.now()}
	then := arrive
	arrive.Until = lasts
	switch {
	case err == nil:
		arrive.Number, then.Verb = int64(index), Pass
	case errors.Is(err, barrier.ErrBroken):
		arrive.Outcome, then.Verb = Unknown, Break
		if strings.Contains(err.Error(), "knows nothing of this party") {
			then.Number = Forgotten
		}
	default:
		arrive.Outcome, arrive.Return = Unknown, Never
		then.Verb, then.Outcome, then.Return = Leave, Unknown, Never
	}
	r.add(arrive, begun)
	then.Lane += partyLanes // The two steps of a call overlap.
	r.add(then, begun)
	return index, err
}

// partyLanes is the first lane of the second steps of parties.
const partyLanes = 500

// Reset makes a call that resets a barrier.
func (r *Recorder) Reset(name string, lane int, call func() error) error {
	begun := r.now()
	return r.end(Op{Verb: Reset, Name: name, Lane: lane}, begun, call())
}

// Holds returns the holds of an object, by the order of their calls. Those that have not ended are certain
// until the deadline that they had when they were last looked at.
func (r *Recorder) Holds(name string) judge.Holds {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all judge.Holds
	for _, h := range r.held {
		if h.Name == name {
			all = append(all, h.Hold)
		}
	}
	return all
}

// History returns the operations so far. The lease of a hold ends with the last deadline that it had.
func (r *Recorder) History() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := map[int]time.Duration{}
	for _, h := range r.held {
		until[h.ID] = h.Deadline
	}
	ops := slices.Clone(r.ops)
	for i := range ops {
		if ops[i].Verb == Acquire && ops[i].Outcome == OK {
			ops[i].Until = until[ops[i].Hold]
		}
	}
	return ops
}
