package fairlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// An address leads to another server from now on, and the commands of a waiter's client go there. Its subscription
// stands where it was, and nobody closes that. The server that is asked counts no subscriber, so the waiter is skipped;
// its client must come to doubt what it hears (R10), or it is skipped at every release.
func TestAWaiterWhoseSubscriptionStaysBehindIsNotSkippedForEver(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t)
	var address atomic.Value
	address.Store(before.Addr())
	follows := fairlock.New(kit.Dial(t, before, func(o *headwaiter.Options) {
		o.Redis.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address.Load().(string))
		}
	}), kit.Name(t))
	there := dialMutex(t, before)
	hold(t, there)
	waiter := begin(t.Context(), follows)
	queued(t, there, 1)

	first, second := dialMutex(t, after), dialMutex(t, after)
	l := hold(t, first)
	address.Store(after.Addr())
	before.Do("CLIENT", "KILL", "TYPE", "normal")

	for skipped := 0; ; skipped++ {
		require.LessOrEqual(t, skipped, 4, "times that it was skipped")
		queued(t, first, 1) // It comes back by its looks.
		later := begin(t.Context(), second)
		queued(t, first, 2)
		kit.Release(t, l)
		kit.Eventually(t, "a grant", func() bool { return waiter.Returned() || later.Returned() })
		if waiter.Returned() {
			kit.Release(t, waiter.Value(t))
			kit.Release(t, later.Value(t))
			return
		}
		l = later.Value(t)
		first, second = second, first
	}
}

// A server that forgets everything tells nothing of what is heard: the connection that subscribes stays as it is.
func TestAWaiterThatTheServerForgotKeepsItsSubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := kit.Dial(t, s)
	holder, m := dialMutex(t, s), fairlock.New(c, kit.Name(t))
	hold(t, holder)
	waiter := begin(t.Context(), m)
	queued(t, holder, 1)
	subscribes := c.Stats().Subscribes
	s.Do("FLUSHALL")
	kit.Release(t, waiter.Value(t))
	require.Equal(t, subscribes, c.Stats().Subscribes)
}
