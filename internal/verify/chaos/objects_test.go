package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// take begins to acquire n permits.
func take(t testing.TB, s *semaphore.Semaphore, n int64) *kit.Call[*lease.Lease] {
	t.Helper()
	return kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, n) })
}

func TestP1HoldersOfPermitsAreKilled(t *testing.T) {
	t.Parallel()
	r := begin(t, "P1")
	const permits, lasts = 5, time.Second
	s := semaphore.New(r.dial(), "permits", permits)
	for range either(2, 10) {
		victims := r.crowd(crowd.Plan{
			Kind: crowd.Semaphore, Names: []string{"permits"}, Clients: 1, Waiters: permits - 1, Lease: lasts, Keep: true, Permits: permits,
		})
		victims.Await(crowd.Held, permits-1, kit.Patience)
		mine := take(t, s, 1).Value(t)
		all := take(t, s, permits-1)
		kit.Waiting(t, 1, s.Inspect)
		victims.Kill()
		info, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, info.Used, int64(permits))
		since := time.Now()
		l := all.Value(t)
		require.Less(t, time.Since(since), lasts+time.Second, "permits of the dead came back late")
		require.NoError(t, mine.Context().Err(), "a permit of one that lives was taken")
		kit.Release(t, l)
		kit.Release(t, mine)
		n, err := s.Available(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, permits, n, "permits have leaked")
	}
	r.load[0].kill() // With permits of the load.
	r.everybody()
	r.finish()
}

func TestP4APartyIsKilledWhileOthersWait(t *testing.T) {
	t.Parallel()
	r := begin(t, "P4", func(o *options) { o.keep = 48 * time.Hour })
	const parties, lasts = 4, time.Second
	clients := make([]*barrier.Barrier, parties-1)
	for i := range clients {
		clients[i] = barrier.New(r.dial(), "party", parties, headwaiter.WithLease(lasts))
	}
	for round := range either(2, 10) {
		if round > 0 {
			require.NoError(t, clients[0].Reset(t.Context()))
		}
		victim := newProcess(t, plan{Role: party, Addrs: []string{r.server.Addr()}, Names: []string{"party"}, Clients: parties, Lease: lasts})
		kit.Waiting(t, 1, clients[0].Inspect)
		var calls []*kit.Call[int]
		for i, b := range clients[1:] {
			calls = append(calls, kit.Go(func() (int, error) { return b.Await(t.Context()) }))
			kit.Waiting(t, i+2, clients[0].Inspect)
		}
		victim.kill()
		since := time.Now()
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), barrier.ErrBroken)
		}
		require.Less(t, time.Since(since), lasts+2*time.Second)
		_, err := clients[0].Await(t.Context())
		require.ErrorIs(t, err, barrier.ErrBroken)
		// What was said of the broken generation opens no later one.
		info, err := clients[0].Inspect(t.Context())
		require.NoError(t, err)
		require.NoError(t, clients[0].Reset(t.Context()))
		one := kit.Go(func() (int, error) { return clients[0].Await(t.Context()) })
		kit.Waiting(t, 1, clients[0].Inspect)
		for _, kind := range []string{"O", "B"} {
			r.server.Int("PUBLISH", "headwaiter:barrier:{party}:wake", fmt.Sprintf("%s %d", kind, info.Token))
		}
		two := kit.Go(func() (int, error) { return clients[1].Await(t.Context()) })
		kit.Waiting(t, 2, clients[0].Inspect)
		require.False(t, one.Returned() || two.Returned())
		three := kit.Go(func() (int, error) { return clients[2].Await(t.Context()) })
		kit.Waiting(t, 3, clients[0].Inspect)
		last := kit.Go(func() (int, error) { return clients[0].Await(t.Context()) })
		require.ElementsMatch(t, []int{0, 1, 2, 3}, []int{one.Value(t), two.Value(t), three.Value(t), last.Value(t)})
	}
	r.everybody()
	r.finish()
}

func TestP5AReaderIsKilledWhileAWriterWaits(t *testing.T) {
	t.Parallel()
	r := begin(t, "P5")
	const short, lasting = time.Second, 3 * time.Second
	m := rwlock.New(r.dial(), "read", headwaiter.WithLease(lasting))
	other := rwlock.New(r.dial(), "read")
	for range either(2, 10) {
		mine := kit.Lock(t.Context(), m.RLock).Value(t)
		victim := r.crowd(crowd.Plan{Kind: crowd.Read, Names: []string{"read"}, Clients: 1, Waiters: 3, Lease: short, Keep: true})
		victim.Await(crowd.Held, 3, kit.Patience)
		victim.Kill()
		writer := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		// The dead are gone after their own lease, and the one that lives is not.
		kit.Eventually(t, "the readers that died to be gone", func() bool {
			info, err := m.Inspect(t.Context())
			require.NoError(t, err)
			return info.Used == 1 || len(info.Holders) > 0 && live(info) == 1
		})
		require.False(t, writer.Returned())
		require.NoError(t, mine.Context().Err())
		since := time.Now()
		kit.Release(t, mine)
		l := writer.Value(t)
		require.Less(t, time.Since(since), 2*time.Second, "the writer waits for readers that are dead")
		kit.Release(t, l)

		// The other way round: one that lives, with the shorter lease, does not keep a dead one with a longer.
		short := rwlock.New(r.dial(), "read", headwaiter.WithLease(short))
		mine = kit.Lock(t.Context(), short.RLock).Value(t)
		victim = r.crowd(crowd.Plan{Kind: crowd.Read, Names: []string{"read"}, Clients: 1, Waiters: 1, Lease: lasting, Keep: true})
		victim.Await(crowd.Held, 1, kit.Patience)
		victim.Kill()
		writer = kit.Lock(t.Context(), other.Lock)
		since = time.Now()
		kit.Waiting(t, 1, m.Inspect)
		kit.Release(t, mine)
		l = writer.Value(t)
		require.Less(t, time.Since(since), lasting+time.Second)
		kit.Release(t, l)
	}
	r.load[0].kill()
	r.everybody()
	r.finish()
}

// live is how many holds have a lease that has not ended.
func live(info lease.Info) int {
	n := 0
	for _, h := range info.Holders {
		if h.Left > 0 {
			n++
		}
	}
	return n
}

func TestP3CountsWhoseRepliesAreLostCountOnce(t *testing.T) {
	t.Parallel()
	r := begin(t, "P3", func(o *options) { o.keep = 48 * time.Hour })
	p := kit.Proxy(t, r.server)
	l, other := countdown.New(r.dial(kit.Through(p)), "count"), countdown.New(r.dial(), "count")
	n := either(50, 1000)
	set, err := l.TrySetCount(t.Context(), int64(n))
	require.NoError(t, err)
	require.True(t, set)
	waiting := kit.Run(func() error { return other.Wait(t.Context()) })
	kit.Waiting(t, 1, l.Inspect)
	for i := range n {
		p.LoseReplies(1, func(command []string) bool { return isScript(command) })
		left, err := l.CountDown(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, n-1-i, left, "a count was taken twice")
	}
	replies, _ := p.Lost()
	require.Equal(t, n, replies)
	require.NoError(t, waiting.Err(t))
	require.NoError(t, other.Wait(t.Context()), "a wait for an open latch")
	left, err := l.CountDown(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	// The server forgets: nobody passes for that.
	set, err = other.TrySetCount(t.Context(), 1)
	require.NoError(t, err)
	require.True(t, set)
	waiting = kit.Run(func() error { return other.Wait(t.Context()) })
	kit.Waiting(t, 1, l.Inspect)
	r.server.Do("DEL", "headwaiter:latch:{count}")
	require.ErrorIs(t, waiting.Err(t), countdown.ErrGone)
	r.everybody()
	r.finish()
}

func isScript(command []string) bool {
	return len(command) > 0 && (command[0] == "EVALSHA" || command[0] == "EVAL")
}
