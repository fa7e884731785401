package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// dial returns a client of s that is closed with the test.
func dial(t *testing.T, s redistest.Backend) *Client {
	t.Helper()
	c, err := Dial(Options{Redis: s.Option(), Name: "test", Linger: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// queueOf is the queue of a lock as a client sees it.
func queueOf(c *Client, name string) Queue {
	return c.Queue(lua.Fairlock, name, Terms{Lease: lease.DefaultLease})
}

// acquire asks in the background. What comes of it is in the channel.
func acquire(ctx context.Context, q Queue) <-chan *lease.Lease {
	got := make(chan *lease.Lease, 1)
	go func() {
		l, _ := q.Acquire(ctx)
		got <- l
	}()
	return got
}

// remains is what a client still has to do.
type remains struct {
	sites, timers, channels, ends, renewals int
	listening                               bool
}

func (c *Client) remains() remains {
	var r remains
	c.mu.Lock()
	r.sites = len(c.sites)
	c.mu.Unlock()
	r.timers = c.servers.Timers.Len()
	r.channels, r.listening = c.servers.Subscribed()
	r.ends, _ = c.ends.Open()
	r.renewals = c.renewals.Due()
	return r
}

func TestAClientSaysWhoItIsForAsLongAsItUsesAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		c := dial(t, s)
		known := func() bool { return s.Int("EXISTS", lua.ClientKey(c.opts.Prefix, c.ID())) == 1 }
		require.True(t, known())
		for range 2 {
			l, err := queueOf(c, "name").Acquire(t.Context())
			require.NoError(t, err)
			synctime.Pass(time.Second)
			require.True(t, known())
			synctime.Pass(5 * time.Minute)
			require.True(t, known())
			require.NoError(t, l.Release(t.Context()))
			synctime.Pass(2 * time.Minute)
			require.False(t, known())
		}
	})
}

// In a bubble: a moment later is not a matter of luck.
func TestAClientThatHasNothingToDoHasNoTimersAndNoSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		a, b := dial(t, s), dial(t, s)
		for _, name := range []string{"one", "two", "three"} {
			l, err := queueOf(a, name).Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			given := acquire(ctx, queueOf(b, name))
			served := acquire(t.Context(), queueOf(b, name))
			require.Nil(t, <-given)
			cancel()
			synctest.Wait() // The call has come back; its ticket leaves the queue in the background.
			require.NotZero(t, b.remains())
			require.NoError(t, l.Release(t.Context()))
			l = <-served
			require.NotNil(t, l)
			require.NoError(t, l.Release(t.Context()))
			_, err = queueOf(a, name).Try(t.Context())
			require.NoError(t, err)
			_, err = queueOf(a, name).ForceReleaseHolder(t.Context(), lease.Holder{})
			require.ErrorIs(t, err, lease.ErrInvalid, "who holds was not seen")
			_, err = queueOf(a, name).ForceRelease(t.Context(), 0)
			require.NoError(t, err)
		}
		synctime.Pass(10 * time.Second)
		require.Zero(t, a.remains())
		require.Zero(t, b.remains())
		require.Empty(t, s.List("PUBSUB", "CHANNELS"))
		before := b.Stats()
		synctime.Pass(time.Hour)
		require.Equal(t, before, b.Stats())
	})
}

func TestAHotLockKeepsItsSubscriptionAndALockOutOfUseDropsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		a, b := dial(t, s), dial(t, s)
		pass := func(from, to *Client) {
			l, err := queueOf(from, "hot").Acquire(t.Context())
			require.NoError(t, err)
			next := acquire(t.Context(), queueOf(to, "hot"))
			synctime.Pass(50 * time.Millisecond)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, (<-next).Release(t.Context()))
			synctime.Pass(60 * time.Millisecond) // Less than the subscription lingers.
		}
		for range 100 {
			pass(a, b)
			pass(b, a)
		}
		require.Equal(t, uint64(1), a.Stats().Subscribes)
		require.Equal(t, uint64(1), b.Stats().Subscribes)
		synctime.Pass(10 * time.Second) // The last hand-off is looked after, too.
		require.Empty(t, s.List("PUBSUB", "CHANNELS"))
		pass(a, b)
		require.Equal(t, uint64(2), b.Stats().Subscribes)
	})
}

func TestNewTakesTheConnectionsOfItsCallerAndLeavesThemOpen(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		rc, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		defer rc.Close()
		c, err := New(rc, Options{Name: "guest"})
		require.NoError(t, err)
		other := dial(t, s)
		for range 20 {
			l, err := queueOf(other, "name").Acquire(t.Context())
			require.NoError(t, err)
			next := acquire(t.Context(), queueOf(c, "name"))
			for info := (lease.Info{}); info.Waiting == 0; {
				info, err = queueOf(other, "name").Inspect(t.Context())
				require.NoError(t, err)
			}
			require.NoError(t, l.Release(t.Context()))
			l = <-next
			require.NotNil(t, l)
			info, err := queueOf(other, "name").Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.ID(), info.Holder.Client)
			require.NoError(t, l.Release(t.Context()))
		}
		require.NoError(t, c.Close(t.Context()))
		require.NoError(t, rc.Do(t.Context(), rc.B().Ping().Build()).Error())
		_, err = New(rc, Options{Prefix: "{"})
		require.ErrorContains(t, err, "prefix")
	})
}

func TestClientsOfDifferentPrefixesDoNotMeet(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		c := dial(t, s)
		other, err := Dial(Options{Redis: s.Option(), Prefix: "other:app"})
		require.NoError(t, err)
		defer other.Close(context.Background())
		l, err := queueOf(c, "name").Try(t.Context())
		require.NoError(t, err)
		m, err := queueOf(other, "name").Try(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"headwaiter:lock:{name}", "other:app:lock:{name}"}, s.List("KEYS", "*{*"))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, m.Release(t.Context()))
	})
}

func TestAURLReachesItsServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "on", ">secret", "allkeys", "allchannels", "allcommands")
	o, err := rueidis.ParseURL("redis://lock:secret@" + s.Addr() + "/3")
	require.NoError(t, err)
	c, err := Dial(Options{Redis: o})
	require.NoError(t, err)
	defer c.Close(context.Background())
	_, err = queueOf(c, "name").Acquire(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.Text("INFO", "keyspace"), "db3:keys=2")
}
