package fairlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// audit sees all holds of one lock and judges them: one at a time, and tokens that rise.
type audit struct {
	mu      sync.Mutex // guards the fields below
	holder  *lease.Lease
	token   uint64
	last    *fairlock.Mutex // of the last hold
	grants  map[*fairlock.Mutex]int
	handed  int           // holds of another than the one before
	longest time.Duration // wait
	wrong   []string
}

// enter notes a hold that begins, leave one that is about to be released.
func (a *audit) enter(m *fairlock.Mutex, l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holder != nil && a.holder.Context().Err() == nil {
		a.wrong = append(a.wrong, fmt.Sprintf("%d holds beside %d", l.Token(), a.holder.Token()))
	}
	if l.Token() <= a.token {
		a.wrong = append(a.wrong, fmt.Sprintf("token %d after %d", l.Token(), a.token))
	}
	if a.last != m {
		a.handed++
	}
	a.holder, a.token, a.last = l, l.Token(), m
	a.grants[m]++
	a.longest = max(a.longest, l.Waited())
}

func (a *audit) leave(l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holder == l {
		a.holder = nil
	}
}

// fewest is how many holds the client has that has the fewest of n.
func (a *audit) fewest(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.grants) < n {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(a.grants)))
}

// turns is how many holds there were.
func (a *audit) turns() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.grants {
		n += of
	}
	return n
}

// contention is several clients that take and release one lock without a pause.
type contention struct {
	audit
	ctx  context.Context // ends when no more is to be taken
	stop context.CancelFunc
	work sync.WaitGroup
}

// contend starts to take and release each of the mutexes, until the end of the test at the latest.
func contend(t testing.TB, ms ...*fairlock.Mutex) *contention {
	c := &contention{}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(c.stop)
	c.grants = map[*fairlock.Mutex]int{}
	for _, m := range ms {
		c.work.Go(func() { c.cycle(m) })
	}
	return c
}

// cycle takes and releases until the end. An error is noted, and no end.
func (c *contention) cycle(m *fairlock.Mutex) {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		l, err := m.Lock(ctx)
		cancel()
		if err == nil {
			c.enter(m, l)
			c.leave(l)
			err = l.Release(context.Background())
		}
		if err != nil {
			c.mu.Lock()
			c.wrong = append(c.wrong, err.Error())
			c.mu.Unlock()
		}
	}
}

// end stops the contention and asserts that nothing went wrong.
func (c *contention) end(t testing.TB) {
	t.Helper()
	c.stop()
	kit.AllMoving(t, &c.work, func() int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return int64(c.handed)
	})
	require.Empty(t, c.wrong)
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

// queued waits until so many tickets are in the queue of m.
func queued(t testing.TB, m *fairlock.Mutex, n int) {
	t.Helper()
	kit.Waiting(t, n, m.Inspect)
}
