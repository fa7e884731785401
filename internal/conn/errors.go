package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/lease"
)

// errUnbegun is the error of a request that a closing client does not send any more.
var errUnbegun = fmt.Errorf("not sent: %w", rueidis.ErrClosing)

// Unsent reports whether an error says that there was no connection, or that the client was closed before, so nothing was
// sent.
func Unsent(err error) bool {
	var none *undialled
	var op *net.OpError
	return errors.Is(err, errUnbegun) || errors.As(err, &none) || errors.As(err, &op) && op.Op == "dial"
}

// Undialled returns an error of Dial, which is a [lease.ErrUnavailable] if the network failed or the server answered that it is
// not ready. A wrong password, a missing right and a refused certificate are none: somebody has to mend them.
func Undialled(err error) error {
	var failed net.Error
	var op *net.OpError
	var said *rueidis.RedisError
	refused := errors.As(err, &op) && op.Op == "remote error" // of TLS
	if errors.As(err, &failed) && !refused || errors.As(err, &said) && isPassing(said.Error()) {
		return reason.Also(err, lease.ErrUnavailable)
	}
	return err
}

// Answered reports whether an error is a reply of the server, after which the request is over.
func Answered(err error) bool {
	_, ok := rueidis.IsRedisErr(err)
	return ok
}

// passing are the errors of Redis that pass by themselves: it starts, it is busy with a script, slots move, its replicas
// are about to come back, or it is a master no more, and its name, the sentinels or the cluster are about to lead to another.
var passing = []string{
	"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK", "UNKILLABLE", "READONLY", "UNBLOCKED", "NOREPLICAS",
}

// hints say which setting lets Redis accept what it refuses.
var hints = []struct{ sign, hint string }{
	{"NOPERM", "the user lacks a right: see docs/deploy.md for the ACL line"},
	{"The user executing the script can't", "the user lacks a right that the scripts need: see docs/deploy.md for the ACL line"},
	{"ACL failure in script", "the user lacks a right that the scripts need: see docs/deploy.md for the ACL line"},
	{"WRONGPASS", "check user name and password"},
	{"NOAUTH", "set a password"},
	{"WRONGTYPE", "a key of another kind has the lock's name: use another name or prefix"},
	{"OOM", "Redis is out of memory: raise maxmemory"},
	{"READONLY", "this is a replica: connect to the master"},
	{"MISCONF", "Redis cannot save and refuses writes: see its log"},
	{"NOREPLICAS", "Redis has too few replicas and refuses writes: see min-replicas-to-write"},
	{"CROSSSLOT", "the keys of one lock are in different slots: report this"},
	{"unknown command 'WAITAOF'", "WithFsync needs Redis 7.2 or newer, or Valkey"},
	{"appendonly is disabled", "WithFsync needs an append-only file: set appendonly yes"},
	{"unsupported command", "a proxy does not pass this command on: see docs/deploy.md for what to set"}, // Envoy
	{"unknown command", "this server lacks a command: Redis 6.2 or newer is needed (and of sentinels, Sentinel.MasterSet must be named)"},
}

// tlsAlert is how rueidis refuses the first byte of an alert (0x15), with which a server of TLS answers a plain connection.
const tlsAlert = "unknown message type: 21"

// isReadOnly reports whether err says that the server is a replica.
func isReadOnly(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && codeOf(redisErr.Error()) == "READONLY"
}

// isLoggedOut reports whether err says that the server has refused the login. It says nothing of what the server allows,
// and nothing was sent after it.
func isLoggedOut(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && slices.Contains([]string{"NOAUTH", "WRONGPASS"}, codeOf(redisErr.Error()))
}

// LoggedOut reports whether err says that the server has refused the login.
func LoggedOut(err error) bool { return isLoggedOut(err) }

// Replaced reports whether err says that the client was buried (lib/mortal.lua).
func Replaced(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && codeOf(redisErr.Error()) == "REPLACED"
}

// codeOf is the code of an error of Redis. Before Redis 7 the code of a command in a script comes after the place in the
// script.
func codeOf(text string) string {
	if strings.HasPrefix(text, "Error running script") {
		text = text[strings.LastIndex(text, ": -")+len(": -"):]
	}
	return strings.Split(text, " ")[0]
}

// Transient reports whether err will pass, so that the same request may be sent again.
func Transient(err error) bool {
	if redisErr, ok := rueidis.IsRedisErr(err); ok {
		return isPassing(redisErr.Error())
	}
	return !errors.Is(err, rueidis.ErrClosing) && !errors.Is(err, lease.ErrCopied) && !errors.Is(err, lease.ErrReplaced)
}

// isPassing reports whether what Redis refuses will pass. A WAIT for replicas ends with the last one, or UNBLOCKED, where its
// master is replaced meanwhile.
func isPassing(text string) bool {
	return slices.Contains(passing, codeOf(text)) || strings.Contains(text, "max number of clients") || strings.Contains(text, "cannot be used with replica")
}

// Mendable reports whether a request for which others wait is sent again after err: err will pass, or it is a full disk,
// which somebody mends. A release that gives up keeps the lock until its lease is over; a waiter loses its place. A new
// call fails instead, because a repair may take hours.
func Mendable(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return Transient(err) || ok && codeOf(redisErr.Error()) == "MISCONF"
}

// A retold is an error with another text.
type retold struct {
	error
	text string
}

func (e retold) Error() string { return e.text }
func (e retold) Unwrap() error { return e.error }

// Advise adds to an error of Redis which setting to change.
func Advise(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return lease.ErrClosed
	}
	if _, ok := rueidis.IsRedisErr(err); !ok {
		if err != nil && strings.Contains(err.Error(), tlsAlert) {
			return fmt.Errorf("the server speaks TLS: rediss:// in a URL, TLSConfig in the options: %w", err)
		}
		return err
	}
	if Replaced(err) {
		return lease.ErrReplaced
	}
	if _, text, own := strings.Cut(err.Error(), ": headwaiter: "); own {
		text, _, _ = strings.Cut(text, " script: ") // Redis puts around it where in which script that was.
		return retold{err, "headwaiter: " + text}
	}
	for _, h := range hints {
		if strings.Contains(err.Error(), h.sign) {
			return fmt.Errorf("%s: %w", h.hint, err)
		}
	}
	return err
}

// Unsure is an error that says so if a request may have run.
func Unsure(unsure bool, err error) error {
	if unsure {
		return fmt.Errorf("%w: %w", lease.ErrOutcomeUnknown, err)
	}
	return err
}

// GaveUp is the error of a call that has ended between two attempts: of its context, without a reply, or of its client.
// last is the last error that it has waited out, nil if there was none.
func GaveUp(ctx context.Context, ended, last error) error {
	if ctx.Err() != nil {
		ended = fmt.Errorf("%w: %w", lease.ErrUnavailable, ended)
	}
	if last == nil {
		return ended
	}
	return fmt.Errorf("%w (last error: %w)", ended, Advise(last))
}

// Unusable is what the server has refused that the protocol needs.
func Unusable(err error) error { return fmt.Errorf("%w: %w", lease.ErrUnusable, Advise(err)) }
