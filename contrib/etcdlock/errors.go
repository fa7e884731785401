package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
)

// code is the gRPC code of an error, whichever of the client's two kinds it is.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// transient reports whether err will pass, so that the same request may be sent again. Cancelled is what the caller's
// context says, who looks at that first, or connections that their owner has closed.
func transient(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Internal:
		return true
	case codes.ResourceExhausted:
		return errors.Is(err, rpctypes.ErrTooManyRequests)
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// leaseGone reports whether err says that the etcd lease is no more.
func leaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// repeat sends a request that may be sent twice until it is answered by more than an error that passes, or ctx ends.
// An attempt that is not answered within limit counts as one that failed. The number of attempts tells whether an
// earlier one may have had its effect.
func repeat[T any](ctx context.Context, limit time.Duration, send func(context.Context) (T, error)) (T, int, error) {
	return insist(ctx, ctx, func() (T, error) {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return send(attempt)
	})
}

// ask is repeat for a question of a call that has no ticket, which ends with the client too.
func ask[T any](ctx context.Context, c *Client, send func(context.Context) (T, error)) (T, error) {
	during, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(c.core.Life, cancel)()
	answer, _, err := repeat(during, c.limit(), send)
	if err != nil && c.core.Life.Err() != nil {
		err = lease.ErrClosed
	} else if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return answer, err
}

// insist is repeat where each attempt ends by itself, and the first of two contexts ends it all.
func insist[T any](ctx, other context.Context, send func() (T, error)) (T, int, error) {
	return engine.Insist(ctx, other, transient, send)
}
