package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// outages are the ways in which a server is out of reach, each for connections that stand and new ones.
var outages = []struct {
	name  string
	begin func(f *faults.Faults)
}{
	{"nothing moves", func(f *faults.Faults) { f.Freeze() }},
	{"requests vanish", func(f *faults.Faults) { f.Drop(faults.ToServer) }},
	{"replies vanish", func(f *faults.Faults) { f.Drop(faults.ToClient) }},
	{"connections are refused", func(f *faults.Faults) { f.Refuse(); f.Cut() }},
}

// inOutage runs a case in each outage: client has a hold, of free, and a waiting call, for busy, when it
// begins. The bubble fails the case if a goroutine is left at its end.
func inOutage(t *testing.T, run func(t *testing.T, o outage)) {
	t.Parallel()
	for _, x := range outages {
		t.Run(x.name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				o := outage{Dialer: d, client: kit.Dial(t, s, kit.Over(d))}
				other := kit.Dial(t, s)
				busy := hold(t, fairlock.New(other, "busy"))
				o.held = hold(t, fairlock.New(o.client, "free"))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				o.cancel, o.waiting = cancel, begin(ctx, fairlock.New(o.client, "busy"))
				queued(t, fairlock.New(other, "busy"), 1)
				x.begin(d.Faults)
				run(t, o)
				d.Heal()
				kit.Release(t, busy)
				for _, name := range []string{"busy", "free"} {
					kit.Release(t, hold(t, fairlock.New(other, name)))
				}
			})
		})
	}
}

type outage struct {
	*faults.Dialer
	client  *headwaiter.Client
	held    *lease.Lease
	waiting *call
	cancel  context.CancelFunc
}

// promptly is how long something may take that depends on nobody.
const promptly = 500 * time.Millisecond

func TestACancelledCallReturnsAtOnceWhileRedisIsUnreachable(t *testing.T) {
	inOutage(t, func(t *testing.T, o outage) {
		ctx, cancel := context.WithCancel(t.Context())
		asking := begin(ctx, fairlock.New(o.client, "another"))
		confused := begin(ctx, fairlock.New(o.client, "free"))
		synctest.Wait()
		synctime.Pass(300 * time.Millisecond)
		begun := time.Now()
		cancel()
		o.cancel()
		for _, c := range []*call{asking, confused, o.waiting} {
			require.ErrorIs(t, c.Err(t), context.Canceled)
		}
		require.Less(t, time.Since(begun), promptly)
		o.Heal()
		kit.Release(t, o.held)
	})
}

func TestCloseReturnsWhenItsContextEndsWhileRedisIsUnreachable(t *testing.T) {
	inOutage(t, func(t *testing.T, o outage) {
		const given = 300 * time.Millisecond
		asking := begin(t.Context(), fairlock.New(o.client, "another"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(t, o.client.Close(ctx), context.DeadlineExceeded)
		require.Less(t, time.Since(begun), given+promptly)
		require.ErrorIs(t, context.Cause(o.held.Context()), lease.ErrClientClosed)
		for _, c := range []*call{asking, o.waiting} {
			require.ErrorIs(t, c.Err(t), lease.ErrClosed)
		}
		require.Less(t, time.Since(begun), given+promptly)
	})
}

func TestCloseReturnsWhenItsContextEndsWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other, client := dialMutex(t, s), kit.Dial(t, s)
	busy := hold(t, other)
	waiting := begin(t.Context(), fairlock.New(client, kit.Name(t)))
	queued(t, other, 1)
	l := hold(t, fairlock.New(client, kit.Name(t)+":held"))
	s.Stop()
	const given = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	begun := time.Now()
	require.ErrorIs(t, client.Close(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(begun), given+2*promptly)
	require.ErrorIs(t, waiting.Err(t), lease.ErrClosed)
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrClientClosed)
	s.Cont()
	kit.Release(t, busy)
	kit.Free(t, other)
}
