package lease

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter/internal/reason"
)

var (
	// ErrLost is what every loss of a hold is: errors.Is(err, ErrLost). The errors below say why.
	ErrLost = reason.ErrLost
	// ErrReleased ends the context of a hold that its owner released, and answers a second Release. What wraps it says by
	// which call: compare with errors.Is.
	ErrReleased = reason.ErrReleased
	// ErrUnconfirmed says that a release was sent, or tried, and no answer came: the hold may have been
	// given back, and if not it ends with its lease.
	ErrUnconfirmed = reason.ErrUnconfirmed
)

// Why a call did not get what it asked for. All engines return the same ones.
var (
	// ErrBusy: a try found the lock held, or others waiting for it.
	ErrBusy = reason.ErrBusy
	// ErrQueueFull: there was no room in the queue, by headwaiter.WithQueueLimit.
	ErrQueueFull = errors.New("the queue is full")
	// ErrWaitTimeout: the call has waited for as long as headwaiter.WithMaxWait lets it. It is a
	// [context.DeadlineExceeded] too.
	ErrWaitTimeout error = waitTimeout{}
	// ErrUnavailable: the call ended by its context, its maximum wait or the limit of a try, and the server had not answered
	// its last request, or only with errors that pass by themselves. The error says also which of the three ended it:
	// errors.Is finds the context's error, and ErrWaitTimeout, as it does where others hold.
	ErrUnavailable = errors.New("the server does not answer")
	// ErrClosed: the client was closed.
	ErrClosed = reason.ErrClosed
	// ErrDeadlock: the context comes from a hold of the same lock, which is not reentrant, or from one of a semaphore that
	// does not leave as many permits as are asked for.
	ErrDeadlock = errors.New("deadlock: this context already holds the lock")
	// ErrUpgrade: the context holds for reading, and asks for writing. Two readers that did that would wait for each
	// other for ever.
	ErrUpgrade = reason.ErrUpgrade
	// ErrInvalid: an argument or an option cannot be used. The text names it, and says what can.
	ErrInvalid = reason.ErrInvalid
	// ErrTooLarge: a name, a value or the count of a call is above its limit.
	ErrTooLarge = reason.ErrTooLarge
	// ErrMismatch: another client has stated another number of parties or stripes for the name, and the number cannot change
	// while anybody uses it. The number of permits of a semaphore on Redis can.
	ErrMismatch = errors.New("another client has stated another limit")
	// ErrOutcomeUnknown: no answer came, so what was asked for may have been done or not.
	ErrOutcomeUnknown = errors.New("no answer: it may have been done or not")
	// ErrUnwoken: it is done, a lock is released or a latch open, but the server refused to wake the waiters, who find
	// out by themselves some time later.
	ErrUnwoken = reason.ErrUnwoken
	// ErrNoLeader: nobody leads, or the one who does has not proclaimed anything yet.
	ErrNoLeader = errors.New("no leader")
	// ErrReplicas: fewer replicas than were asked for acknowledged a hold in time, so it was given back.
	ErrReplicas = reason.ErrReplicas
	// ErrRestarted: the server came up less than a lease ago without its data, so it may have forgotten a hold.
	ErrRestarted = reason.ErrRestarted
	// ErrUnusable: the server lacks what the protocol needs, or the user lacks the rights. The error names them.
	ErrUnusable = errors.New("this Redis cannot be used")
)

// Why a hold could not be adopted: one of these, or the cause of a loss, [ErrExpired] where the text came too late and
// [ErrForced] where the hold in transit was released by force.
var (
	// ErrAdopted: the text was used before.
	ErrAdopted = errors.New("the text was used before")
	// ErrNotGenuine: it is no text of HandOver, or not the whole of one, or Redis knows nothing of it: it is for another
	// Redis, not confirmed, or of longer ago than Redis remembers.
	ErrNotGenuine = errors.New("the text is not genuine")
)

// Why there was nothing to release by force, to lower or to proclaim for.
var (
	// ErrNotHeld: nobody held. Of Downgrade and Proclaim: the lease is one of another name.
	ErrNotHeld = errors.New("not held")
	// ErrOtherToken: it is held, but not with the token that was asked for. It is an ErrNotHeld too.
	ErrOtherToken error = otherToken{}
)

type waitTimeout struct{}

func (waitTimeout) Error() string { return "timed out (WithMaxWait)" }

func (waitTimeout) Unwrap() error { return context.DeadlineExceeded }

type otherToken struct{}

func (otherToken) Error() string { return "held with another token" }

func (otherToken) Is(target error) bool { return target == ErrNotHeld }

// The causes of a loss. Each is an ErrLost.
var (
	// ErrExpired: the lease ran out before a renewal was confirmed.
	ErrExpired = reason.ErrExpired
	// ErrForced: somebody released the hold by force.
	ErrForced = reason.ErrForced
	// ErrForgotten: the server does not know the hold any more; it lost its state, or the key was deleted.
	ErrForgotten = reason.ErrForgotten
	// ErrMaxHold: the hold reached the maximum that was set for it.
	ErrMaxHold = reason.ErrMaxHold
	// ErrStalled: nobody called [Lease.Progress] for the time that was set.
	ErrStalled = reason.ErrStalled
	// ErrCopied: the process is a copy of the one that held it; its image was restored, as from a snapshot.
	ErrCopied = reason.ErrCopied
	// ErrReplaced: another client has taken the identity ([headwaiter.Options].Identity), so this one can lock nothing any more:
	// its calls fail with this error, which is for good.
	ErrReplaced = reason.ErrReplaced
	// ErrClientClosed: the client that held it was closed.
	ErrClientClosed = reason.ErrClientClosed
)
