package waitqueue

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Unwoken is [lease.ErrUnwoken] with the right that is missing.
func (q Queue) Unwoken() error {
	return fmt.Errorf("%w: the user needs PUBLISH and the wake channels (+publish &%s:*)", lease.ErrUnwoken, q.client.opts.Prefix)
}

// excess says that a ticket asks for more than there is.
func excess(t *ticket, limit string) error {
	return fmt.Errorf("%w: %d permits of %s", lease.ErrTooLarge, t.queue.permits, limit)
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
		return fmt.Errorf("%w: it was made with %s: state the same here, or wait until nobody has used it for a while", lease.ErrMismatch, state)
	}
	return fmt.Errorf("the server answered %d %q, which is no answer to this request: is a client of another version using the same names?", status, state)
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
		return lease.ErrClosed
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
