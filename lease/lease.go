// Package lease is one hold: the same handle from every primitive and every engine.
//
// A [Lease] is what a successful Lock or Acquire returns. It ends in one of two ways. Released, by its
// owner: the context's cause is [ErrReleased]. Lost, because the time ran out without a renewal, because
// somebody forced it, because the server forgot it, or because the client was closed: the cause is an
// error for which errors.Is(err, ErrLost) holds and which says which of these it was; a maximum hold that is over is one too.
//
// The package also has the errors, the limits and the answers of Inspect that all engines share. It imports no driver.
package lease

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
)

// A Lease is one hold. It is safe for use by several goroutines. Only an engine makes one.
type Lease keeper.Keeper

// keeper is the lease as its engine sees it, which does the work.
func (l *Lease) keeper() *keeper.Keeper { return (*keeper.Keeper)(l) }

// Context ends when the hold does: at its release or at its loss, whichever comes first.
// context.Cause tells which: [ErrReleased], or an error for which errors.Is(err, ErrLost) holds.
//
// Its values are those of the context that Lock was called with. It has no deadline of its own, because
// the hold's moves with each renewal. When the time runs out it ends before the server gives the lock to
// anybody else, by the clock of this machine. A release by force, and a server that has lost its state, are
// told after the fact: at once where a message comes through, and else with the next renewal.
func (l *Lease) Context() context.Context { return l.keeper().Context() }

// Token returns the fencing token of the hold, larger than every earlier hold's of the same name, except that readers
// that hold together may share one. Package fence says which failures of a server can break this.
// Send it with each write to what the lock protects, and let that refuse a token lower than one it has
// seen: no lease by itself can stop a holder that was paused from writing late.
//
// Source: Kleppmann, "How to do distributed locking", 2016.
func (l *Lease) Token() uint64 { return l.keeper().Token() }

// Shared reports whether others may hold at the same time by other tokens, as with a semaphore of several permits. A
// resource that refuses all but the highest token it has seen would then refuse some who hold. Readers of a
// read-write lock share their token instead.
func (l *Lease) Shared() bool { return l.keeper().Shared() }

// Previous returns how the hold before this one ended. After a death, or any other end that its owner did not bring about,
// what the lock protects may be left half done: look at it, and mend it, before you go on. A POSIX mutex that is robust says
// the same by EOWNERDEAD. It asks nobody: the grant has brought it, and later it stays the same.
//
// It tells of exclusive holds: packages fairlock, striped, reentrant, election, multilock, and the write holds of rwlock, which
// are told how the last write hold ended. A lease on several names tells of the first name whose hold was not given back. A
// hold that no call has returned does not count; what it was told is told to the next. After entering a hold again it says what
// the first lease says. Semaphores, readers and redlock answer [Unknown]. So do other engines, unless they say otherwise.
//
// Redis knows for about a minute after the last use of a name; headwaiter.WithPrevious keeps it for longer. A failover that has
// lost the last writes, or a restart from an old file, is not noticed: then Previous tells of what the server has.
func (l *Lease) Previous() Ending {
	e := l.keeper().Previous()
	return Ending{Kind: EndingKind(e.How), Token: e.Token}
}

// Deadline returns the local time until which the hold is certain if nothing renews it any more, and nobody calls Progress.
func (l *Lease) Deadline() time.Time { return l.keeper().Deadline() }

// Waited returns how long the caller waited for the hold.
func (l *Lease) Waited() time.Duration { return l.keeper().Waited() }

// String tells in one line, for logs, what is held, by which token, and for how long that is certain before the next
// renewal, or how it ended.
func (l *Lease) String() string { return l.keeper().String() }

// Progress says that the work moves on, to a hold that ends without that: its time by headwaiter.WithMaxStall begins
// anew. It costs no request, so a loop may call it at each step. On a hold without such an end, and on one that has
// ended, it does nothing.
func (l *Lease) Progress() { l.keeper().Progress() }

// Wanted returns a channel that is closed, once, when somebody waits for what the hold has: for a long job that can give
// it back between two steps, to go on behind the others. It obliges to nothing. It is nil, so nothing is ever received
// from it, where the engine cannot tell: in package redlock, and on other engines than Redis.
//
// The first call asks for it, with a renewal of the hold, and what waits already closes the channel when that is
// answered. A waiter that comes later closes it by a message, which the renewal after it makes up for if it is lost; a
// client without subscriptions renews and asks each second, or in a tenth of a shorter lease. A call of the same client
// counts as any other, a try does not. A waiter that has died since, or has given up, may have closed it too. Of several
// who hold at a time, all who have asked are told. After the end of the hold the channel stays as it is: wait for that of
// Context beside it.
func (l *Lease) Wanted() <-chan struct{} { return l.keeper().Wanted() }

// Release ends the lease's context and gives the hold back; the head of the queue holds next.
//
// It returns nil if the hold was given back in time. Otherwise its error wraps one of these, and names the hold:
//
//   - [ErrLost]: the hold was lost before.
//   - [ErrReleased]: it had been released before.
//   - [ErrUnconfirmed]: ctx ended, or the client gave up, before an answer came. The hold ends with its lease at the latest.
//   - [ErrUnwoken]: the hold was given back, but the server refused to wake the waiters, who find that out later.
//
// The lease's context has ended in every case.
//
// ctx may be the hold's context, or come from it, also by way of another hold. Release then ignores that ctx ends with the
// hold, but keeps to its deadline.
//
// Release panics without a context, as package context does, and then nothing has changed.
func (l *Lease) Release(ctx context.Context) error { return l.keeper().Release(ctx) }

// Unlock ends the lease's context with [ErrReleased] and gives the hold back without waiting for the server's word, as
// the Unlock of a [sync.Mutex] does; the head of the queue holds next. What has to be sent is sent at once, and again
// until it is answered or the lease is over. On Redis there is one exception: a hold that was got without waiting, and
// that lasted for less than 5 ms, may be given back together with the client's next call for the name, within 5 ms. A
// later call of the same client for the same name never overtakes it.
//
// It does nothing on a nil lease, after Release or Unlock, and after a loss. Release after it returns ErrReleased.
//
// Nobody learns whether the hold was given back in time: where that matters, or where another process is to go on by what
// the caller tells it, use Release. If the process exits first, the lock stays taken for its lease: defer the client's
// Close before you lock, as it waits. A short program uses Release.
func (l *Lease) Unlock() {
	held := l.keeper()
	held.Unlock()
}

// HandOver gives the hold to another process. It returns a text, and the process that passes the text to fairlock.Adopt
// gets the hold. Only a lease of package fairlock can be handed over, without WithCohort and WithKeep.
//
// HandOver takes one round trip. First the lease's context ends, with [ErrReleased]. Then the hold is in transit for one
// grant lease of the client: no process holds it. If nobody adopts it in that time, the queue is served.
//
// Whoever has the text can take the lock, so pass it on by a way that others cannot read, and do not log it. It works
// once. It is one word of letters, digits and the signs . - _
//
// With an error that wraps [ErrUnconfirmed] the text is returned too: nobody knows whether the hold is in transit. The
// request is repeated until the lease is over, so the text may work at once, later, or never.
//
// With any other error there is no text, and nothing to adopt. [ErrLost] and [ErrReleased] say that the hold has ended.
// [errors.ErrUnsupported], or the context's error if ctx ended before the call, says that nothing has changed.
//
// After HandOver, Unlock does nothing and Release returns ErrReleased. HandOver panics without a context, and then nothing
// has changed.
func (l *Lease) HandOver(ctx context.Context) (text string, err error) {
	return l.keeper().HandOver(ctx)
}

// Bind returns a context for work that is done under the hold and for ctx, such as a request: it is done when the hold
// ends or when ctx does, and context.Cause is that of whichever came first. So is Err, also for what is derived from it:
// [context.DeadlineExceeded] where the deadline of ctx has passed.
//
// Its deadline and its values are those of ctx; what ctx has no value for is looked up in [Lease.Context]. [FromContext]
// finds the hold in it, and a Lock with it enters the hold again, or fails with [ErrDeadlock]. Err and Done look at the
// clock, as those of Context do.
//
// It releases nothing: where ctx ends first, the hold goes on until Release. Resources are freed when either context ends.
func (l *Lease) Bind(ctx context.Context) context.Context { return l.keeper().Bind(ctx) }

// Do is what the Do of every primitive does. It waits for a hold, calls f with a context that ends with the hold and with
// ctx (see [Lease.Bind]), and releases, also if f panics. It returns what f returned, joined with the error of the release
// if f has not returned that itself: the loss, if the hold was lost before f came back.
func Do(ctx context.Context, lock func(context.Context) (*Lease, error), f func(context.Context) error) error {
	if ctx == nil {
		panic("lease: Do: nil context")
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	return l.keeper().Do(ctx, f)
}

// FromContext returns the lease whose context ctx is, or comes from; the innermost where there are several.
func FromContext(ctx context.Context) (*Lease, bool) {
	k, ok := keeper.FromContext(ctx)
	return (*Lease)(k), ok
}

// Token returns the fencing token of that lease; 0, which every guard of package fence refuses, if there is none.
func Token(ctx context.Context) uint64 {
	if l, ok := FromContext(ctx); ok {
		return l.Token()
	}
	return 0
}
