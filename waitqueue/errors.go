package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
)

var (
	// ErrBusy: a try found the lock held, or others waiting for it.
	ErrBusy = errors.New("busy")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
	// ErrDeadlock: the context comes from a hold of the same lock, which is not reentrant.
	ErrDeadlock = errors.New("deadlock: this context already holds the lock")
	// ErrTooLarge: a name or a count is above its limit.
	ErrTooLarge = errors.New("too large")
	// ErrName: the name cannot be used.
	ErrName = errors.New("unusable name")
	// ErrCount: a number of permits, parties or counts is not positive.
	ErrCount = errors.New("unusable count")
	// ErrMismatch: another client has stated another limit for the name, and that one counts.
	ErrMismatch = errors.New("mismatch")
	// ErrUnknown: no answer came, so what was asked for may have been done or not.
	ErrUnknown = errors.New("no answer: it may have been done or not")
	// ErrTime: a lease or another time cannot be used.
	ErrTime = errors.New("unusable time")
	// ErrUnwoken: it is done, a lock is released or a latch open, but the server refused to wake those who wait,
	// who will find out by themselves some time later.
	ErrUnwoken = errors.New("done, but those who wait were not woken")
)

// Unwoken is [ErrUnwoken] with the right that is missing.
func (q Queue) Unwoken() error {
	return fmt.Errorf("%w: the user needs PUBLISH and the wake channels (+publish &%s:*)", ErrUnwoken, q.client.opts.Prefix)
}

// excess says that a ticket asks for more than there is.
func excess(t *ticket, limit string) error {
	return fmt.Errorf("%w: %d permits of %s", ErrTooLarge, t.queue.permits, limit)
}

// Verdict is what an answer means that is not the one that was hoped for.
func (q Queue) Verdict(r *lua.Reply) error { return q.verdicts.of(r.Status, r.States) }

// verdict is what an answer that ends the wait of a ticket means.
func (t *ticket) verdict(status lua.Status, states []string) error {
	if status == lua.Excess && len(states) > 0 {
		return excess(t, states[0])
	}
	return t.queue.verdicts.of(status, states)
}

func (v Verdicts) of(status lua.Status, states []string) error {
	if err := v[status]; err != nil {
		return err
	}
	state := ""
	if len(states) > 0 {
		state = states[0]
	}
	if status == lua.Mismatch {
		return fmt.Errorf("%w: it was made with %s, which counts until it is forgotten", ErrMismatch, state)
	}
	return fmt.Errorf("answer %d %q of Redis makes no sense here", status, state)
}

// A WaitError says how far a call had come when it ended without the lock. It wraps why it ended: the
// context's error and cause, ErrClosed, or an error of the server that no retry would mend.
type WaitError struct {
	Place  int           // how many were ahead at the last look, the holder among them; -1 if that is unknown
	Waited time.Duration // since the call
	Last   error         // the last error of the server that was waited out, if any
	Err    error
}

func (e *WaitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "waited %v", readable(e.Waited))
	if e.Place > 0 {
		fmt.Fprintf(&b, " behind %d", e.Place)
	}
	if e.Last != nil {
		fmt.Fprintf(&b, " (last error: %v)", e.Last)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns why the wait ended.
func (e *WaitError) Unwrap() error { return e.Err }

// readable makes a duration readable: three digits are enough.
func readable(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit <= time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d
}

// given panics where there is no context, as package context does: at once, when nothing is locked or changed yet.
func given(ctx context.Context) {
	if ctx == nil {
		panic("waitqueue: nil context")
	}
}

// whyEnded is the error of a context, which wraps its cause too.
func whyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// passing are the errors of Redis that pass by themselves: it starts, it is busy with a script, slots move, or it is a
// master no more, and its name, the sentinels or the cluster are about to lead to another.
var passing = []string{"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK", "UNKILLABLE", "READONLY"}

// hints say which setting mends what Redis refuses.
var hints = []struct{ sign, hint string }{
	{"NOPERM", "the user lacks a right: see docs/deploy.md for the ACL line"},
	{"The user executing the script can't", "the user lacks a right that the scripts need: see docs/deploy.md for the ACL line"},
	{"WRONGPASS", "check user name and password"},
	{"NOAUTH", "set a password"},
	{"WRONGTYPE", "a key of another kind has the lock's name: use another name or prefix"},
	{"OOM", "Redis is out of memory: raise maxmemory"},
	{"READONLY", "this is a replica: connect to the master"},
	{"MISCONF", "Redis cannot save and refuses writes: see its log"},
	{"NOREPLICAS", "Redis has too few replicas and refuses writes: see min-replicas-to-write"},
	{"CROSSSLOT", "the keys of one lock are in different slots: report this"},
	{"unknown command", "this server lacks a command: Redis 6.2 or newer is needed (and of sentinels, Sentinel.MasterSet must be named)"},
}

// isReadOnly reports whether err says that the server is a replica.
func isReadOnly(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(redisErr.Error(), "READONLY")
}

// transient reports whether err will pass, so that the same request may be sent again.
func transient(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	if !ok {
		return !errors.Is(err, rueidis.ErrClosing)
	}
	text := redisErr.Error()
	code, _, _ := strings.Cut(text, " ")
	for _, p := range passing {
		if code == p {
			return true
		}
	}
	return strings.Contains(text, "max number of clients")
}

// advise adds to an error of Redis what to change.
func advise(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return ErrClosed
	}
	if _, ok := rueidis.IsRedisErr(err); !ok {
		return err
	}
	for _, h := range hints {
		if strings.Contains(err.Error(), h.sign) {
			return fmt.Errorf("%s: %w", h.hint, err)
		}
	}
	return err
}
