package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
)

var (
	// errGone ends the wait of a ticket whose node is not there any more.
	errGone = errors.New("the node of the waiting call was removed")
	// errWorn ends a ticket whose place is too near the end of what its parent can count.
	errWorn = errors.New("the node has counted nearly as many calls as it can")
)

// transient reports whether err will pass, so that the same request may be sent again. A session that is over does not
// come back, but whoever asks finds that out from the session.
func transient(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrClosing, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// advise adds to an error of ZooKeeper what to change.
func advise(err error, what string) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%s is refused: name an identity in Options.Auth that the ACL of the node allows it: %w", what, err)
	case errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%s is refused: check scheme and secret in Options.Auth: %w", what, err)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%s is refused: check Options.ACL, where the scheme auth needs an identity in Options.Auth: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// repeat sends a request that may be sent twice until it is answered by more than an error that passes, or one of two
// contexts ends. The number of attempts tells whether an earlier one may have had its effect.
func repeat(ctx, until context.Context, send func() error) (attempts int, err error) {
	_, attempts, err = engine.Insist(ctx, until, transient, func() (struct{}, error) { return struct{}{}, send() })
	return attempts, err
}

// do runs a request, which nothing can stop, on a goroutine of its own, and returns when it is answered, or when ctx or until
// ends, for the cause of that. Requests end with the connection at the latest.
func do[T any](ctx, until context.Context, c *Client, request func() (T, error)) (T, error) {
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	var r reply
	if err := c.core.Spawn(func() {
		answer, err := request()
		replies <- reply{answer, err}
	}); err != nil {
		return r.answer, err
	}
	select {
	case r = <-replies:
		return r.answer, r.err
	case <-ctx.Done():
		return r.answer, ctx.Err()
	case <-until.Done():
		return r.answer, context.Cause(until)
	}
}
