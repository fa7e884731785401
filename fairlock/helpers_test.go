package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// number reads a number of the hash of a lock.
func number(t testing.TB, s redistest.Backend, name, field string) int64 {
	t.Helper()
	lock, _, _ := keysOf(name)
	if field == "until" {
		return kit.Until(s, lock)
	}
	return s.Int("HGET", lock, field)
}

// holds asserts that a hold stands, here and at the server.
func holds(t testing.TB, m *fairlock.Mutex, l *lease.Lease) {
	t.Helper()
	require.NoError(t, l.Context().Err(), "%v", context.Cause(l.Context()))
	info := inspect(t, m)
	require.True(t, info.Held)
	require.Equal(t, l.Token(), info.Token)
}

func TestMain(m *testing.M) { leaks.Main(m) }

// linger makes a client keep subscriptions for so long after their last use.
func linger(d time.Duration) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Linger = d }
}

// dialMutex returns the lock of the test as a new client sees it.
func dialMutex(t testing.TB, s redistest.Backend, opts ...fairlock.Option) *fairlock.Mutex {
	t.Helper()
	return fairlock.New(kit.Dial(t, s), kit.Name(t), opts...)
}

// keysOf are the keys of a lock under the default prefix: of the lock itself, its queue, its suspects.
func keysOf(name string) (lock, queue, suspects string) {
	lock = "headwaiter:lock:{" + name + "}"
	return lock, lock + ":queue", lock + ":suspects"
}

// hold locks m, which must come soon.
func hold(t testing.TB, m *fairlock.Mutex) *lease.Lease {
	t.Helper()
	return begin(t.Context(), m).Value(t)
}

// call is a Lock that runs in the background.
type call = kit.Call[*lease.Lease]

// begin calls m.Lock(ctx) in the background.
func begin(ctx context.Context, m *fairlock.Mutex) *call { return kit.Lock(ctx, m.Lock) }

// inspect tells who holds and who waits.
func inspect(t testing.TB, m *fairlock.Mutex) lease.Info {
	t.Helper()
	return kit.Got(m.Inspect(context.Background()))(t)
}

// joins begins a call that waits, as the n-th that another client sees.
func joins(t *testing.T, n int, m, seenBy *fairlock.Mutex) *call {
	t.Helper()
	c := begin(t.Context(), m)
	queued(t, seenBy, n)
	return c
}

// queued waits until n tickets are in the queue of m.
func queued(t testing.TB, m *fairlock.Mutex, n int) {
	t.Helper()
	kit.Waiting(t, n, m.Inspect)
}
