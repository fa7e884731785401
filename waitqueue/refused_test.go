package waitqueue

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// refusals are the answers of a server that refuses writes until somebody, or a replica, mends that.
var refusals = map[string]string{
	"NOREPLICAS": "-NOREPLICAS Not enough good replicas to write.",
	"MISCONF":    "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
}

// refuse lets a server refuse all scripts with a text; an empty one ends that.
func refuse(s *redistest.Embedded, text string) {
	s.Answer("EVALSHA", text)
	s.Answer("EVAL", text)
}

// refusing runs a test for each of the refusals, with two clients of one server in a bubble.
func refusing(t *testing.T, run func(t *testing.T, s *redistest.Embedded, refusal string, mine, theirs *Client)) {
	for code, refusal := range refusals {
		t.Run(code, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				mine, theirs := dial(t, s), dial(t, s)
				defer refuse(s, "")
				run(t, s, refusal, mine, theirs)
			})
		})
	}
}

func TestAReleaseThatTheServerRefusesForAMomentIsSentAgainUntilItIsDone(t *testing.T) {
	for name, release := range map[string]func(context.Context, *lease.Lease) error{
		"Release":     func(ctx context.Context, l *lease.Lease) error { return l.Release(ctx) },
		"ReleaseEach": func(ctx context.Context, l *lease.Lease) error { return ReleaseEach(ctx, l)[0] },
		"HandOver": func(ctx context.Context, l *lease.Lease) error {
			_, err := l.HandOver(ctx)
			return err
		},
		"Unlock": func(_ context.Context, l *lease.Lease) error {
			l.Unlock()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			refusing(t, func(t *testing.T, s *redistest.Embedded, refusal string, mine, theirs *Client) {
				l := must.Got(queueOf(mine, "name").Acquire(t.Context()))(t)
				begun := time.Now()
				refuse(s, refusal)
				time.AfterFunc(2*time.Second, func() { refuse(s, "") })
				require.NoError(t, release(t.Context(), l))
				time.Sleep(2*time.Second - time.Since(begun) + calls.LongestBackoff) // Of the bubble: for an Unlock.
				if name == "HandOver" {
					return // It is in transit.
				}
				l = must.Got(queueOf(theirs, "name").Try(t.Context()))(t)
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

func TestAReleaseThatTheServerRefusesUntilTheEndSaysSo(t *testing.T) {
	refusing(t, func(t *testing.T, s *redistest.Embedded, refusal string, mine, _ *Client) {
		l := must.Got(queueOf(mine, "name").Acquire(t.Context()))(t)
		refuse(s, refusal)
		ctx := must.Within(t, time.Second)
		must.Fails(t, l.Release(ctx), lease.ErrUnconfirmed, context.DeadlineExceeded, refusal[1:])
	})
}

// The next call follows the Unlock that is refused (R1). It does not wait for as long as that is.
func TestACallBehindAnUnlockThatAFullDiskHoldsUpFailsAtOnce(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := dial(t, s)
		defer refuse(s, "")
		for name, before := range map[string]func(){"refused before": synctest.Wait, "refused meanwhile": func() {}} {
			l := must.Got(queueOf(c, name).Acquire(t.Context()))(t)
			time.Sleep(time.Second) // Of the bubble: the Unlock does not linger.
			refuse(s, refusals["MISCONF"])
			l.Unlock()
			before()
			begun := time.Now()
			require.ErrorContains(t, must.Err(queueOf(c, name).Acquire(t.Context())), "MISCONF", name)
			require.Equal(t, begun, time.Now())
			refuse(s, "")
			time.Sleep(calls.LongestBackoff) // Of the bubble: the Unlock is sent again.
			l = must.Got(queueOf(c, name).Acquire(t.Context()))(t)
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

func TestALeaseForWritingThatIsGivenUpIsLoweredWhenTheServerTakesWritesAgain(t *testing.T) {
	refusing(t, func(t *testing.T, s *redistest.Embedded, refusal string, mine, _ *Client) {
		q := mine.Queue(lua.RWLock, "rw", DefaultTerms()).Nested(Reenters).Says(nil, fmt.Sprint(wire.AllReaders))
		writes := must.Got(q.For(wire.Write, wire.AllReaders).Acquire(t.Context()))(t)
		reads := must.Got(q.For(wire.Read, 1).Acquire(writes.Context()))(t)
		refuse(s, refusal)
		time.AfterFunc(2*time.Second, func() { refuse(s, "") })
		require.NoError(t, writes.Release(t.Context()))
		require.NoError(t, must.Got(q.For(wire.Read, 1).Try(t.Context()))(t).Release(t.Context()))
		require.NoError(t, reads.Release(t.Context()))
	})
}

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
	c := must.Got(Dial(Options{Redis: o, Name: "test"}))(t)
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
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
			_, err := AcquireAll(ctx, []Queue{q, queueOf(&Client{q.client}, "another")}, 0)
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
				require.NoError(t, must.Err(queueOf(c, "held").Acquire(t.Context())))
				e.fail(t)
				require.NoError(t, call(must.Within(t, 5*time.Second), queueOf(c, "name")))
			})
		})
	}
}

// Nothing else is asked for meanwhile: the renewals and the looks find the way by themselves.
func TestHoldsAndWaitsOutlastAFailoverBehindOneEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(t)
		a, b := e.client(t), e.client(t)
		l := must.Got(queueOf(a, "name").Acquire(t.Context()))(t)
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
		ctx := must.Within(t, time.Minute)
		begun := time.Now()
		require.ErrorContains(t, must.Err(queueOf(c, "name").Try(ctx)), "connect to the master")
		require.LessOrEqual(t, time.Since(begun), calls.TryTime+calls.LongestBackoff)
		must.Fails(t, must.Err(queueOf(c, "name").Acquire(ctx)), context.DeadlineExceeded, "connect to the master")
		require.Equal(t, time.Minute, time.Since(begun))
	})
}
