package waitqueue

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// An endpoint is one address behind which the server changes, as managed Redis has it.
type endpoint struct {
	old, new *redistest.Embedded
	at       atomic.Pointer[redistest.Embedded]
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{old: redistest.Bubble(t), new: redistest.Bubble(t)}
	e.at.Store(e.old)
	return e
}

func (e *endpoint) client(t *testing.T) *Client {
	o := e.old.Option()
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return e.at.Load().Dial() }
	c, err := Dial(Options{Redis: o, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

const readOnly = "READONLY You can't write against a read only replica."

// fail moves what the old server knows to the new one, and demotes the old one; the endpoint follows a second later.
func (e *endpoint) fail(t *testing.T) {
	for _, key := range e.old.List("KEYS", "*") {
		if e.old.Text("TYPE", key) == "hash" {
			e.new.Do(append([]string{"HSET", key}, e.old.List("HGETALL", key)...)...)
		}
	}
	e.old.Fail(readOnly)
	time.AfterFunc(time.Second, func() { e.at.Store(e.new) })
	t.Cleanup(func() { e.old.Fail("") })
}

func TestAFailoverBehindOneEndpointIsWaitedOut(t *testing.T) {
	for what, call := range map[string]func(ctx context.Context, q Queue) error{
		"a lock": func(ctx context.Context, q Queue) error { _, err := q.Acquire(ctx); return err },
		"a try":  func(ctx context.Context, q Queue) error { _, err := q.Try(ctx); return err },
		"a look": func(ctx context.Context, q Queue) error { _, err := q.Inspect(ctx); return err },
		"several": func(ctx context.Context, q Queue) error {
			var claims []*Claim
			for _, q := range []Queue{q, queueOf(&Client{q.client}, "another")} {
				c, err := q.Claim(ctx, false)
				if err != nil {
					return err
				}
				if err := c.Enter(time.Now()); err != nil {
					return err
				}
				claims = append(claims, c)
			}
			_, err := AskAll(ctx, claims, false, func() {})
			return err
		},
		"a release by force": func(ctx context.Context, q Queue) error {
			_, err := (&Client{q.client}).Queue(lua.Fairlock, "held", Terms{Lease: lease.DefaultLease}).ForceRelease(ctx, 0)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEndpoint(t)
				c := e.client(t)
				_, err := queueOf(c, "held").Acquire(t.Context())
				require.NoError(t, err)
				e.fail(t)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				require.NoError(t, call(ctx, queueOf(c, "name")))
			})
		})
	}
}

// Nothing else is asked for meanwhile: the renewals and the looks find the way by themselves.
func TestHoldsAndWaitsOutlastAFailoverBehindOneEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(t)
		a, b := e.client(t), e.client(t)
		l, err := queueOf(a, "name").Acquire(t.Context())
		require.NoError(t, err)
		next := acquire(t.Context(), queueOf(b, "name"))
		synctime.Pass(time.Second)
		e.fail(t)
		synctime.Pass(3 * lease.DefaultLease)
		require.NoError(t, l.Context().Err())
		require.Empty(t, next)
		require.NoError(t, l.Release(t.Context()))
		synctime.Pass(time.Second)
		require.NotNil(t, <-next)
	})
}

func TestAServerThatStaysReadOnlyEndsACallWithItsContextAndATryBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(t)
		c := e.client(t)
		e.old.Fail(readOnly)
		defer e.old.Fail("")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := queueOf(c, "name").Try(ctx)
		require.ErrorContains(t, err, "connect to the master")
		require.LessOrEqual(t, time.Since(begun), retry.TryTime+retry.LongestBackoff)
		_, err = queueOf(c, "name").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "connect to the master")
		require.Equal(t, time.Minute, time.Since(begun))
	})
}
