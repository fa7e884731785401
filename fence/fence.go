// Package fence is the check at the resource: it refuses a fencing token below the highest that it has seen.
//
// No lease can do that. A holder that was paused past its lease finds out when it runs again, and what it had
// sent before arrives whenever the network likes. So what a lock protects must look at the token of each write.
//
// A [Guard] keeps one number for one thing that a lock protects: the highest token, here called the mark. Where
// the mark is makes the difference: in the process ([Memory]), in Redis ([Redis]), in a table of marks or in the
// row that is written ([SQL], [Row]). [Handler] puts a guard in front of an HTTP server, and [Transport] gives
// the tokens of its clients to it.
//
// # Two rules for its use
//
// Show the token before the first read: call Admit when the lock is held. Until the guard has seen the new token
// it admits the old one, so a late write can land after the new holder has read, which then writes over it.
//
// Check and write in one step. Between an Admit that is done by itself and the write after it any time may
// pass, and a newer holder come and go. Each guard has a way to do both at once: [MemoryKey.Do], [Redis.Run],
// Admit in the transaction that writes, [Row.Update].
//
// # What is admitted
//
// A token equal to the mark, as often as it comes: a holder writes many times. That is also how readers who hold
// together pass, as they mostly share a token; where one came with a higher one, as to a writer that was
// downgraded, the others are refused though they hold. A refusal is an error for which
// errors.Is(err, [ErrStale]) holds. It is final for this hold: lock again and start from what is there then.
//
// A semaphore of several permits has no highest token that means anything: there an earlier one still holds.
// Such a token is refused with [ErrShared] where it can be seen, which is in the context of its lease and by
// [Transport]. At a resource that sees numbers only it cannot.
//
// A guard is as good as the tokens. After a failover that lost the newest grants, to a server whose clock is slow,
// a new token may be lower than a lost one, and is refused though it holds, or equal to it, and then both are
// admitted: WithReplicas makes that unlikely.
//
// One mark is for the tokens of one lock. A token is no credential either: a client that can send one can send a
// high one, and shut everybody out. Source of the idea: Kleppmann, "How to do distributed locking", 2016.
package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
)

var (
	// ErrStale: a newer token was seen, so the hold of this one is over. [StaleError] has the numbers.
	ErrStale = errors.New("stale fencing token")

	// ErrShared: the token is one of several that hold at the same time, so none of them makes another stale.
	ErrShared = errors.New("the token of one permit among several: no guard can go by the highest")
)

// MaxToken is the largest token that a guard takes: what SQL can keep. Those of this library stay below 2^53.
const MaxToken = 1<<63 - 1

// A Guard refuses what comes late to one resource. It is safe for use by several goroutines.
type Guard interface {
	// Admit returns nil and remembers the token, if no higher one was seen. Otherwise it returns an error for
	// which errors.Is(err, ErrStale) holds. After any other error the token may have been remembered or not,
	// and Admit may be called again.
	Admit(ctx context.Context, token uint64) error
}

// A Runner is a guard that runs the write too, so that nothing comes between it and the check.
type Runner interface {
	Guard
	// Do calls write if the token is admitted, and lets no other token in before write has returned.
	Do(ctx context.Context, token uint64, write func(context.Context) error) error
}

// A StaleError tells which token was refused, and the higher one that was seen. It is an [ErrStale].
type StaleError struct {
	Token   uint64 // what came
	Highest uint64 // the highest seen, or the lowest that is admitted where that was forgotten
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %d, where %d was seen", ErrStale, e.Token, e.Highest)
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// usable is why a token is not to be looked at any further, if it is not.
func usable(ctx context.Context, token uint64) error {
	switch {
	case ctx == nil:
		panic("fence: nil context") // As package context does.
	case token == 0:
		return fmt.Errorf("%w: the fencing token 0 is what a hold without a token has", lease.ErrInvalid)
	case token > MaxToken:
		return fmt.Errorf("%w: the fencing token %d is above %d", lease.ErrInvalid, token, int64(MaxToken))
	}
	if l, ok := lease.FromContext(ctx); ok && l.Shared() && l.Token() == token {
		return ErrShared
	}
	return ended(ctx)
}

// ended is the error of a context, which wraps its cause too.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// refused says which resource an error is about.
func refused(key string, err error) error {
	const most = 64
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	return fmt.Errorf("fence: admit to %q: %w", key, err)
}

// parse reads a token as decimal digits.
func parse(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 63)
	if err != nil || token == 0 {
		return 0, fmt.Errorf("%w: the fencing token %.40q", lease.ErrInvalid, text)
	}
	return token, nil
}
