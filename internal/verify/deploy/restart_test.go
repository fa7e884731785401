package deploy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// connections reads from INFO stats how many connections were made so far.
func connections(t *testing.T, info string) int { return number(t, info, "total_connections_received") }

// number reads a field of INFO.
func number(t *testing.T, info, field string) int {
	t.Helper()
	_, rest, found := strings.Cut(info, field+":")
	require.True(t, found, field)
	text, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// old waits until the server has run for longer than a lease.
func old(t *testing.T, s *redistest.Server, lease time.Duration) {
	t.Helper()
	kit.Eventually(t, "the server is old enough", func() bool {
		return time.Duration(number(t, s.Text("INFO", "server"), "uptime_in_seconds"))*time.Second > lease+time.Second
	})
}

const restartLease = 3 * time.Second

// The holder of before the restart may act for the rest of its lease. Nobody else holds before that.
func TestAServerThatComesUpEmptyDoesNotGrantWithinALease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	old(t, s, restartLease)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(restartLease), headwaiter.WithSafeRestart()}
	a, b := fairlock.New(kit.Dial(t, s), name, options...), fairlock.New(kit.Dial(t, s), name, options...)
	first, err := a.Lock(t.Context())
	require.NoError(t, err)
	s.Restart()
	restarted := time.Now()
	_, err = b.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorIs(t, err, lease.ErrRestarted)
	second, err := b.Lock(t.Context())
	require.NoError(t, err)
	require.Error(t, first.Context().Err(), "two hold")
	require.Greater(t, time.Since(restarted), restartLease-time.Second/10, "granted before the lease of the forgotten hold was over")
	require.Error(t, first.Release(t.Context()))
	kit.Release(t, second)
	third, err := a.TryLock(t.Context())
	require.NoError(t, err, "the server is old enough now")
	require.Greater(t, third.Token(), second.Token())
	kit.Release(t, third)
}

// Those who come behind a restart get their turns in their order, however many wait for the first one.
func TestTheOrderOutlastsTheWaitBehindARestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(3 * restartLease), headwaiter.WithSafeRestart()} // All are queued within it.
	var calls []*kit.Call[int]
	turn := make(chan int, 5)
	plain := fairlock.New(kit.Dial(t, s), name)
	for i := range 5 {
		m := fairlock.New(kit.Dial(t, s), name, options...)
		calls = append(calls, kit.Go(func() (int, error) {
			return 0, m.Do(t.Context(), func(context.Context) error { turn <- i; return nil })
		}))
		kit.Waiting(t, i, plain.Inspect)
		kit.Eventually(t, "the first holds the place", func() bool {
			info, err := plain.Inspect(t.Context())
			return err == nil && info.Held
		})
	}
	for i, call := range calls {
		require.NoError(t, call.Err(t))
		require.Equal(t, i, <-turn)
	}
}

// A call that gives up while it waits for the server's age leaves nothing, and the next goes on waiting.
func TestACallThatGivesUpBehindARestartLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	name := kit.Name(t)
	m := fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(time.Minute), headwaiter.WithSafeRestart())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	kit.Eventually(t, "nobody holds", func() bool {
		info, err := m.Inspect(t.Context())
		return err == nil && !info.Held && info.Waiting == 0
	})
	l, err := fairlock.New(kit.Dial(t, s), name).TryLock(t.Context())
	require.NoError(t, err, "who does not ask for it does not wait")
	kit.Release(t, l)
}

// A server that reads its append-only file has forgotten nothing: its grants count at once.
func TestAServerThatComesUpWithItsDataGrants(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir()))
	old(t, s, restartLease)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(restartLease), headwaiter.WithSafeRestart()}
	m := fairlock.New(kit.Dial(t, s), name, options...)
	l, err := m.Lock(t.Context())
	require.NoError(t, err)
	s.Restart()
	require.NoError(t, l.Release(t.Context()))
	l, err = m.TryLock(t.Context())
	require.NoError(t, err)
	require.Less(t, number(t, s.Text("INFO", "server"), "uptime_in_seconds"), int(restartLease/time.Second), "it was slow: shows nothing")
	kit.Release(t, l)
}

// What it knows by is not in the keys of the names, so it holds for those that nobody has held yet too, and from the first
// start on, which was waited for.
func TestAServerThatComesUpWithItsDataGrantsWhateverTheName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir()))
	options := []fairlock.Option{headwaiter.WithLease(2 * restartLease), headwaiter.WithSafeRestart()}
	c := kit.Dial(t, s)
	kit.Release(t, begin(c, kit.Name(t), options).Value(t))
	for restarts := range 3 {
		s.Restart()
		for i := range 3 {
			l, err := fairlock.New(c, fmt.Sprint(kit.Name(t), restarts, i), options...).TryLock(t.Context())
			require.NoError(t, err)
			kit.Release(t, l)
		}
		require.Less(t, number(t, s.Text("INFO", "server"), "uptime_in_seconds"), int(2*restartLease/time.Second), "it was slow: shows nothing")
	}
	require.Positive(t, s.Int("PTTL", lua.MarkKey("headwaiter", 0, false)))
}

func begin(c *headwaiter.Client, name string, options []fairlock.Option) *kit.Call[*lease.Lease] {
	return kit.Go(func() (*lease.Lease, error) { return fairlock.New(c, name, options...).Lock(context.Background()) })
}

// The one whose look comes first holds while all wait. When the lease is over it lets those go first who came first.
func TestTheOrderOutlastsAnEmptyRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const lasts = 3 * restartLease // All are queued again within it, on a busy machine too.
	old(t, s, lasts)
	name := kit.Name(t)
	options := []fairlock.Option{headwaiter.WithLease(lasts), headwaiter.WithSafeRestart()}
	plain := fairlock.New(kit.Dial(t, s), name)
	held, err := plain.Lock(t.Context())
	require.NoError(t, err)
	p := faults.NewProxy(t, s.Addr())
	first := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.InitAddress = []string{p.Addr()} })
	clients := []*headwaiter.Client{first, kit.Dial(t, s), kit.Dial(t, s)}
	var calls []*kit.Call[*lease.Lease]
	for i, c := range clients {
		calls = append(calls, begin(c, name, options))
		kit.Waiting(t, i+1, plain.Inspect)
	}
	p.Freeze()
	s.Restart()
	kit.Eventually(t, "one of the later holds the place", func() bool {
		info, err := plain.Inspect(t.Context())
		return err == nil && info.Held && info.Waiting == 1
	})
	p.Heal()
	kit.Waiting(t, 2, plain.Inspect)
	require.Error(t, held.Release(t.Context()))
	var token uint64
	for i, call := range calls {
		l := call.Value(t)
		for _, later := range calls[i+1:] {
			require.False(t, later.Returned(), "another before call %d", i)
		}
		require.Greater(t, l.Token(), token)
		token = l.Token()
		kit.Release(t, l)
	}
}

// What was found out of a server counts until its connection breaks: after the first hold it costs nothing.
func TestAServerIsAskedForItsAgeOnceAConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	old(t, s, restartLease)
	c := kit.Dial(t, s)
	m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(restartLease), headwaiter.WithSafeRestart())
	cycle := func() int64 {
		s.ResetStats()
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		return s.CommandStats()["info"]
	}
	require.EqualValues(t, 1, cycle())
	for range 10 {
		require.Zero(t, cycle())
	}
	s.Do("CLIENT", "KILL", "TYPE", "normal")
	require.EqualValues(t, 1, cycle(), "it may have been a restart that broke the connection")
	require.Zero(t, cycle())
}
