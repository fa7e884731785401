package fairlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func TestOnlyTheHeadIsWoken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder := dialMutex(t, s)
		l, clients := hold(t, holder), make([]*headwaiter.Client, 10)
		calls := make([]*call, len(clients))
		for i := range clients {
			clients[i] = kit.Dial(t, s)
			calls[i] = begin(t.Context(), fairlock.New(clients[i], kit.Name(t)))
			queued(t, holder, i+1)
		}
		heard := func() (all []uint64) {
			for _, c := range clients {
				all = append(all, c.Stats().Messages)
			}
			return all
		}
		want := make([]uint64, len(clients))
		require.Equal(t, want, heard())
		for i, c := range calls {
			l = kit.Next(t, l, c)
			want[i] = 1
			kit.Eventually(t, "a message to the head alone", func() bool { return slices.Equal(want, heard()) })
		}
		kit.Release(t, l)
		require.Equal(t, want, heard())
	})
}

// Who takes and frees a lock that nobody else wants looks at its hash alone, and writes two fields of it.
func TestALockThatNobodyElseWantsIsItsHash(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithLease(15*time.Second)) // No renewal comes in between.
		l := hold(t, m)
		kit.Listening(t, s, 1) // As one that holds for a moment does: a connection is made, and then the client says who it is.
		kit.Release(t, l)
		kit.Release(t, hold(t, m)) // Now it has said that, and the keys live.
		s.ResetStats()
		const cycles = 10
		for range cycles {
			kit.Release(t, hold(t, m))
		}
		stats := s.CommandStats()
		for command, times := range map[string]int64{"evalsha": 2, "time": 1, "hmget": 2, "hset": 1, "hdel": 1} {
			require.Equal(t, times*cycles, stats[command], command)
			delete(stats, command)
		}
		require.Empty(t, stats)
		lock, _, _ := keysOf(kit.Name(t))
		l = hold(t, m)
		require.Equal(t, int64(3), s.Int("HLEN", lock), "owner, token and how long the key lives")
		kit.Release(t, l)
	})
}

// A pinged is a connection whose PINGs are counted.
type pinged struct {
	net.Conn
	pings *atomic.Int64
}

func (p pinged) Write(b []byte) (int, error) {
	p.pings.Add(int64(bytes.Count(b, []byte("PING"))))
	return p.Conn.Write(b)
}

// What an idle client costs Redis grows with the number of clients, so it is little: a PING in ten seconds for each
// connection that says nothing else.
func TestIdleConnectionsAreSeldomPinged(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var pings, dialed atomic.Int64
		c := kit.Dial(t, s, func(o *headwaiter.Options) {
			o.Redis.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				dialed.Add(1)
				conn, err := s.Dial()
				return pinged{conn, &pings}, err
			}
		})
		l := hold(t, fairlock.New(c, kit.Name(t)))
		synctime.Pass(time.Minute)
		require.GreaterOrEqual(t, dialed.Load(), int64(3), "commands, renewals, subscriptions")
		require.LessOrEqual(t, pings.Load(), 6*dialed.Load())
		require.Positive(t, pings.Load(), "a proxy may live where the server is gone")
		kit.Release(t, l)
	})
}

// full is the error of a call that finds no room.
func full(t testing.TB, err error) *lease.QueueFullError {
	t.Helper()
	require.ErrorIs(t, err, lease.ErrQueueFull)
	return kit.As[*lease.QueueFullError](t, err)
}

// Clients that do not exist wait in their thousands, by calls without a limit.
func TestTheDeadDoNotFillAQueue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithQueueLimit(2))
		l := hold(t, m)
		bury(t, s, kit.Name(t), dead)
		first := begin(t.Context(), m)
		kit.Eventually(t, "the first to wait", func() bool {
			info, err := m.Inspect(t.Context()) // On a machine with much other work the embedded server takes its time for so many.
			return err == nil && info.Waiting == dead+1
		})
		second := joins(t, 2, m, m)
		require.Equal(t, 2, full(t, begin(t.Context(), m).Err(t)).Waiting)
		kit.PassOn(t, l, first, second)
	})
}

// Of as many refusals as there may be one looks who lives.
func TestARefusalLooksAtNobodyRightBehindAnother(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter, client := dialMutex(t, s), dialMutex(t, s), kit.Dial(t, s)
		l := hold(t, holder)
		first, second := joins(t, 1, waiter, holder), joins(t, 2, waiter, holder)
		refused := func(opts ...fairlock.Option) int64 {
			synctime.Pass(time.Second) // What was looked at before counts no more.
			m := fairlock.New(client, kit.Name(t), append(opts, headwaiter.WithQueueLimit(2))...)
			full(t, begin(t.Context(), m).Err(t))
			s.ResetStats()
			for range 20 {
				require.Equal(t, 2, full(t, begin(t.Context(), m).Err(t)).Waiting)
			}
			return kit.Scripts(s)["pubsub|numsub"]
		}
		require.Zero(t, refused())
		require.Zero(t, refused(headwaiter.WithPriority(1)))
		lock, _, suspects := keysOf(kit.Name(t))
		s.Do("HSET", lock, "marked", "1")
		s.Do("ZADD", suspects, strconv.FormatInt(time.Now().UnixMicro(), 10), "killed")
		require.Zero(t, refused(), "beside a suspect")
		kit.PassOn(t, l, first, second)
	})
}

func TestWhatCannotBeAskedOfAQueueIsInvalid(t *testing.T) {
	s := redistest.Mini(t)
	for _, n := range []int{0, -1, lease.MaxQueueLimit + 1} {
		_, err := dialMutex(t, s, headwaiter.WithQueueLimit(n)).Lock(t.Context())
		kit.Fails(t, err, lease.ErrInvalid, fmt.Sprintf("WithQueueLimit: a limit of %d ", n))
	}
}

// BenchmarkKeep takes up a lock that its client keeps.
func BenchmarkKeep(b *testing.B) {
	s := redistest.Start(b)
	m := fairlock.New(kit.Dial(b, s), "kept", fairlock.WithKeep(time.Minute))
	ctx := b.Context()
	b.ReportAllocs()
	spans := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		begun := time.Now()
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		spans = append(spans, time.Since(begun))
		l.Unlock()
	}
	slices.Sort(spans)
	b.ReportMetric(float64(spans[len(spans)/2].Nanoseconds()), "p50-ns")
}

// locker is the lock of a name, as a new client sees it.
func locker(b *testing.B, s redistest.Backend, name string, opts ...fairlock.Option) enginetest.Locker {
	return enginetest.LockerOf(b, fairlock.New(kit.Dial(b, s), name, opts...))
}

// What a history costs: with one in place of ours, without in place of theirs and, in the cycle, of the floor.
func BenchmarkHistory(b *testing.B) {
	s := redistest.Start(b)
	b.Run("cycle", func(b *testing.B) {
		enginetest.Cycles(b, locker(b, s, "kept", fairlock.WithHistory(100)), locker(b, s, "plain"), locker(b, s, "plain too"))
	})
	b.Run("hand-off", func(b *testing.B) {
		enginetest.HandOffs(b,
			func(b *testing.B) enginetest.Locker { return locker(b, s, "kept", fairlock.WithHistory(100)) },
			func(b *testing.B) enginetest.Locker { return locker(b, s, "plain") })
	})
}
